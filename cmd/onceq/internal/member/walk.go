package member

import (
	"bytes"
	"encoding/json"
)

// member returns the value of a member of a JSON object, as it stands in the
// text. Of members with one name the last one counts, as in PostgreSQL's jsonb.
// object tells whether the text is an object.
//
// It walks over the text without checking it, several times faster than a
// decoder: what is no JSON is refused by the library, which reads every
// payload, whatever was found in it here.
func member(text []byte, name string) (value []byte, found, object bool) {
	w := walker{text: text}
	if w.next() != '{' {
		return nil, false, false
	}
	w.at++
	for w.next() == '"' {
		memberName := w.value()
		if w.next() != ':' {
			break
		}
		w.at++
		w.next()
		v := w.value()
		if isName(memberName, name) {
			value, found = v, true
		}
		if w.next() != ',' {
			break
		}
		w.at++
	}
	return value, found, true
}

// isName tells whether a quoted name is the one wanted.
func isName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name
	}
	var s string
	return json.Unmarshal(quoted, &s) == nil && s == name
}

// walker is a place in a text that is taken to be JSON.
type walker struct {
	text []byte
	at   int
}

// next skips white space and returns the byte it stands on, 0 at the end.
func (w *walker) next() byte {
	for ; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// value skips the value it stands on and returns it.
func (w *walker) value() []byte {
	begin, depth := w.at, 0
	for w.at < len(w.text) {
		switch w.text[w.at] {
		case '"':
			w.skipString()
			if depth == 0 {
				return w.text[begin:w.at]
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return w.text[begin:w.at]
			}
			if depth--; depth == 0 {
				w.at++
				return w.text[begin:w.at]
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return w.text[begin:w.at]
			}
		}
		w.at++
	}
	return w.text[begin:]
}

// skipString goes behind the string that begins here.
func (w *walker) skipString() {
	for w.at++; ; {
		rest := w.text[w.at:]
		quote := bytes.IndexByte(rest, '"')
		if quote < 0 {
			w.at = len(w.text)
			return
		}
		slashes := 0
		for i := quote - 1; i >= 0 && rest[i] == '\\'; i-- {
			slashes++
		}
		w.at += quote + 1
		if slashes%2 == 0 {
			return
		}
	}
}
