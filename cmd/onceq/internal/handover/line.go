package handover

import (
	"encoding/json"
	"fmt"

	"github.com/onceq/onceq/cmd/onceq/internal/member"
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

// Template makes the lines of one input into requests.
type Template struct {
	Request   queue.Request // what all have in common
	Admission func(key string) queue.Admission
	KeyField  member.Path
	TypeField member.Path // nil when the type is in Request
}

// Check finds what is wrong with the common part, which no line can mend.
func (t Template) Check() error {
	req := t.Request
	if t.TypeField != nil {
		req.Type = "any"
	}
	req.Admission = t.Admission("any")
	_, err := req.Fingerprint()
	return err
}

// line makes a request of the text of a line. The whole text is the payload,
// as it stands.
func (t Template) line(text []byte) line {
	l := line{size: len(text), request: t.Request}
	l.request.Payload = json.RawMessage(text)
	l.key, l.wrong = t.KeyField.Text(text)
	if l.wrong == nil && t.TypeField != nil {
		l.request.Type, l.wrong = t.TypeField.Name(text)
	}
	if l.wrong != nil {
		// In what is no JSON at all there is no member to be missed.
		if _, err := (queue.Request{Type: "any", Payload: l.request.Payload}).Fingerprint(); err != nil {
			l.wrong = err
		}
		return l
	}
	l.request.Admission = t.Admission(l.key)
	return l
}

func tooLong(size, most int) error {
	return fmt.Errorf("%d bytes; a line may have at most %d", size, most)
}
