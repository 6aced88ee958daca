// Package canon gives every JSON value one spelling, so that two texts can be
// compared, or their digests, as PostgreSQL compares them.
//
// Two texts have the same canonical form exactly when PostgreSQL finds
// a::jsonb = b::jsonb. Member order and white space do not matter; the last of
// several members with one name wins; numbers compare as numeric, so 1, 1.0 and
// 1e0 are one number, -0 is 0 and every digit counts; strings compare code point
// by code point after their escapes are resolved, without Unicode
// normalisation. A text that jsonb refuses is refused here, before it costs a
// round trip.
//
// # The form
//
// The form is stored: databases hold digests of it. It never changes. A
// different form is a new version, under a new name, and whoever stores a digest
// marks it with the version that made it. The vectors in testdata pin this one.
//
// Every value begins with a tag of one byte, and no value's form is a prefix of
// another's:
//
//	n                     null
//	t                     true
//	f                     false
//	0                     the number zero
//	+ exponent digits     a number above zero
//	- exponent digits     a number below zero
//	s length bytes        a string
//	[ value ... ]         an array: its elements in order
//	{ name value ... }    an object: its members, each name in the form of a string
//
// A length is the count of the bytes that follow, written as
// [encoding/binary.AppendUvarint] does. A string's bytes are its UTF-8 after all
// escapes are resolved. The digits of a number are a length and then the digits
// in ASCII, without zeros at either end; the exponent, written as
// [encoding/binary.AppendVarint] does, is the power of ten that the first digit
// counts, so 1200 is 12 with exponent 3 and 0.05 is 5 with exponent -2. The
// members of an object are sorted by the bytes of their names and no name comes
// twice.
package canon

import (
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxText is the length in bytes of the longest text that Append takes. A
	// text of that length cannot meet PostgreSQL's own limits on the size of an
	// array, an object or a string inside jsonb; a longer one can.
	MaxText = 32 << 20

	// MaxDepth is how many arrays and objects may be open at once. PostgreSQL
	// has no such number, but its default stack ends not far behind.
	MaxDepth = 10000
)

// The tags that begin or end a value. They are part of the stored form.
const (
	tagNull      = 'n'
	tagTrue      = 't'
	tagFalse     = 'f'
	tagZero      = '0'
	tagPositive  = '+'
	tagNegative  = '-'
	tagString    = 's'
	tagArray     = '['
	tagArrayEnd  = ']'
	tagObject    = '{'
	tagObjectEnd = '}'
)

// Append appends the canonical form of text to dst and returns the longer slice.
//
// The text must be one JSON value that jsonb can hold: RFC 8259 in valid UTF-8
// without a byte order mark, at most MaxText bytes, nested at most MaxDepth deep,
// without \u0000 and without unpaired surrogate escapes, its numbers within
// PostgreSQL's numeric and, written out without exponents, within MaxText digits
// together (the one bound that jsonb does not have: it stores what it then can't
// give back). Otherwise Append returns dst as it was and an *Error.
//
// Time grows with the length of the text and the logarithm of its member count,
// memory with the length alone, whatever the text says. It is safe for concurrent
// use as long as the callers' dst do not overlap each other.
func Append(dst []byte, text string) ([]byte, error) {
	if len(text) > MaxText {
		return dst, &Error{Offset: MaxText, Reason: reasonTooLong}
	}
	if strings.HasPrefix(text, "\ufeff") {
		return dst, &Error{Offset: 0, Reason: reasonByteOrderMark}
	}
	if !utf8.ValidString(text) {
		return dst, &Error{Offset: invalidAt(text), Reason: reasonInvalidUTF8}
	}

	room := rooms.Get().(*room)
	defer room.free()
	s := room.scan(text)
	if err := s.document(); err != nil {
		return dst, err
	}
	return s.appendForm(slices.Grow(dst, len(s.form))), nil
}

// invalidAt returns the offset of the first byte that is not valid UTF-8.
func invalidAt(text string) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}
