package queue

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

// What printing an order gives: all of it, with a preview in place of the request
// id. The types have the fields and not the methods.
type (
	shownRedrive     RedriveRequest
	shownRedriveMany RedriveManyRequest
)

func shownID(id string) string {
	if id == "" {
		return ""
	}
	p, n := preview(id)
	return fmt.Sprintf("%s (%d characters)", p, n)
}

func (r RedriveRequest) shown() shownRedrive {
	r.RequestID = shownID(r.RequestID)
	return shownRedrive(r)
}

func (r RedriveManyRequest) shown() shownRedriveMany {
	r.RequestID, r.Progress = shownID(r.RequestID), nil
	return shownRedriveMany(r)
}

// Format shows the order without its request id, whatever the verb.
func (r RedriveRequest) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%+v", r.shown()) }

// Format shows the order without its request id, whatever the verb.
func (r RedriveManyRequest) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%+v", r.shown()) }

// LogValue shows the order without its request id.
func (r RedriveRequest) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(r)) }

// LogValue shows the order without its request id.
func (r RedriveManyRequest) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(r)) }

// MarshalJSON shows the order without its request id; it can't be read back.
func (r RedriveRequest) MarshalJSON() ([]byte, error) { return json.Marshal(r.shown()) }

// MarshalJSON shows the order without its request id; it can't be read back.
func (r RedriveManyRequest) MarshalJSON() ([]byte, error) { return json.Marshal(r.shown()) }
