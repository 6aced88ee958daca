package canon

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string and returns how many bytes it has without its escapes.
// The text is known to be valid UTF-8.
func (s *scanner) string() (size int, err error) {
	s.pos++
	start, saved := s.pos, 0
	for {
		s.plain()
		switch s.peek() {
		case '"':
			raw := s.text[start:s.pos]
			s.pos++
			size = len(raw) - saved
			s.form = append(s.form, tagString)
			s.form = binary.AppendUvarint(s.form, uint64(size))
			if saved == 0 {
				s.form = append(s.form, raw...)
			} else {
				s.form = appendUnescaped(s.form, raw)
			}
			return size, nil
		case '\\':
			r, width, reason := escape(s.text[s.pos:])
			s.pos += width
			if reason != "" {
				return 0, s.fail(reason)
			}
			saved += width - utf8.RuneLen(r)
		default:
			return 0, s.fail(reasonControl)
		}
	}
}

// plain steps over what stands for itself inside a string: eight bytes at a time
// while none of them is a control character, a quote or a backslash, then one by one.
func (s *scanner) plain() {
	const ones = 0x0101010101010101
	text, at := s.text, s.pos
	for ; at+8 <= len(text); at += 8 {
		t := text[at : at+8]
		x := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		quote, backslash := x^'"'*ones, x^'\\'*ones // a byte is zero where it is one
		// Of a byte b below 128, b-n has its highest bit set when b is below n, or when
		// the byte beneath it borrows, which is below n then; for bytes from 128 on,
		// which are none of these, &^ clears the bit.
		if ((x-' '*ones)&^x|(quote-ones)&^quote|(backslash-ones)&^backslash)&(0x80*ones) != 0 {
			break
		}
	}
	for at < len(text) && text[at] >= ' ' && text[at] != '"' && text[at] != '\\' {
		at++
	}
	s.pos = at
}

// appendUnescaped appends the inside of a string without its escapes, which are
// known to be good.
func appendUnescaped(dst []byte, raw string) []byte {
	for {
		at := strings.IndexByte(raw, '\\')
		if at < 0 {
			return append(dst, raw...)
		}
		r, width, _ := escape(raw[at:])
		dst = utf8.AppendRune(append(dst, raw[:at]...), r)
		raw = raw[at+width:]
	}
}

// escape reads the escape at the start of text, or the two that make a surrogate
// pair. Width is its length, or where in it the reason applies if there is one.
func escape(text string) (r rune, width int, reason string) {
	if len(text) < 2 {
		return 0, len(text), reasonEnd
	}
	switch text[1] {
	case '"', '\\', '/':
		return rune(text[1]), 2, ""
	case 'b':
		return '\b', 2, ""
	case 'f':
		return '\f', 2, ""
	case 'n':
		return '\n', 2, ""
	case 'r':
		return '\r', 2, ""
	case 't':
		return '\t', 2, ""
	case 'u':
		return unicodeEscape(text)
	default:
		return 0, 1, reasonEscape
	}
}

// unicodeEscape is escape for text that begins with \u.
func unicodeEscape(text string) (r rune, width int, reason string) {
	r, good := hex(text[2:])
	if good < 4 {
		return 0, 2 + good, reasonHex
	}
	if r == 0 {
		return 0, 0, reasonNull
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, ""
	}
	if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
		low, good := hex(text[8:])
		if pair := utf16.DecodeRune(r, low); good == 4 && pair != utf8.RuneError {
			return pair, 12, ""
		}
	}
	return 0, 0, reasonSurrogate
}

// hex reads four hexadecimal digits, and returns how many of them are there.
func hex(text string) (r rune, good int) {
	for good < 4 && good < len(text) {
		c := text[good]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, good
		}
		r = r<<4 | rune(c)
		good++
	}
	return r, good
}
