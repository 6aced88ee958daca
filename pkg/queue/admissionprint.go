package queue

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// shown is what printing an admission gives in place of the key. It has no
// digest: that needs the client's secret, and one made without it could be
// tested against guesses. Options are shown where they differ from the default.
type shown struct {
	Admission string `json:"admission"`
	Scope     string `json:"scope"`
	Preview   string `json:"preview"`
	Length    int    `json:"length"`
	Retention string `json:"retention"`
	Options   string `json:"options,omitempty"`
}

func (a admission) shown() shown {
	p, n := preview(a.key)
	return shown{Admission: a.mode.String(), Scope: a.scope, Preview: p, Length: n, Retention: a.retention.String(), Options: a.options()}
}

func (a admission) options() string {
	var options []string
	if a.release != ReleaseExpiry {
		options = append(options, "release "+a.release.String())
	}
	if a.hold {
		options = append(options, "hold")
	}
	if a.maxWait != 0 {
		options = append(options, "max wait "+a.maxWait.String())
	}
	if a.followUp {
		options = append(options, "follow up")
	}
	return strings.Join(options, ", ")
}

func (a admission) format(s fmt.State) {
	v := a.shown()
	fmt.Fprintf(s, "%s{key %q, %d characters, scope %q, %s", v.Admission, v.Preview, v.Length, v.Scope, v.Retention)
	if v.Options != "" {
		fmt.Fprintf(s, ", %s", v.Options)
	}
	fmt.Fprint(s, "}")
}

func (a admission) logValue() slog.Value {
	v := a.shown()
	attrs := []slog.Attr{slog.String("admission", v.Admission), slog.String("scope", v.Scope),
		slog.String("preview", v.Preview), slog.Int("length", v.Length), slog.String("retention", v.Retention)}
	if v.Options != "" {
		attrs = append(attrs, slog.String("options", v.Options))
	}
	return slog.GroupValue(attrs...)
}

// Format shows the admission without its key, whatever the verb.
func (a Idempotency) Format(s fmt.State, _ rune) { a.admission().format(s) }

// Format shows the admission without its key, whatever the verb.
func (a Debounce) Format(s fmt.State, _ rune) { a.admission().format(s) }

// Format shows the admission without its key, whatever the verb.
func (a Throttle) Format(s fmt.State, _ rune) { a.admission().format(s) }

// LogValue shows the admission without its key.
func (a Idempotency) LogValue() slog.Value { return a.admission().logValue() }

// LogValue shows the admission without its key.
func (a Debounce) LogValue() slog.Value { return a.admission().logValue() }

// LogValue shows the admission without its key.
func (a Throttle) LogValue() slog.Value { return a.admission().logValue() }

// MarshalJSON shows the admission without its key; it can't be read back.
func (a Idempotency) MarshalJSON() ([]byte, error) { return json.Marshal(a.admission().shown()) }

// MarshalJSON shows the admission without its key; it can't be read back.
func (a Debounce) MarshalJSON() ([]byte, error) { return json.Marshal(a.admission().shown()) }

// MarshalJSON shows the admission without its key; it can't be read back.
func (a Throttle) MarshalJSON() ([]byte, error) { return json.Marshal(a.admission().shown()) }
