package primitives

import (
	stdjson "encoding/json"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// untyped writes what an interface holds as encoding/json does, whose text is all that
// travels of it.
func (w inputWriter) untyped(v reflect.Value) error {
	if v.IsNil() {
		return w.WriteToken(jsontext.Null)
	}
	if err := w.fits(v.Elem()); err != nil {
		return err
	}
	switch v.Elem().Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		if fault := (byValue{map[reference]bool{}}).hidden(v.Elem(), false); fault != nil {
			return fault
		}
	}
	return w.marshal(v, untypedEncoding)
}

// untypedEncoding is that of encoding/json, but for what it passes over.
var untypedEncoding = json.JoinOptions(jsonv1.DefaultOptionsV1(), json.Deterministic(true),
	jsontext.AllowInvalidUTF8(false), jsontext.AllowDuplicateNames(false), json.WithMarshalers(json.MarshalToFunc(writeNumberOrZero)))

// byValue finds fields that encoding/json does not show of what an interface holds because
// the method that would is one with a pointer receiver, and it has no pointer.
type byValue struct{ met map[reference]bool }

func (w byValue) hidden(v reflect.Value, pointed bool) *KeyError {
	if isReference(v) && w.again(v) {
		return nil
	}
	t := v.Type()
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() || t.Implements(ownForms[0]) {
			return nil
		}
		return w.hidden(v.Elem(), v.Kind() == reflect.Pointer)
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
	default:
		return nil
	}
	for _, form := range ownForms[1:] { // encoding/json knows no messages
		if t.Implements(form) || pointed && reflect.PointerTo(t).Implements(form) {
			return nil
		}
	}
	if v.Kind() == reflect.Struct && hasOwnForm(t) && len(membersOf(t).hidden) > 0 {
		return &KeyError{Reason: "encoding/json does not show all of " + typeName(t) +
			" that an interface holds by value: its method has a pointer receiver, so put a pointer there"}
	}
	return w.parts(v, pointed)
}

// again reports whether the walk has been at a value.
func (w byValue) again(v reflect.Value) bool {
	ref := reference{v.Type(), v.UnsafePointer(), 0}
	if v.Kind() == reflect.Slice {
		ref.length = v.Len()
	}
	met := w.met[ref]
	w.met[ref] = true
	return met
}

func (w byValue) parts(v reflect.Value, pointed bool) *KeyError {
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		if f := inputFactsOf(v.Type().Elem()); !f.taken && !f.own {
			return nil
		}
		for i := range v.Len() {
			if fault := w.hidden(v.Index(i), pointed || v.Kind() == reflect.Slice); fault != nil {
				return fault.within(strconv.Itoa(i))
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if fault := w.hidden(it.Value(), false); fault != nil {
				return fault.within(keyToken(it.Key()))
			}
		}
	case reflect.Struct:
		for _, m := range membersOf(v.Type()).shown {
			field, err := v.FieldByIndexErr(m.index)
			if err != nil {
				continue
			}
			if fault := w.hidden(field, pointed); fault != nil {
				return fault.within(m.name)
			}
		}
	}
	return nil
}

// isNull reports whether encoding/json writes null for what an interface holds.
func isNull(v reflect.Value) bool {
	if inputFactsOf(v.Type()).own {
		text, err := stdjson.Marshal(v.Interface())
		return err == nil && string(text) == "null"
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.IsNil()
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || isNull(v.Elem())
	}
	return false
}
