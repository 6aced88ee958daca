package operatortest

import (
	"os"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/pkg/queue"
)

// Every statement of docs/operations.md runs, on a database with something of
// everything.
func TestOperationsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 9 {
		t.Fatalf("%d statements were found", len(blocks))
	}
	w := newWorld(t)
	for _, dead := range zoo(w)[queue.StateDead] {
		w.redrive(dead, "order", queue.Redriven)
	}
	for _, block := range blocks {
		if _, err := w.pool.Exec(w.ctx, block[1], pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("%s\n%v", block[1], err)
		}
	}
	if n := scan[int](w, `SELECT count(*) FROM onceq.queue WHERE paused`); n != 2 {
		t.Errorf("%d queues are paused after the restore's statement, want 2", n)
	}
}
