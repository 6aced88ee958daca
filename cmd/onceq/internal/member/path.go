// Package member finds members of JSON objects in their text, for keys and types.
package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Path leads to a member of a JSON object: data.object.id is the member
// id of the member object of the member data.
type Path []string

// ParsePath reads names separated by dots; \. is a dot in a name and \\
// a backslash.
func ParsePath(text string) (Path, error) {
	var path Path
	var name strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '.':
			path = append(path, name.String())
			name.Reset()
		case c == '\\' && i+1 < len(text) && (text[i+1] == '.' || text[i+1] == '\\'):
			i++
			name.WriteByte(text[i])
		default:
			name.WriteByte(c)
		}
	}
	path = append(path, name.String())
	for _, name := range path {
		if name == "" {
			return nil, fmt.Errorf("%q is no path to a member, such as id or data.object.id", text)
		}
	}
	return path, nil
}

func (p Path) String() string { return strings.Join(p, ".") }

var errNotObject = errors.New("not a JSON object")

// find returns the text of the member. The errors show nothing of the object:
// payloads are secret.
func (p Path) find(object []byte) ([]byte, error) {
	at := object
	for i, name := range p {
		value, found, isObject := member(at, name)
		switch {
		case !isObject && i == 0:
			return nil, errNotObject
		case !isObject:
			return nil, fmt.Errorf("%s is no object, so there is no %s", p[:i], p)
		case !found || len(value) == 0:
			return nil, fmt.Errorf("there is no %s", p)
		}
		at = value
	}
	return at, nil
}

// Text returns the member as the text of a key: a string's characters, and a
// number, true and false as they stand in the line.
func (p Path) Text(object []byte) (string, error) {
	value, err := p.find(object)
	if err != nil {
		return "", err
	}
	kind := "null"
	switch value[0] {
	case '"':
		return p.unquote(value)
	case '{':
		kind = "an object"
	case '[':
		kind = "an array"
	case 'n':
	default:
		return string(value), nil
	}
	return "", fmt.Errorf("%s is %s; a string, a number, true or false is needed", p, kind)
}

// Name returns the member as a name, which only a string can be.
func (p Path) Name(object []byte) (string, error) {
	value, err := p.find(object)
	if err != nil {
		return "", err
	}
	if value[0] != '"' {
		return "", fmt.Errorf("%s is no string", p)
	}
	return p.unquote(value)
}

func (p Path) unquote(value []byte) (string, error) {
	var s string
	if end := len(value) - 1; end > 0 && value[end] == '"' && bytes.IndexByte(value, '\\') < 0 {
		s = string(value[1:end])
	} else if err := json.Unmarshal(value, &s); err != nil {
		return "", fmt.Errorf("%s is no JSON string", p)
	}
	if s == "" {
		return "", fmt.Errorf("%s is empty", p)
	}
	return s, nil
}
