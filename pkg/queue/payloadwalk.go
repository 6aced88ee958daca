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
// encoding/json has encoded. It goes the encoder's own way (newTypeEncoder in
// encode.go): what that passes by may hold anything, also cycles. What a type
// encodes for itself is its own affair, except text, which the encoder would mend
// too.
func checkUTF8(v any) error {
	return utf8Walk{}.value(reflect.ValueOf(v), 0)
}

// utf8Walk is one walk; it keeps the fields of the struct types that it met.
type utf8Walk map[reflect.Type][]jsonField

func (w utf8Walk) value(v reflect.Value, depth int) error {
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
		return w.value(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := w.value(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := checkKey(it.Key()); err != nil {
				return err
			}
			if err := w.value(it.Value(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for _, f := range w.fields(v.Type()) {
			if field := f.in(v); field.IsValid() && !f.omits(field) {
				if err := w.value(field, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w utf8Walk) fields(t reflect.Type) []jsonField {
	fields, known := w[t]
	if !known {
		fields = jsonFields(t)
		w[t] = fields
	}
	return fields
}

// hasMethod tells whether the encoder finds an interface's method on v: one of *T
// counts where the value has an address.
func hasMethod(v reflect.Value, i reflect.Type) bool {
	return v.Type().Implements(i) || v.CanAddr() && reflect.PointerTo(v.Type()).Implements(i)
}

// probeKey is a map's key that tells what the encoder asks.
type probeKey string

func (probeKey) MarshalText() ([]byte, error) { return []byte("text"), nil }

// stringKeys tells that the encoder takes a map's key of the kind string as it is,
// also where its type has a MarshalText. Under GOEXPERIMENT=jsonv2 it does not.
var stringKeys = func() bool {
	text, err := json.Marshal(map[probeKey]int{"string": 0})
	return err != nil || string(text) == `{"string":0}`
}()

// checkKey checks what the encoder takes for the name of a map's element.
func checkKey(k reflect.Value) error {
	switch {
	case k.Kind() == reflect.String && (stringKeys || !k.Type().Implements(textMarshalerType)):
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
