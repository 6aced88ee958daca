package canon

import (
	"slices"
	"sync"
)

// scanner reads a text once, from left to right, and writes the form of what it
// reads. Only the members of objects are still in the order of the text when it
// is done; appendForm gives the form with all of them in their places.
type scanner struct {
	written int // digits that PostgreSQL would write out for the numbers so far
	text    string
	pos     int // of the next byte to read
	depth   int // arrays and objects now open

	form     []byte
	open     []member // members of the objects now open, those of the innermost last
	unsorted []object // finished objects with members to move or to drop
	kept     []member // what those objects shall hold, each object's in its order
}

// room is what a scanner needs for a usual payload.
type room struct {
	scanner  scanner
	form     []byte
	open     [24]member
	unsorted [6]object
	kept     [24]member
}

// rooms are used again, the form's too while it is no longer than mostForm.
var rooms = sync.Pool{New: func() any { return new(room) }}

const mostForm = 64 << 10

func (r *room) scan(text string) *scanner {
	// A form is seldom longer than its text.
	r.scanner = scanner{text: text, form: slices.Grow(r.form, len(text)+64), open: r.open[:0], unsorted: r.unsorted[:0], kept: r.kept[:0]}
	return &r.scanner
}

func (r *room) free() {
	if form := r.scanner.form[:0]; cap(form) <= mostForm {
		r.form = form
	}
	r.scanner = scanner{}
	rooms.Put(r)
}

// document reads the whole text as one value.
func (s *scanner) document() error {
	s.space()
	if err := s.value(); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.text) {
		return s.fail(reasonTrailing)
	}
	return nil
}

// value reads one value, which must begin right here.
func (s *scanner) value() error {
	switch c := s.peek(); c {
	case '"':
		_, err := s.string()
		return err
	case '{':
		return s.object()
	case '[':
		return s.array()
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	case 't':
		return s.literal("true", tagTrue)
	case 'f':
		return s.literal("false", tagFalse)
	case 'n':
		return s.literal("null", tagNull)
	default:
		return s.fail(reasonValue)
	}
}

// literal reads one of the three words of JSON.
func (s *scanner) literal(word string, tag byte) error {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.fail(reasonValue)
		}
		s.pos++
	}
	s.form = append(s.form, tag)
	return nil
}

// array reads an array.
func (s *scanner) array() error {
	if err := s.enter(); err != nil {
		return err
	}
	s.form = append(s.form, tagArray)
	s.space()
	if s.peek() != ']' {
		for {
			if err := s.value(); err != nil {
				return err
			}
			s.space()
			if s.peek() != ',' {
				break
			}
			s.pos++
			s.space()
		}
		if s.peek() != ']' {
			return s.fail(reasonArray)
		}
	}
	s.leave()
	s.form = append(s.form, tagArrayEnd)
	return nil
}

// enter steps over an opening bracket or brace.
func (s *scanner) enter() error {
	if s.depth == MaxDepth {
		return s.fail(reasonDepth)
	}
	s.depth++
	s.pos++
	return nil
}

// leave steps over a closing bracket or brace.
func (s *scanner) leave() {
	s.depth--
	s.pos++
}

// space steps over white space. JSON has only these four kinds of it.
func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or zero at the end. A zero byte in the text cannot
// be mistaken for the end: it is allowed nowhere, and fail tells the two apart.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// fail returns an error about the next byte, or about its absence.
func (s *scanner) fail(reason string) error {
	if s.pos >= len(s.text) {
		reason = reasonEnd
	}
	return &Error{Offset: s.pos, Reason: reason}
}
