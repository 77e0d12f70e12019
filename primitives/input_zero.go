package primitives

import (
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// longestZero is more than what any zero is written as.
const longestZero = 1024

var zeroer = reflect.TypeFor[interface{ IsZero() bool }]()

// isZero reports whether a value counts as none. See [NewInput].
func isZero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer: // one to what is written as null is read back as none
		return v.IsNil() || writesNull(v.Elem())
	case reflect.Interface:
		return v.IsNil() || isNull(v.Elem())
	}
	if v.IsZero() {
		return true
	}
	f := inputFactsOf(v.Type())
	if f.zeroer {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		return p.Interface().(interface{ IsZero() bool }).IsZero() //nolint:errcheck // it has just been asked
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		if v.Len() == 0 {
			return true
		}
	case reflect.Float32, reflect.Float64: // -0, too
		return v.Float() == 0
	}
	if f.own {
		return isWrittenAsZero(v)
	}
	return v.Kind() == reflect.Struct && showsNothing(v) || v.Kind() == reflect.Array && holdsNothing(v)
}

// isWrittenAsZero reports whether a value with a form of its own has that of the zero value,
// of which there may be several in Go.
func isWrittenAsZero(v reflect.Value) bool {
	if v.Kind() == reflect.Slice && v.Len() > longestZero {
		return false
	}
	zero := zeroText(v.Type())
	return zero != "" && ownText(v) == zero
}

// holdsNothing reports whether all elements of an array are zero.
func holdsNothing(v reflect.Value) bool {
	for i := range v.Len() {
		if !isZero(v.Index(i)) {
			return false
		}
	}
	return true
}

// writesNull reports whether JSON has null for a value that has a type.
func writesNull(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || writesNull(v.Elem())
	case reflect.Interface:
		return v.IsNil() || isNull(v.Elem())
	}
	if inputFactsOf(v.Type()).own {
		return ownText(v) == "null"
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.IsNil()
	}
	return false
}

var zeroTexts sync.Map // reflect.Type to string

// zeroText is what the zero value of a type with a form of its own is written as; "" if
// its methods fail.
func zeroText(t reflect.Type) string {
	if text, ok := zeroTexts.Load(t); ok {
		return text.(string) //nolint:errcheck // the map holds nothing else
	}
	text := ownText(reflect.Zero(t))
	zeroTexts.Store(t, text)
	return text
}

func ownText(v reflect.Value) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	if v.CanAddr() { // a message must not be copied
		v = v.Addr()
	}
	b, err := json.Marshal(v.Interface(), inputEncoding)
	value := jsontext.Value(b)
	if err != nil || value.Canonicalize(jsontext.CanonicalizeRawInts(false)) != nil {
		return ""
	}
	return string(value)
}

func showsNothing(v reflect.Value) bool {
	for _, m := range membersOf(v.Type()).shown {
		if field, err := v.FieldByIndexErr(m.index); err == nil && !isZero(field) {
			return false
		}
	}
	return true
}

// inputFacts is what the writer of an input needs to know of a type.
type inputFacts struct {
	own    bool // its methods write it, or it is JSON or a number as text
	zeroer bool // it has a form and a method IsZero of its own
	taken  bool // it is taken apart: its values may hold a struct or an interface

	unordered bool // a method of its own writes it, and it holds a map
}

var knownInputFacts sync.Map // reflect.Type to *inputFacts

func inputFactsOf(t reflect.Type) *inputFacts {
	if f, ok := knownInputFacts.Load(t); ok {
		return f.(*inputFacts) //nolint:errcheck // the map holds nothing else
	}
	f := &inputFacts{
		own:    writesItself(t),
		zeroer: hasOwnForm(t) && reflect.PointerTo(t).Implements(zeroer) && declares(t, "IsZero"),
		taken:  isTaken(t, map[reflect.Type]bool{}),

		unordered: hasOwnForm(t) && !isMessage(t) && holdsMap(t, map[reflect.Type]bool{}),
	}
	knownInputFacts.Store(t, f)
	return f
}

// isMessage reports whether t is written by protojson, which has an order.
func isMessage(t reflect.Type) bool {
	return t.Implements(ownForms[0]) || reflect.PointerTo(t).Implements(ownForms[0])
}

// holdsMap reports whether a value of t can have a map in it, shown or not.
func holdsMap(t reflect.Type, met map[reflect.Type]bool) bool {
	if met[t] {
		return false
	}
	met[t] = true
	switch t.Kind() {
	case reflect.Map:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsMap(t.Elem(), met)
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsMap(t.Field(i).Type, met) {
				return true
			}
		}
	}
	return false
}

func writesItself(t reflect.Type) bool {
	return hasOwnForm(t) || t == numberType || slices.Contains(rawTypes, t)
}

func isTaken(t reflect.Type, open map[reflect.Type]bool) bool {
	if open[t] || writesItself(t) {
		return open[t]
	}
	open[t] = true
	switch t.Kind() {
	case reflect.Interface, reflect.Struct:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return isTaken(t.Elem(), open)
	}
	return false
}
