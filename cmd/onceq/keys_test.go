package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	const key = "order-1001-confirmation-mail"
	s.run(exitOK, "keys", "show", "--scope", "orders", "--key", key)
	stdin := func(text string, args ...string) *command {
		return newCommand(t, s.url(), append([]string{"keys", "show", "--scope", "orders", "--key-file", "-"}, args...)...).reading(text)
	}
	s.runs(stdin(key), exitOK)
	s.runs(stdin(key+"\r\n", "--json"), exitOK)
	s.run(exitOK, "keys", "show", "--key", "document-77", "--json")
	s.runs(stdin(key+"\n\n"), exitRefused)
	s.runs(stdin("free", "--json"), exitRefused)
	s.runs(stdin(""), exitUsage)
	s.runs(stdin(strings.Repeat("x", 5000)), exitUsage)
	s.run(exitUsage, "keys", "show", "--scope", "orders")
	s.golden("keys.txt")
	if strings.Contains(s.shown.String(), key) {
		t.Error("a key is shown")
	}
}

// A key in the wrong place is refused, and not shown either.
func TestKeysBySlip(t *testing.T) {
	t.Parallel()
	const key = "order-1001-confirmation-mail"
	for _, args := range [][]string{
		{"keys", key}, {"keys", "-" + key}, {"keys", "show", key}, {"keys", "show", "-" + key}, {"keys", "show", "--" + key},
		{"keys", "show", "--scope", "orders", key}, {"keys", "show", "--key-file", "-", key},
	} {
		c := newCommand(t, "", args...).ends(t, exitUsage)
		if strings.Contains(c.stdout.String()+c.stderr.String(), key) {
			t.Errorf("%q shows the key:\n%s", args, c.stderr.String())
		}
	}
}

func TestKeysFromAFile(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	newCommand(t, s.url(), "keys", "show", "--scope", "orders", "--key-file", write(t, "order-1001-confirmation-mail\n")).ends(t, exitOK)
	newCommand(t, s.url(), "keys", "show", "--key-file", filepath.Join(t.TempDir(), "missing")).ends(t, exitUsage).oneError(t, "missing")
}

// Bindings are found under every secret of the environment.
func TestKeysWithSecrets(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	const old, now = "an older secret!", "the newest secret"
	newCommand(t, s.url(), "enqueue", "--type", "t", "--key-field", "id").with("ONCEQ_KEY_SECRET="+old).reading(`{"id":"k"}`).ends(t, exitOK)
	show := func(env ...string) *command {
		return newCommand(t, s.url(), "keys", "show", "--key", "k").with(env...)
	}
	show("ONCEQ_KEY_SECRET="+now, "ONCEQ_PREVIOUS_KEY_SECRETS="+old).ends(t, exitOK)
	show("ONCEQ_KEY_SECRET="+now).ends(t, exitRefused)
	show().ends(t, exitRefused)
}
