package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/schema"
)

const templatePrefix = "onceq_tpl_"

// findTemplate returns the name of the database that holds the migrated, empty
// schema, and makes it if no other process has. Its name is made from what
// all migrations say, so that a changed one gets a new template.
func (s *Server) findTemplate(ctx context.Context) (string, error) {
	hash := schema.Hash()
	name := templatePrefix + hash[:min(len(hash), 32)]
	if err := s.mine.use(ctx, name); err != nil {
		return "", fmt.Errorf("pgtest: template %s: %w", name, err)
	}
	err := s.mine.alone(ctx, "make "+name, func() error { return s.makeTemplate(ctx, name) })
	if err != nil {
		return "", fmt.Errorf("pgtest: template %s: %w", name, err)
	}
	return name, nil
}

// makeTemplate migrates a database of our own, which gets the template's name
// only when it is complete.
func (s *Server) makeTemplate(ctx context.Context, name string) error {
	var exists bool
	err := s.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	draft := s.mine.prefix(false) + "_template"
	if err := s.copyDatabase(ctx, draft, emptyTemplate); err != nil {
		return err
	}
	if err := migrate(ctx, withDatabase(s.AdminURL, draft)); err != nil {
		return err
	}
	for _, change := range []string{
		"ALTER DATABASE " + quote(draft) + " RENAME TO " + quote(name),
		// Nobody changes it, and nobody's connection to it prevents a copy.
		"ALTER DATABASE " + quote(name) + " ALLOW_CONNECTIONS false",
	} {
		if _, err := s.admin.Exec(ctx, change); err != nil {
			return err
		}
	}
	return nil
}

func migrate(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return schema.Migrate(ctx, pool)
}
