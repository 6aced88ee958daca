package queue

import (
	"fmt"
	"path/filepath"
	"testing"
)

func TestRequiredSchema(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../schema/[0-9]*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("find the migrations: %v", err)
	}
	var newest int64
	if _, err := fmt.Sscanf(filepath.Base(names[len(names)-1]), "%d_", &newest); err != nil {
		t.Fatal(err)
	}
	if newest != requiredSchema {
		t.Errorf("requiredSchema is %d and the newest migration is %d: a client must refuse a schema that lacks what its SQL needs", requiredSchema, newest)
	}
}
