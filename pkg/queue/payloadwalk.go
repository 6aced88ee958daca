package queue

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"
)

// maxWalkDepth bounds how deep checkUTF8 looks: ten steps for each of the 10,000
// levels that JSON may be nested. The walk calls itself, and a stack that overflows
// ends the process.
const maxWalkDepth = 100_000

var (
	errInvalidUTF8 = errors.New("a string is not valid UTF-8")
	errWalkDepth   = errors.New("pointers nested too deep to tell whether its strings are valid UTF-8")

	jsonMarshalerType = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
)

// checkUTF8 looks for a string that is not valid UTF-8 in a value that
// encoding/json has encoded. It asks the methods that the encoder asks. What a type
// encodes for itself is its own affair, except text, which the encoder would mend
// too. Fields that a tag's options or another field's name leave out are looked at
// all the same: to refuse a value for them is to err on the right side.
func checkUTF8(v reflect.Value, depth int) error {
	switch {
	case depth > maxWalkDepth:
		return errWalkDepth
	case !v.IsValid(), hasMethod(v, jsonMarshalerType):
		return nil
	case v.Type().Implements(textMarshalerType):
		return checkText(v)
	case hasMethod(v, textMarshalerType):
		return checkText(v.Addr())
	}
	switch v.Kind() {
	case reflect.String:
		return checkString(v.String())
	case reflect.Pointer, reflect.Interface:
		return checkUTF8(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := checkUTF8(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := checkKey(it.Key()); err != nil {
				return err
			}
			if err := checkUTF8(it.Value(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			// Unexported fields are not encoded, unless they are embedded structs.
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				if err := checkUTF8(v.Field(i), depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hasMethod tells whether the encoder finds an interface's method on v: one of *T
// counts where the value has an address.
func hasMethod(v reflect.Value, i reflect.Type) bool {
	return v.Type().Implements(i) || v.CanAddr() && reflect.PointerTo(v.Type()).Implements(i)
}

// checkKey checks what the encoder takes for the name of a map's element: a key
// of the kind string as it is, also where its type has a MarshalText.
func checkKey(k reflect.Value) error {
	switch {
	case k.Kind() == reflect.String:
		return checkString(k.String())
	case k.Type().Implements(textMarshalerType):
		return checkText(k)
	}
	return nil // a number
}

// checkText checks what a text marshaler writes; a nil one is not asked.
func checkText(v reflect.Value) error {
	if k := v.Kind(); (k == reflect.Pointer || k == reflect.Interface) && v.IsNil() {
		return nil
	}
	if !v.CanInterface() {
		return nil // in an embedded struct that is not exported; the encoder can't ask it either
	}
	text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return nil // it gave none to the encoder either
	}
	return checkString(string(text))
}

func checkString(s string) error {
	if !utf8.ValidString(s) {
		return errInvalidUTF8
	}
	return nil
}
