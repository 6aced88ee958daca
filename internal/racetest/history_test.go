package racetest

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

// keepHistory lets the database write down every committed change of a binding,
// in the order in which the changes of one key were made: a change of a key has
// to wait until the one before it has committed, and only then gets its number.
func keepHistory(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pgtest.Exec(t, pool, `
		CREATE TABLE history (
			n bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT clock_timestamp(), op text NOT NULL,
			key_hash bytea NOT NULL, old_job text, old_expires timestamptz, job text, accepts timestamptz, expires timestamptz);
		CREATE FUNCTION write_history() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF TG_OP = 'DELETE' THEN
				INSERT INTO history (op, key_hash, old_job, old_expires) VALUES (TG_OP, OLD.key_hash, OLD.job_id::text, OLD.expires_at);
			ELSIF TG_OP = 'INSERT' THEN
				INSERT INTO history (op, key_hash, job, accepts, expires) VALUES (TG_OP, NEW.key_hash, NEW.job_id::text, NEW.accepted_at, NEW.expires_at);
			ELSE
				INSERT INTO history (op, key_hash, old_job, old_expires, job, accepts, expires)
				VALUES (TG_OP, NEW.key_hash, OLD.job_id::text, OLD.expires_at, NEW.job_id::text, NEW.accepted_at, NEW.expires_at);
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER binding_history AFTER INSERT OR UPDATE OR DELETE ON onceq.binding FOR EACH ROW EXECUTE FUNCTION write_history()`)
}

// change is one row of the history. Absent texts are empty, absent times zero.
type change struct {
	Op      string
	At      time.Time
	Hash    []byte
	OldJob  string
	OldEnds time.Time
	Job     string
	Begins  time.Time
	Ends    time.Time
}

// judgeHistory wants that every key had at most one owner at each moment: an
// owner ends before the next one begins, and only when its time is over. It
// returns how often each job was bound, and how often a clean-up or a takeover
// ended an owner.
func judgeHistory(t testing.TB, pool *pgxpool.Pool) (owners map[string]int, ended map[string]int) {
	t.Helper()
	history := pgtest.Records[change](t, pool, `SELECT op, at, key_hash AS hash, coalesce(old_job, '') AS old_job, coalesce(old_expires, at) AS old_ends,
		coalesce(job, '') AS job, coalesce(accepts, at) AS begins, coalesce(expires, at) AS ends FROM history ORDER BY n`)
	owners, ended = map[string]int{}, map[string]int{}
	current := map[string]change{}
	for _, h := range history {
		key := hex.EncodeToString(h.Hash[:6])
		was, owned := current[key]
		if (h.Op != "INSERT") != owned || owned && was.Job != h.OldJob {
			t.Errorf("key %s: a %s finds the owner %q where the history has %q", key, h.Op, h.OldJob, was.Job)
		}
		if owned && h.Job != h.OldJob {
			ended[h.Op]++
			if h.At.Before(was.Ends) {
				t.Errorf("key %s: an owner keeps its key until its time is over: job %s was to own it until %s, and was ended by a %s at %s",
					key, was.Job, was.Ends, h.Op, h.At)
			}
		}
		if h.Op == "DELETE" {
			delete(current, key)
			continue
		}
		if h.Job != h.OldJob {
			owners[h.Job]++
		}
		current[key] = h
	}
	return owners, ended
}
