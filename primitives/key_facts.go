package primitives

import (
	stdencoding "encoding"
	stdjson "encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"
)

// JSON text shows neither where a number was held nor what a struct hides. So
// the values of some types are walked as well. What a type needs is found once.

// role is what there is to see at a value of one type.
type role uint8

const (
	plain     role = iota // nothing, at any depth
	through               // maybe something deeper
	raw                   // JSON text
	number                // a number literal
	hidden                // a struct that shows nothing
	formatted             // a struct with a tag option that builds take differently
)

// facts is what is known of a type.
type facts struct {
	role   role
	fields []field // of a struct: those worth looking at
}

type field struct {
	index int
	name  string // in JSON; "" if the field's members are its parent's
}

var (
	knownFacts sync.Map // reflect.Type to *facts

	rawTypes   = []reflect.Type{reflect.TypeFor[stdjson.RawMessage](), reflect.TypeFor[jsontext.Value]()}
	numberType = reflect.TypeFor[stdjson.Number]()
	ownForms   = []reflect.Type{
		reflect.TypeFor[proto.Message](),
		reflect.TypeFor[json.MarshalerTo](),
		reflect.TypeFor[json.Marshaler](),
		reflect.TypeFor[stdencoding.TextAppender](),
		reflect.TypeFor[stdencoding.TextMarshaler](),
	}
)

func factsOf(t reflect.Type) *facts {
	if f, ok := knownFacts.Load(t); ok {
		return f.(*facts) //nolint:errcheck // the map holds nothing else
	}
	f := &facts{role: roleOf(t, map[reflect.Type]role{})}
	if f.role == through && t.Kind() == reflect.Struct {
		f.fields = fieldsOf(t)
	}
	knownFacts.Store(t, f)
	return f
}

// roleOf finds the role of t. known are the roles found on the way. A type that
// is met inside of itself is walked, because its values may be cyclic.
func roleOf(t reflect.Type, known map[reflect.Type]role) role {
	if r, ok := known[t]; ok {
		return r
	}
	known[t] = through
	r := newRole(t, known)
	known[t] = r
	return r
}

func newRole(t reflect.Type, known map[reflect.Type]role) role {
	switch {
	case t == numberType:
		return number
	case t == rawTypes[0] || t == rawTypes[1]:
		return raw
	case t.Kind() == reflect.Interface:
		return through
	case hasOwnForm(t):
		return plain
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return viaRole(t.Elem(), known)
	case reflect.Map:
		return max(viaRole(t.Key(), known), viaRole(t.Elem(), known))
	case reflect.Struct:
		return structRole(t, known)
	}
	return plain
}

func viaRole(t reflect.Type, known map[reflect.Type]role) role {
	return min(roleOf(t, known), through)
}

func structRole(t reflect.Type, known map[reflect.Type]role) role {
	if t.NumField() > 0 && !shows(t, map[reflect.Type]bool{}) {
		return hidden
	}
	result := plain
	for _, f := range fieldsOf(t) {
		if strings.Contains(t.Field(f.index).Tag.Get("json"), ",format:") {
			return formatted
		}
		result = max(result, viaRole(t.Field(f.index).Type, known))
	}
	return result
}

// hasOwnForm reports whether t's methods write it. What they write is taken as
// it is.
func hasOwnForm(t reflect.Type) bool {
	for _, form := range ownForms {
		if t.Implements(form) || reflect.PointerTo(t).Implements(form) {
			return true
		}
	}
	return false
}

// shows reports whether any field of t, or promoted from a struct embedded in
// it, becomes a JSON member.
func shows(t reflect.Type, open map[reflect.Type]bool) bool {
	open[t] = true
	for _, f := range fieldsOf(t) {
		inner := indirect(t.Field(f.index).Type)
		embedded := f.name == "" && inner.Kind() == reflect.Struct
		if !embedded || !open[inner] && shows(inner, open) {
			return true
		}
	}
	return false
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// fieldsOf lists the fields that become JSON.
func fieldsOf(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		merged := name == "" && (sf.Anonymous || strings.Contains(","+options+",", ",embed,"))
		switch {
		case tag == "-", !sf.IsExported() && !sf.Anonymous:
			continue
		case merged:
			list = append(list, field{i, ""})
		case name == "":
			list = append(list, field{i, sf.Name})
		default:
			list = append(list, field{i, name})
		}
	}
	return list
}
