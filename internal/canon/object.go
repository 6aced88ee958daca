package canon

import (
	"bytes"
	"cmp"
	"slices"
)

// Members come in any order, and moving each object's members when it ends would
// copy the innermost of ten thousand nested objects ten thousand times. So the
// scanner only notes the objects that are out of order, and one last copy of the
// whole form puts all of them right.

// member is where one member stands in the form, in bytes from its beginning.
// 32 bits are enough: no form is longer than four times its text.
type member struct {
	start uint32 // the name's tag
	name  uint32 // the name's bytes
	value uint32 // the value's tag, where the name ends
	end   uint32
}

// object is where an object with members to move stands in the form, and which
// of the kept members are its own.
type object struct {
	start, end  uint32
	first, last uint32 // kept[first:last]
}

// object reads an object.
func (s *scanner) object() error {
	if err := s.enter(); err != nil {
		return err
	}
	start, outer, ordered := s.at(), len(s.open), true
	s.form = append(s.form, tagObject)
	s.space()
	if s.peek() != '}' {
		for {
			m, err := s.member()
			if err != nil {
				return err
			}
			if own := s.open[outer:]; ordered && len(own) > 0 {
				ordered = bytes.Compare(s.name(own[len(own)-1]), s.name(m)) < 0
			}
			s.open = append(s.open, m)
			s.space()
			if s.peek() != ',' {
				break
			}
			s.pos++
			s.space()
		}
		if s.peek() != '}' {
			return s.fail(reasonObject)
		}
	}
	s.leave()
	s.form = append(s.form, tagObjectEnd)
	if !ordered {
		s.keep(start, s.open[outer:])
	}
	s.open = s.open[:outer]
	return nil
}

// member reads one member of an object.
func (s *scanner) member() (member, error) {
	m := member{start: s.at()}
	if s.peek() != '"' {
		return m, s.fail(reasonName)
	}
	size, err := s.string()
	if err != nil {
		return m, err
	}
	m.value = s.at()
	m.name = m.value - uint32(size)
	s.space()
	if s.peek() != ':' {
		return m, s.fail(reasonColon)
	}
	s.pos++
	s.space()
	if err := s.value(); err != nil {
		return m, err
	}
	m.end = s.at()
	return m, nil
}

// keep notes an object that has just ended and is out of order, with its members
// in their order and only the last of each name.
func (s *scanner) keep(start uint32, members []member) {
	slices.SortFunc(members, func(a, b member) int {
		if order := bytes.Compare(s.name(a), s.name(b)); order != 0 {
			return order
		}
		return cmp.Compare(a.start, b.start)
	})
	first := uint32(len(s.kept))
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(s.name(m), s.name(members[i+1])) {
			continue // a later member has this name
		}
		s.kept = append(s.kept, m)
	}
	s.unsorted = append(s.unsorted, object{start: start, end: s.at(), first: first, last: uint32(len(s.kept))})
}

// appendForm appends the form with all members in their places to dst.
func (s *scanner) appendForm(dst []byte) []byte {
	// Objects were noted when they ended, the inner before the outer; the copy
	// meets them where they start.
	slices.SortFunc(s.unsorted, func(a, b object) int { return cmp.Compare(a.start, b.start) })
	return s.appendPart(dst, 0, s.at(), s.unsorted)
}

// appendPart is appendForm for the bytes from start to end. Unsorted holds at
// least the unsorted objects that start there, in the order of their starts.
func (s *scanner) appendPart(dst []byte, start, end uint32, unsorted []object) []byte {
	for {
		unsorted = unsorted[firstFrom(unsorted, start):]
		if len(unsorted) == 0 || unsorted[0].start >= end {
			return append(dst, s.form[start:end]...)
		}
		o := unsorted[0]
		dst = append(dst, s.form[start:o.start+1]...) // up to and with its tag
		inner := unsorted[1:]
		inner = inner[:firstFrom(inner, o.end)]
		for _, m := range s.kept[o.first:o.last] {
			dst = s.appendPart(dst, m.start, m.end, inner)
		}
		start = o.end - 1 // its end tag comes with what follows
	}
}

// firstFrom returns how many of the objects, sorted by their start, start before
// the given place.
func firstFrom(objects []object, start uint32) int {
	if len(objects) == 0 || objects[0].start >= start {
		return 0 // as for most members
	}
	n, _ := slices.BinarySearchFunc(objects, start, func(o object, start uint32) int {
		return cmp.Compare(o.start, start)
	})
	return n
}

// at returns the place in the form where the next byte will stand.
func (s *scanner) at() uint32 { return uint32(len(s.form)) }

// name returns the bytes of the member's name.
func (s *scanner) name(m member) []byte { return s.form[m.name:m.value] }
