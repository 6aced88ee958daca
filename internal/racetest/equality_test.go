package racetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/canon/canontest"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// verdict is what PostgreSQL says about a pair: whether each is jsonb, why not,
// and whether they are equal. Written is the length of the longer one when
// PostgreSQL writes it out.
type verdict struct {
	AValid, BValid bool
	AWhy, BWhy     string
	Equal          bool
	Written        int64
}

// oracle asks PostgreSQL about pairs, thousands in one statement. A function
// catches what PostgreSQL 15, which has no pg_input_is_valid, would raise; texts
// travel as bytes, since they need not be valid UTF-8.
type oracle struct{ pool *pgxpool.Pool }

func newOracle(t testing.TB, pool *pgxpool.Pool) oracle {
	t.Helper()
	pgtest.Exec(t, pool, `CREATE FUNCTION read_jsonb(text bytea, OUT value jsonb, OUT valid boolean, OUT why text) LANGUAGE plpgsql AS $$
		BEGIN
			value := convert_from(text, 'UTF8')::jsonb;
			valid := true;
			why := '';
		EXCEPTION WHEN OTHERS THEN
			value := NULL;
			valid := false;
			why := SQLSTATE || ' ' || SQLERRM;
		END $$`)
	return oracle{pool}
}

func (o oracle) ask(ctx context.Context, pairs []pair) ([]verdict, error) {
	as, bs := make([][]byte, len(pairs)), make([][]byte, len(pairs))
	for i, p := range pairs {
		as[i], bs[i] = whole(p.a), whole(p.b)
	}
	rows, err := o.pool.Query(ctx, `SELECT a.valid, b.valid, a.why, b.why, coalesce(a.value = b.value, false),
			coalesce(greatest(octet_length(a.value::text), octet_length(b.value::text)), 0)
		FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS p (a, b, n), read_jsonb(p.a) AS a, read_jsonb(p.b) AS b ORDER BY p.n`, as, bs)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var verdicts []verdict
	for rows.Next() {
		var v verdict
		if err := rows.Scan(&v.AValid, &v.BValid, &v.AWhy, &v.BWhy, &v.Equal, &v.Written); err != nil {
			return nil, err
		}
		verdicts = append(verdicts, v)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(verdicts) != len(pairs) {
		return nil, fmt.Errorf("%d verdicts for %d pairs", len(verdicts), len(pairs))
	}
	return verdicts, nil
}

// disagreement says in what Request.Fingerprint and PostgreSQL differ about a
// pair; nil if in nothing.
func disagreement(p pair, v verdict) error {
	a, aErr := fingerprint(p.a)
	b, bErr := fingerprint(p.b)
	if err := errors.Join(
		acceptance("the first", p.a, aErr, v.AValid, v.AWhy, v.Written),
		acceptance("the second", p.b, bErr, v.BValid, v.BWhy, v.Written),
	); err != nil {
		return err
	}
	if aErr != nil || bErr != nil {
		return nil
	}
	diff := a.Diff(b)
	switch {
	case v.Equal && (a != b || len(diff) != 0):
		return fmt.Errorf("PostgreSQL finds the two equal, their fingerprints differ in %v", diff)
	case !v.Equal && !slices.Equal(diff, []queue.Field{queue.FieldPayload}):
		return fmt.Errorf("PostgreSQL finds the two different, their fingerprints differ in %v, want [payload]", diff)
	}
	return nil
}

func fingerprint(text []byte) (queue.Fingerprint, error) {
	return queue.Request{Type: "t", Payload: json.RawMessage(whole(text))}.Fingerprint()
}

// whole is the text, never nil: nil means NULL to a driver, and JSON null to us.
func whole(text []byte) []byte {
	if text == nil {
		return []byte{}
	}
	return text
}

// acceptance wants that a text is refused when PostgreSQL refuses it, and only
// then or because of one of our own bounds.
func acceptance(which string, text []byte, err error, valid bool, why string, written int64) error {
	switch {
	case err == nil && !valid:
		return fmt.Errorf("%s is taken, but PostgreSQL refuses it: %s", which, why)
	case err != nil && !errors.Is(err, queue.ErrInvalidRequest):
		return fmt.Errorf("%s is refused without ErrInvalidRequest: %w", which, err)
	case err != nil && valid && !beyondOurBounds(text, written):
		return fmt.Errorf("%s is refused, but PostgreSQL takes it: %w", which, err)
	}
	return nil
}

// beyondOurBounds tells that a text passes a bound of our own: 16 MiB, 10,000
// levels, 32 MiB when PostgreSQL writes it out, or an exponent that PostgreSQL 15
// refuses and later ones take before a zero.
func beyondOurBounds(text []byte, written int64) bool {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return len(text) > 16<<20 || deepest > 10000 || written > 32<<20 || strings.Contains(strings.ToLower(string(text)), "e1073741823")
}

// compare holds pairs against PostgreSQL, in portions.
func (o oracle) compare(t *testing.T, count int, next func() pair) {
	t.Helper()
	equal, refused := 0, 0
	for done := 0; done < count; {
		var portion []pair
		for size := 0; len(portion) < 2000 && done+len(portion) < count && size < 16<<20; {
			p := next()
			portion = append(portion, p)
			size += len(p.a) + len(p.b)
		}
		done += len(portion)
		verdicts, err := o.ask(t.Context(), portion)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range verdicts {
			if err := disagreement(portion[i], v); err != nil {
				t.Errorf("%v:\n  %s\n  %s", err, excerpt(portion[i].a), excerpt(portion[i].b))
			}
			if v.Equal {
				equal++
			}
			if !v.AValid || !v.BValid {
				refused++
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pairs: %d equal, %d with a text that is not jsonb", count, equal, refused)
}

func excerpt(text []byte) string {
	if len(text) <= 300 {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%.150q ... %.150q (%d bytes)", text[:150], text[len(text)-150:], len(text))
}

// Two payloads are the same exactly when PostgreSQL finds the jsonb values equal,
// and a payload is taken exactly when PostgreSQL takes it, within our bounds.
func TestFingerprint_payloadEqualityIsPostgreSQLs(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	o := newOracle(t, pool)

	for _, source := range []struct {
		name string
		seed uint64
	}{{"from a fixed seed", 20261130}, {"from a random seed", newSeed(t)}} {
		r := random(t, source.seed, 0)
		u := universe{r}
		t.Run("pairs of canontest "+source.name, func(t *testing.T) {
			o.compare(t, pgtest.Rounds(8000), func() pair { return generated(r) })
		})
		t.Run("pairs of few values in many spellings "+source.name, func(t *testing.T) {
			o.compare(t, pgtest.Rounds(8000), u.pair)
		})
		t.Run("texts with a fault that is easily missed "+source.name, func(t *testing.T) {
			o.compare(t, pgtest.Rounds(3000), func() pair {
				if r.IntN(2) == 0 {
					return pair{canontest.Near(r), canontest.Near(r)}
				}
				return pair{u.doubt(), u.doubt()}
			})
		})
	}

	t.Run("every spelling against every spelling", func(t *testing.T) {
		var all [][]byte
		for _, line := range spellings {
			for _, text := range line {
				all = append(all, []byte(text))
			}
		}
		i := -1
		o.compare(t, len(all)*len(all), func() pair {
			i++
			return pair{all[i/len(all)], all[i%len(all)]}
		})
	})
	t.Run("every doubtful spelling alone", func(t *testing.T) {
		i := -1
		o.compare(t, len(doubtful), func() pair {
			i++
			return pair{[]byte(doubtful[i]), []byte("[" + doubtful[i] + "]")}
		})
	})
	t.Run("nesting up to our bound", func(t *testing.T) {
		u := universe{rand.New(rand.NewPCG(1, 1))}
		depths := []int{1, 100, 3000, 9999, 10000, 10001, 12000}
		i := -1
		o.compare(t, len(depths), func() pair {
			i++
			text := u.deep(depths[i])
			return pair{text, append([]byte(" "), text...)}
		})
	})
}
