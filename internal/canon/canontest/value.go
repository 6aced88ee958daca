package canontest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
)

// value is a JSON value as jsonb sees it: what jsonb ignores is not in it.
type value struct {
	kind     kind
	number   number
	text     string
	elements []value
	members  []member // sorted by name, no name twice
}

type kind int

const (
	kindNull kind = iota
	kindTrue
	kindFalse
	kindNumber
	kindString
	kindArray
	kindObject
)

type member struct {
	name  string
	value value
}

// equal reports whether jsonb would find the two equal. Nothing here is clever:
// both have only one way to be what they are.
func (v value) equal(other value) bool {
	return v.kind == other.kind && v.number == other.number && v.text == other.text &&
		slices.EqualFunc(v.elements, other.elements, value.equal) &&
		slices.EqualFunc(v.members, other.members, func(a, b member) bool {
			return a.name == b.name && a.value.equal(b.value)
		})
}

// number is a decimal number. Zero has no digits and nothing else set.
type number struct {
	negative bool
	digits   string // no zero at either end
	exponent int    // the power of ten of the first digit
}

// The bounds of PostgreSQL's numeric. They are written here again, so that a
// slip in package canon cannot hide in the test.
const (
	largestExponent = 131071
	largestScale    = 16383
)

// scale returns how many digits after the point the number needs.
func (n number) scale() int { return max(0, len(n.digits)-1-n.exponent) }

// fits reports whether numeric can hold the number.
func (n number) fits() bool {
	return n.exponent <= largestExponent && n.scale() <= largestScale
}

// normal returns the number without zeros at either end of its digits.
func (n number) normal() number {
	short := strings.TrimLeft(n.digits, "0")
	n.exponent -= len(n.digits) - len(short)
	n.digits = strings.TrimRight(short, "0")
	if n.digits == "" {
		return number{}
	}
	return n
}

// object returns an object with the members in order; of those with one name it
// has the last.
func object(members []member) value {
	members = slices.Clone(members)
	slices.Reverse(members)
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	members = slices.CompactFunc(members, func(a, b member) bool { return a.name == b.name })
	return value{kind: kindObject, members: members}
}

// randomValue returns a value of a size that a person can still read.
func randomValue(r *rand.Rand) value { return randomNested(r, r.IntN(5)) }

// randomNested returns a value with at most that many levels of arrays and
// objects.
func randomNested(r *rand.Rand, levels int) value {
	if levels > 0 && r.IntN(4) > 0 {
		size := r.IntN(6)
		if r.IntN(40) == 0 {
			size = r.IntN(40) // more than the usual payload, for other ways to sort
		}
		if r.IntN(3) == 0 {
			elements := make([]value, size)
			for i := range elements {
				elements[i] = randomNested(r, levels-1)
			}
			return value{kind: kindArray, elements: elements}
		}
		members := make([]member, size)
		for i := range members {
			members[i] = member{randomString(r), randomNested(r, levels-1)}
		}
		return object(members)
	}
	switch r.IntN(8) {
	case 0:
		return value{kind: kindNull}
	case 1:
		return value{kind: kindTrue}
	case 2:
		return value{kind: kindFalse}
	case 3, 4:
		return value{kind: kindString, text: randomString(r)}
	default:
		return value{kind: kindNumber, number: randomNumber(r)}
	}
}

// alphabet holds code points that JSON escapes, that normalisation or a locale
// would confuse, that end a range of UTF-8 or UTF-16, and some plain ones that
// also occur inside escapes.
var alphabet = []rune("aAbu0e18dé\u0301\u00c5\u212bßſıİ\"\\/\b\f\n\r\t\x01\x1f\x7f\u0080\u07ff\u0800" +
	"\u00a0\u2028\ud7ff\ue000\ufeff\ufffd\ufffe\uffff\U00010000\U0001f600\U0010ffff日 ")

// randomString returns a string that is often short, so that names collide and
// are prefixes of each other.
func randomString(r *rand.Rand) string {
	length := r.IntN(4)
	if r.IntN(10) == 0 {
		length = r.IntN(200) // past the lengths that one byte counts
	}
	text := make([]rune, length)
	for i := range text {
		text[i] = alphabet[r.IntN(len(alphabet))]
		if r.IntN(3) == 0 {
			text[i] = 'a'
		}
	}
	return string(text)
}

// randomNumber returns a number that numeric holds: small, long, or at the edge.
func randomNumber(r *rand.Rand) number {
	for {
		n := number{negative: r.IntN(2) == 0}
		switch r.IntN(8) {
		case 0:
			return number{}
		case 1: // more digits than a float64 has
			n.digits, n.exponent = randomDigits(r, 15+r.IntN(30)), r.IntN(60)-30
		case 2:
			n.digits, n.exponent = randomDigits(r, 1+r.IntN(4)), largestExponent-r.IntN(2)
		case 3:
			n.digits, n.exponent = randomDigits(r, 1+r.IntN(4)), -largestScale+r.IntN(4)
		case 4:
			n.digits, n.exponent = randomDigits(r, 1+r.IntN(12)), r.IntN(800)-400
		default:
			n.digits, n.exponent = randomDigits(r, 1+r.IntN(3)), r.IntN(6)-2
		}
		if n = n.normal(); n.fits() {
			return n
		}
	}
}

func randomDigits(r *rand.Rand, count int) string {
	digits := make([]byte, count)
	for i := range digits {
		digits[i] = byte('0' + r.IntN(10))
	}
	return string(digits)
}
