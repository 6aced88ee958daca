package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/onceq/onceq/internal/canon"
)

const jsonNull = "null"

// encodePayload gives the JSON text that is stored for a payload and its
// canonical form, which is equal for two payloads exactly when PostgreSQL finds
// them equal as jsonb. most bounds the text in bytes. Errors never show the
// payload.
func encodePayload(payload any, most int) (text string, canonical []byte, err error) {
	switch v := payload.(type) {
	case nil:
		text = jsonNull
	case json.RawMessage:
		if text = string(v); v == nil {
			text = jsonNull
		}
	default:
		if text, err = marshal(v); err != nil {
			return "", nil, err
		}
	}
	if len(text) > most {
		return "", nil, fmt.Errorf("%d bytes of JSON; allowed are at most %d", len(text), most)
	}
	if canonical, err = canon.Append(nil, text); err != nil {
		return "", nil, err
	}
	return text, canonical, nil
}

// marshal encodes a Go value without escaping HTML characters. encoding/json
// puts U+FFFD in the place of invalid UTF-8, which could make two different
// values one; that is refused here.
func marshal(v any) (string, error) {
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", hideValue(err)
	}
	text := strings.TrimSuffix(buf.String(), "\n")
	// The encoder writes a replacement as an escape, and a true U+FFFD as itself; under
	// GOEXPERIMENT=jsonv2 it writes both as they are.
	if strings.Contains(text, `\ufffd`) || strings.Contains(text, "\ufffd") {
		return text, checkUTF8(reflect.ValueOf(v), 0)
	}
	return text, nil
}

// hideValue keeps what encoding/json says about types and drops what could
// quote the value: the text of a type's own MarshalJSON or MarshalText.
func hideValue(err error) error {
	var unsupported *json.UnsupportedTypeError
	var own *json.MarshalerError
	switch {
	case errors.As(err, &own):
		return fmt.Errorf("the type %s could not encode itself as JSON", own.Type)
	case errors.As(err, &unsupported):
		return fmt.Errorf("the type %s can't be encoded as JSON", unsupported.Type)
	}
	return errors.New("a value that JSON can't hold: NaN, an infinity or a cycle")
}
