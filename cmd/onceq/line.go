package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onceq/onceq/pkg/queue"
)

// line is a line of the input as a request, or the reason why it is none.
type line struct {
	number  int
	read    int64 // bytes of the input up to and with this line
	size    int
	key     string
	request queue.Request
	wrong   error
}

// template makes the lines of one input into requests.
type template struct {
	request   queue.Request // what all have in common
	admission func(key string) queue.Admission
	keyField  memberPath
	typeField memberPath // nil when the type is in request
}

// check finds what is wrong with the common part, which no line can mend.
func (t template) check() error {
	req := t.request
	if t.typeField != nil {
		req.Type = "any"
	}
	req.Admission = t.admission("any")
	_, err := req.Fingerprint()
	return err
}

// line makes a request of the text of a line. The whole text is the payload,
// as it stands.
func (t template) line(text []byte) line {
	l := line{size: len(text), request: t.request}
	l.request.Payload = json.RawMessage(text)
	l.key, l.wrong = t.keyField.text(text)
	if l.wrong == nil && t.typeField != nil {
		l.request.Type, l.wrong = t.typeField.name(text)
	}
	if l.wrong != nil {
		// In what is no JSON at all there is no member to be missed.
		if _, err := (queue.Request{Type: "any", Payload: l.request.Payload}).Fingerprint(); err != nil {
			l.wrong = err
		}
		return l
	}
	l.request.Admission = t.admission(l.key)
	return l
}

// reason is what an error of the library says about a request, without the
// words that every such error begins with.
func reason(err error) string {
	if wrapped, ok := errors.AsType[*queue.RequestError](err); ok {
		err = wrapped.Err
	}
	_, text, found := strings.Cut(err.Error(), queue.ErrInvalidRequest.Error()+": ")
	if !found {
		return err.Error()
	}
	return text
}

func tooLong(size, most int) error {
	return fmt.Errorf("%d bytes; a line may have at most %d", size, most)
}
