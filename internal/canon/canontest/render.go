package canontest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// render writes the value as a JSON text in one of its many spellings.
func render(r *rand.Rand, v value) []byte {
	return space(r, appendValue(r, space(r, nil), v))
}

func appendValue(r *rand.Rand, dst []byte, v value) []byte {
	switch v.kind {
	case kindNull:
		return append(dst, "null"...)
	case kindTrue:
		return append(dst, "true"...)
	case kindFalse:
		return append(dst, "false"...)
	case kindNumber:
		return append(dst, spelled(r, v.number)...)
	case kindString:
		return appendString(r, dst, v.text)
	case kindArray:
		dst = space(r, append(dst, '['))
		for i, element := range v.elements {
			if i > 0 {
				dst = space(r, append(dst, ','))
			}
			dst = space(r, appendValue(r, dst, element))
		}
		return append(dst, ']')
	default:
		dst = space(r, append(dst, '{'))
		for i, m := range withReplaced(r, v.members) {
			if i > 0 {
				dst = space(r, append(dst, ','))
			}
			dst = space(r, appendString(r, dst, m.name))
			dst = space(r, append(dst, ':'))
			dst = space(r, appendValue(r, dst, m.value))
		}
		return append(dst, '}')
	}
}

// withReplaced returns the members in random order, with some more among them
// that lose to a later one of the same name.
func withReplaced(r *rand.Rand, members []member) []member {
	members = slices.Clone(members)
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	for i := 0; i < len(members); i++ {
		for r.IntN(6) == 0 {
			lost := member{members[i].name, randomNested(r, r.IntN(2))}
			members = slices.Insert(members, r.IntN(i+1), lost)
			i++
		}
	}
	return members
}

// space appends white space, often none.
func space(r *rand.Rand, dst []byte) []byte {
	for r.IntN(5) == 0 {
		dst = append(dst, " \t\n\r"[r.IntN(4)])
	}
	return dst
}

// short holds the code points that have an escape of two characters.
var short = map[rune]string{
	'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`,
}

// appendString appends the string with each code point as itself, as a short
// escape or as a long one.
func appendString(r *rand.Rand, dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		bare := c >= ' ' && c != '"' && c != '\\'
		brief, hasBrief := short[c]
		switch choice := r.IntN(6); {
		case bare && choice < 4:
			dst = append(dst, string(c)...)
		case hasBrief && choice < 5:
			dst = append(dst, brief...)
		default:
			for _, unit := range utf16.Encode([]rune{c}) {
				format := `\u%04x`
				if r.IntN(2) == 0 {
					format = `\u%04X`
				}
				dst = fmt.Appendf(dst, format, unit)
			}
		}
	}
	return append(dst, '"')
}

// spelled writes the number with its point anywhere, with zeros that change
// nothing, and with or without an exponent.
func spelled(r *rand.Rand, n number) string {
	sign := ""
	if n.negative || n.digits == "" && r.IntN(3) == 0 {
		sign = "-"
	}
	if n.digits == "" {
		return sign + []string{"0", "0.0", "0e0", "0E+7", "0.000e-3", "0e-16383", "0e131072", "0e1073741822"}[r.IntN(8)]
	}

	// Zeros after the last digit count in numeric's scale.
	digits := n.digits
	if r.IntN(3) == 0 {
		digits += strings.Repeat("0", min(1+r.IntN(5), max(0, largestScale-n.scale())))
	}
	point := r.IntN(len(digits)+8) - 4
	if near := n.exponent + 1; -8 < near && near < 30 && r.IntN(2) == 0 {
		point = near // no exponent needed
	}
	if n.scale() > largestScale-10 {
		point = min(point, len(digits)) // zeros before the point would cost scale
	}

	var whole, fraction string
	switch {
	case point <= 0:
		whole, fraction = "0", strings.Repeat("0", -point)+digits
	case point >= len(digits):
		whole = digits + strings.Repeat("0", point-len(digits))
	default:
		whole, fraction = digits[:point], digits[point:]
	}
	spelling := sign + whole
	if fraction != "" {
		spelling += "." + fraction
	}
	if exponent := n.exponent + 1 - point; exponent != 0 || r.IntN(4) == 0 {
		spelling += spelledExponent(r, exponent)
	}
	return spelling
}

// spelledExponent writes the exponent, perhaps with a plus and leading zeros.
func spelledExponent(r *rand.Rand, exponent int) string {
	spelling := string("eE"[r.IntN(2)])
	switch {
	case exponent < 0:
		spelling += "-"
	case exponent > 0 && r.IntN(2) == 0:
		spelling += "+"
	}
	if r.IntN(4) == 0 {
		spelling += "00"
	}
	return spelling + strconv.Itoa(max(exponent, -exponent))
}
