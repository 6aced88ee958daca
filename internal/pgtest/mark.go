package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// mark says to other processes on the same server which databases this one
// uses. It is a session that holds advisory locks: they end with the process,
// even if it is killed, and whoever can then take one may drop what it stood
// for.
type mark struct {
	run  string // this process's part in the names of its databases
	conn *pgx.Conn
}

const (
	testPrefix = "onceq_test_"
	keptPrefix = "onceq_kept_" // never swept
)

func newMark(ctx context.Context, url string) (*mark, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	m := &mark{run: strings.ToLower(rand.Text()[:10]), conn: conn}
	if err := m.use(ctx, testPrefix+m.run); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return m, nil
}

// prefix begins the names of this process's databases.
func (m *mark) prefix(kept bool) string {
	if kept {
		return keptPrefix + m.run
	}
	return testPrefix + m.run
}

// use marks a name as used by this process, among others.
func (m *mark) use(ctx context.Context, name string) error {
	_, err := m.conn.Exec(ctx, "SELECT pg_advisory_lock_shared(hashtextextended($1, 0))", name)
	return err
}

// alone does something that only one process at a time may do.
func (m *mark) alone(ctx context.Context, what string, do func() error) error {
	if _, err := m.conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", what); err != nil {
		return err
	}
	err := do()
	_, unlockErr := m.conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", what)
	return errors.Join(err, unlockErr)
}

// release takes the marks away. It waits until the server has seen to it,
// which closing the connection alone would not.
func (m *mark) release(ctx context.Context) error {
	_, err := m.conn.Exec(ctx, "SELECT pg_advisory_unlock_all()")
	return errors.Join(err, m.conn.Close(ctx))
}

// owned finds, in the name of a database, the name that its users mark: a
// template's own, or that of the run that a test's database belongs to.
var owned = regexp.MustCompile(`^(` + templatePrefix + `\w+|` + testPrefix + `[a-z0-9]+)(_\w+)?$`)

// sweep drops every template and test database on the server that no living
// process has marked.
func sweep(ctx context.Context, admin *pgxpool.Pool) error {
	conn, err := admin.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pgtest: sweep: %w", err)
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, "SELECT datname FROM pg_database WHERE datname LIKE 'onceq\\_%'") // CollectRows reports its error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("pgtest: sweep: %w", err)
	}
	for _, name := range names {
		match := owned.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		if err := dropUnmarked(ctx, conn.Conn(), admin, name, match[1]); err != nil {
			return fmt.Errorf("pgtest: sweep: %w", err)
		}
	}
	return nil
}

// dropUnmarked drops the database while holding its mark alone, so that a
// process that is about to use it waits, and then finds it gone.
func dropUnmarked(ctx context.Context, conn *pgx.Conn, admin *pgxpool.Pool, name, marked string) error {
	var free bool
	err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", marked).Scan(&free)
	if err != nil || !free {
		return err
	}
	err = dropDatabase(ctx, admin, name)
	_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", marked)
	return errors.Join(err, unlockErr)
}
