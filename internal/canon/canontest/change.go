package canontest

import (
	"math/rand/v2"
	"slices"
	"unicode"
)

// changed returns a value that differs from v, mostly in one small thing.
func changed(r *rand.Rand, v value) value {
	for {
		if other := change(r, v); !v.equal(other) {
			return other
		}
	}
}

// change returns v with a change in it or in something that it holds. What comes
// back may be equal to v.
func change(r *rand.Rand, v value) value {
	if r.IntN(12) == 0 {
		return replaced(r, v)
	}
	switch v.kind {
	case kindNumber:
		v.number = changedNumber(r, v.number)
	case kindString:
		v.text = changedString(r, v.text)
	case kindArray:
		v.elements = changedArray(r, v.elements)
	case kindObject:
		return object(changedMembers(r, v.members))
	default:
		v.kind = kind(r.IntN(3))
	}
	return v
}

// replaced returns another value where v stood: one that holds it, one that
// looks like it, or any.
func replaced(r *rand.Rand, v value) value {
	switch r.IntN(4) {
	case 0:
		return value{kind: kindArray, elements: []value{v}}
	case 1:
		return object([]member{{randomString(r), v}})
	case 2:
		return value{kind: kindString, text: string(render(r, v))}
	default:
		return randomNested(r, 1)
	}
}

func changedNumber(r *rand.Rand, n number) number {
	if n.digits == "" {
		return randomNumber(r)
	}
	other := n
	switch r.IntN(5) {
	case 0:
		other.negative = !n.negative
	case 1:
		other.exponent += 1 - 2*r.IntN(2)
	case 2:
		other.digits += randomDigits(r, 1+r.IntN(3))
	case 3: // one digit gone from the end, from the beginning, or both
		other.digits = n.digits[r.IntN(2) : len(n.digits)-r.IntN(2)%len(n.digits)]
	default:
		digits := []byte(n.digits)
		digits[r.IntN(len(digits))] = byte('0' + r.IntN(10))
		other.digits = string(digits)
	}
	if other = other.normal(); !other.fits() {
		return n
	}
	return other
}

func changedString(r *rand.Rand, text string) string {
	runes := []rune(text)
	at := r.IntN(len(runes) + 1)
	drop := 0
	if at < len(runes) {
		drop = r.IntN(2)
	}
	var add []rune
	switch r.IntN(4) {
	case 0:
		add = []rune{alphabet[r.IntN(len(alphabet))]}
	case 1:
		add = []rune("e\u0301") // é, had anyone normalised it
	case 2:
		if at < len(runes) && unicode.IsLetter(runes[at]) {
			add = []rune{runes[at] ^ 0x20} // often the other case of it
		}
	}
	return string(slices.Replace(runes, at, at+drop, add...))
}

func changedArray(r *rand.Rand, elements []value) []value {
	elements = slices.Clone(elements)
	size := len(elements)
	switch choice := r.IntN(6); {
	case size == 0 || choice == 0:
		return slices.Insert(elements, r.IntN(size+1), randomNested(r, 1))
	case choice == 1:
		at := r.IntN(size)
		return slices.Delete(elements, at, at+1)
	case choice == 2:
		i, j := r.IntN(size), r.IntN(size)
		elements[i], elements[j] = elements[j], elements[i]
	default:
		at := r.IntN(size)
		elements[at] = change(r, elements[at])
	}
	return elements
}

func changedMembers(r *rand.Rand, members []member) []member {
	members = slices.Clone(members)
	size := len(members)
	switch choice := r.IntN(6); {
	case size == 0 || choice == 0:
		return append(members, member{randomString(r), randomNested(r, 1)})
	case choice == 1:
		at := r.IntN(size)
		return slices.Delete(members, at, at+1)
	case choice == 2:
		at := r.IntN(size)
		members[at].name = changedString(r, members[at].name)
	case choice == 3:
		i, j := r.IntN(size), r.IntN(size)
		members[i].value, members[j].value = members[j].value, members[i].value
	default:
		at := r.IntN(size)
		members[at].value = change(r, members[at].value)
	}
	return members
}
