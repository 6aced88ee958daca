package queue

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/onceq/onceq/internal/schemaname"
)

// Config configures a Client. The zero value is useful.
type Config struct {
	// Schema is the PostgreSQL schema of the queue's tables: a lower-case
	// identifier of at most 63 bytes that doesn't begin with pg_. Empty is
	// "onceq". Queues in different schemas know nothing of each other.
	Schema string
	// Logger receives what goes wrong in the background. Nil discards it.
	Logger *slog.Logger
	// KeySecret makes stored key hashes keyed BLAKE2b ones, so that a copy of the
	// database can't be searched for guessed keys: at least 16 bytes, the same in
	// every process. Empty stores plain SHA-256.
	KeySecret []byte
	// PreviousKeySecrets are secrets that live bindings may still stand under. A
	// request looks under all and writes under all, so processes that share any
	// one of them agree on a key while a secret is rotated. An empty one stands
	// for the time without a secret.
	PreviousKeySecrets [][]byte
	// MaxPayloadBytes bounds a payload's JSON text: at most 16 MiB. Zero is 1 MiB.
	MaxPayloadBytes int
	// PollOnly sends no notifications: workers find work by polling alone.
	PollOnly bool
	// Retention is how long ended jobs and events are kept.
	Retention Retention
}

func (cfg Config) check() error {
	var wrong problems
	if err := schemaname.Check(cfg.Schema); err != nil {
		wrong.add("Schema", "%v", err)
	}
	wrong.retention(cfg.Retention)
	wrong.number("MaxPayloadBytes", cfg.MaxPayloadBytes, 1, maxPayloadBytes)
	secret := func(field string, s []byte) {
		if len(s) > 0 && len(s) < minSecretBytes {
			wrong.add(field, "%d bytes; allowed are at least %d, or none", len(s), minSecretBytes)
		}
	}
	secret("KeySecret", cfg.KeySecret)
	seen := map[string]bool{string(cfg.KeySecret): true}
	for i, s := range cfg.PreviousKeySecrets {
		field := fmt.Sprintf("PreviousKeySecrets[%d]", i)
		secret(field, s)
		if seen[string(s)] {
			wrong.add(field, "the same secret twice")
		}
		seen[string(s)] = true
	}
	return wrong.err()
}

// hidden is a Config as it may be shown: secrets give only their number.
type hidden struct {
	Schema          string
	Secrets         int
	MaxPayloadBytes int
	PollOnly        bool
	Retention       Retention
}

func (cfg Config) hidden() hidden {
	h := hidden{Schema: cfg.Schema, MaxPayloadBytes: cfg.MaxPayloadBytes, PollOnly: cfg.PollOnly, Retention: cfg.Retention}
	for _, secret := range append([][]byte{cfg.KeySecret}, cfg.PreviousKeySecrets...) {
		if len(secret) > 0 {
			h.Secrets++
		}
	}
	return h
}

// Format shows the Config without its secrets, whatever the verb.
func (cfg Config) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%+v", cfg.hidden()) }

// LogValue shows the Config without its secrets.
func (cfg Config) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(cfg)) }

// MarshalJSON shows the Config without its secrets; it can't be read back.
func (cfg Config) MarshalJSON() ([]byte, error) { return json.Marshal(cfg.hidden()) }
