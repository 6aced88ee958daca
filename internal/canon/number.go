package canon

import (
	"encoding/binary"
	"math"
	"strings"
)

// The bounds of PostgreSQL's numeric without a declared precision.
const (
	maxExponent = 131071 // the power of ten of the first digit
	maxScale    = 16383  // digits after the point, zeros included

	// An exponent this large is refused even where it would change nothing, as
	// in a zero. PostgreSQL 15 refuses this one, 16 only the next.
	exponentLimit = math.MaxInt32 / 2

	// PostgreSQL writes a number out without an exponent: the 8 bytes of 1e131071
	// come back as 131,072 digits. It takes texts of which it can't give back
	// what it would have to write; those, and the merely ruinous, are refused.
	maxWritten = MaxText
)

// number reads a number.
func (s *scanner) number() error {
	start, tag := s.pos, byte(tagPositive)
	if s.peek() == '-' {
		tag = tagNegative
		s.pos++
	}
	whole, err := s.digits()
	if err != nil {
		return err
	}
	if whole[0] == '0' && len(whole) > 1 {
		s.pos -= len(whole)
		return s.fail(reasonLeadingZero)
	}
	fraction := ""
	if s.peek() == '.' {
		s.pos++
		if fraction, err = s.digits(); err != nil {
			return err
		}
	}
	exponent := 0
	if c := s.peek(); c == 'e' || c == 'E' {
		if exponent, err = s.exponent(); err != nil {
			return err
		}
	}

	// An exponent at its limit needs no look at the digits, and far below it
	// nothing here can overflow: a text has no more digits than MaxText.
	if exponent >= exponentLimit || exponent <= -exponentLimit {
		return &Error{Offset: start, Reason: reasonNumeric}
	}
	if len(fraction)-exponent > maxScale {
		return &Error{Offset: start, Reason: reasonNumericDecimal}
	}
	scale := max(len(fraction)-exponent, 0)
	whole, fraction, first := significant(whole, fraction)
	zero := len(whole)+len(fraction) == 0
	if !zero && first+exponent > maxExponent {
		return &Error{Offset: start, Reason: reasonNumeric}
	}
	s.written += scale
	if !zero {
		s.written += max(first+exponent, 0)
	}
	if s.written > maxWritten {
		return &Error{Offset: start, Reason: reasonWritten}
	}
	if zero {
		s.form = append(s.form, tagZero)
		return nil
	}
	s.form = append(s.form, tag)
	s.form = binary.AppendVarint(s.form, int64(first+exponent))
	s.form = binary.AppendUvarint(s.form, uint64(len(whole)+len(fraction)))
	s.form = append(append(s.form, whole...), fraction...)
	return nil
}

// significant cuts the zeros off both ends of a number's digits. First is the
// power of ten of the first digit left; a zero has no digits left.
func significant(whole, fraction string) (w, f string, first int) {
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) == 0 {
		first = len(whole) - 1
		return strings.TrimRight(whole, "0"), "", first
	}
	if whole[0] != '0' {
		return whole, fraction, len(whole) - 1
	}
	digits := strings.TrimLeft(fraction, "0")
	return "", digits, len(digits) - len(fraction) - 1
}

// exponent reads the exponent of a number. What is beyond exponentLimit comes
// back as that, however many digits it has.
func (s *scanner) exponent() (int, error) {
	s.pos++
	sign := 1
	switch s.peek() {
	case '-':
		sign = -1
		s.pos++
	case '+':
		s.pos++
	}
	digits, err := s.digits()
	if err != nil {
		return 0, err
	}
	n := int64(0) // where int has 32 bits, ten times the limit would not fit
	for i := range len(digits) {
		n = min(n*10+int64(digits[i]-'0'), exponentLimit)
	}
	return sign * int(n), nil
}

// digits reads one or more digits.
func (s *scanner) digits() (string, error) {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	if s.pos == start {
		return "", s.fail(reasonDigit)
	}
	return s.text[start:s.pos], nil
}
