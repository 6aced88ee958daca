package queue

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// jsonField is a field of a struct that encoding/json encodes.
type jsonField struct {
	index               []int // its way through embedded structs
	name                string
	tagged              bool // the name is from its tag
	omitEmpty, omitZero bool
}

// jsonFields are the fields of a struct type that encoding/json encodes, by the
// rules of typeFields in its encode.go: a struct gets the fields of those that it
// embeds without a name, and of several fields with one name the least deep counts,
// of these the one named by its tag, and where that leaves two, none.
func jsonFields(t reflect.Type) []jsonField {
	byName := map[string][]jsonField{}
	met := map[reflect.Type]bool{}
	// The embedded structs of one depth, with how often they are embedded there.
	level, times := []embedded{{typ: t}}, map[reflect.Type]int{t: 1}
	for len(level) > 0 {
		var deeper []embedded
		timesDeeper := map[reflect.Type]int{}
		for _, e := range level {
			if met[e.typ] {
				continue
			}
			met[e.typ] = true
			for i := range e.typ.NumField() {
				f, inner := newJSONField(e, i)
				switch {
				case inner != nil:
					if timesDeeper[inner]++; timesDeeper[inner] == 1 {
						deeper = append(deeper, embedded{inner, f.index})
					}
				case f.name != "":
					// Embedded twice it hides itself.
					byName[f.name] = append(byName[f.name], slices.Repeat([]jsonField{f}, min(2, times[e.typ]))...)
				}
			}
		}
		level, times = deeper, timesDeeper
	}
	var fields []jsonField
	for _, same := range byName {
		slices.SortStableFunc(same, jsonField.compare)
		if len(same) == 1 || same[0].compare(same[1]) != 0 {
			fields = append(fields, same[0])
		}
	}
	return fields
}

// embedded is a struct type met on the way, and the way to it.
type embedded struct {
	typ   reflect.Type
	index []int
}

// newJSONField reads field i of a struct: one with a name, one that embeds the
// struct inner, or one that is not encoded.
func newJSONField(in embedded, i int) (f jsonField, inner reflect.Type) {
	sf := in.typ.Field(i)
	t := sf.Type
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	tag := sf.Tag.Get("json")
	// An embedded struct without a name that others see has fields that they see.
	if tag == "-" || !sf.IsExported() && !(sf.Anonymous && t.Kind() == reflect.Struct) {
		return f, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	f.index = append(slices.Clone(in.index), i)
	for option := range strings.SplitSeq(options, ",") {
		f.omitEmpty = f.omitEmpty || option == "omitempty"
		f.omitZero = f.omitZero || option == "omitzero"
	}
	switch f.tagged = validName(name); {
	case f.tagged:
		f.name = name
	case sf.Anonymous && t.Kind() == reflect.Struct:
		return f, t
	default:
		f.name = sf.Name
	}
	return f, nil
}

// validName tells whether encoding/json takes a name from a tag.
func validName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// compare puts the field first that hides others of its name.
func (f jsonField) compare(other jsonField) int {
	if c := cmp.Compare(len(f.index), len(other.index)); c != 0 || f.tagged == other.tagged {
		return c
	}
	if f.tagged {
		return -1
	}
	return 1
}

// in is the field of a struct; it is not valid where a pointer on the way is nil.
func (f jsonField) in(v reflect.Value) reflect.Value {
	for _, i := range f.index {
		if v.Kind() == reflect.Pointer {
			if v = v.Elem(); !v.IsValid() {
				return v
			}
		}
		v = v.Field(i)
	}
	return v
}

type zeroer interface{ IsZero() bool }

var zeroerType = reflect.TypeFor[zeroer]()

// omits tells whether the field's tag leaves this value of it out.
func (f jsonField) omits(v reflect.Value) bool {
	return f.omitEmpty && isEmpty(v) || f.omitZero && isZero(v)
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func isZero(v reflect.Value) bool {
	k, t := v.Kind(), v.Type()
	switch {
	case (k == reflect.Pointer || k == reflect.Interface) && v.IsNil():
		return true
	case t.Implements(zeroerType):
		// A nil pointer in an interface is not asked.
		return k == reflect.Interface && v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() || v.Interface().(zeroer).IsZero()
	case reflect.PointerTo(t).Implements(zeroerType):
		p := reflect.New(t) // v may have no address
		p.Elem().Set(v)
		return p.Interface().(zeroer).IsZero()
	}
	return v.IsZero()
}
