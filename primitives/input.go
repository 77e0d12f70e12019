package primitives

import (
	"crypto/sha256"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	inputDomain    = "fencekit/input/v1\n"
	inputKeyDomain = "fencekit/input-key/v1\n"
)

// Input is the digest of the arguments of a call, by [NewInput].
type Input struct {
	args    []any
	digest  [32]byte
	content bool // something in it tells it from nothing
}

// NewInput hashes the arguments of a call, so that the same input gives the same digest
// on every way to the function, and over releases of the program that add fields to a
// struct. [NewKey] is exact; here two inputs are equal if a function that decodes them
// cannot tell them apart:
//   - A field of a struct at its zero value counts as no field: the Go zero value, a
//     slice, map or string of length 0, a struct of such fields, or what a method
//     IsZero() bool says, which is asked before any other method of the value. A
//     pointer that is not nil counts, whatever it points to. An argument at its zero
//     value counts as null, and at the end of the list as no argument.
//   - What an interface without methods holds is untyped: it counts as the text that
//     encoding/json writes of it, in which a nil slice or map is null, zero fields are
//     there, and a method with a pointer receiver may not be called.
//   - All else counts as for [NewKey], and is refused as there, as a [*KeyError].
//
// An argument that is a pointer counts as what it points to. Pass a pointer to an
// interface for an argument that is untyped itself. most is the largest JSON text that is
// hashed, in bytes, up to [MaxKeyPayload]; 0 stands for that.
func NewInput(args []any, most int) (Input, error) {
	if most < 0 || most > MaxKeyPayload {
		return Input{}, &OptionError{"most", fmt.Sprintf("%d is outside 0 to %d bytes", most, MaxKeyPayload)}
	}
	in := Input{args: args}
	var err error
	in.digest, err = digestText([]byte(inputDomain), func(t *boundedText) error {
		if most > 0 {
			t.most = most
		}
		if fault := inspectPayload(args); fault != nil {
			return fault
		}
		w := inputWriter{jsontext.NewEncoder(t)}
		if err := w.arguments(args); err != nil {
			return encodingError(err)
		}
		var err error
		in.content, err = t.normalize()
		return err
	})
	if err != nil {
		return Input{}, err
	}
	return in, nil
}

// Fingerprint is the digest as a fingerprint.
func (in Input) Fingerprint() Fingerprint { return Fingerprint{digest: in.digest} }

// Key derives a key from the digest. An input that identifies nothing is a [*KeyError];
// that is judged by the rules of [NewKey], so that a field that is there does, as in
// {"page": 0}. The arguments must not have changed since NewInput.
func (in Input) Key(namespace string) (Key, error) {
	if reason := namespaceFault(namespace); reason != "" {
		return Key{}, &KeyError{Reason: reason}
	}
	if !in.content {
		if _, err := NewKey(namespace, in.args); err != nil {
			return Key{}, err
		}
	}
	frame := append([]byte(inputKeyDomain), byte(len(namespace)))
	frame = append(frame, namespace...)
	return Key{namespace, sha256.Sum256(append(frame, in.digest[:]...))}, nil
}

// inputWriter writes values by the rules of [NewInput]. Values without parts are
// written by the JSON library.
type inputWriter struct{ *jsontext.Encoder }

func (w inputWriter) arguments(args []any) error {
	values := make([]reflect.Value, len(args))
	last := 0
	for i, arg := range args {
		if v := reflect.ValueOf(arg); v.Kind() == reflect.Pointer && !v.IsNil() {
			values[i] = v.Elem()
		} else {
			values[i] = v
		}
		if values[i].IsValid() && !isZero(values[i]) {
			last = i + 1
		}
	}
	return w.list(last, func(i int) error {
		if !values[i].IsValid() || isZero(values[i]) {
			return w.WriteToken(jsontext.Null)
		}
		return w.value(values[i])
	})
}

func (w inputWriter) value(v reflect.Value) error {
	if v.Kind() == reflect.Interface {
		if inputFactsOf(v.Type()).own && !v.IsNil() { // it is declared as something that writes itself
			return w.value(v.Elem())
		}
		return w.untyped(v)
	}
	if f := inputFactsOf(v.Type()); !f.taken {
		return w.leaf(v, f)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return w.WriteToken(jsontext.Null)
		}
		return w.value(v.Elem())
	case reflect.Map:
		return w.members(v)
	case reflect.Struct:
		return w.fields(v)
	default: // a slice or an array
		return w.list(v.Len(), func(i int) error { return w.value(v.Index(i)) })
	}
}

// leaf writes a value that is not taken apart. The most common ones need no detour.
func (w inputWriter) leaf(v reflect.Value, f *inputFacts) error {
	if !f.own {
		switch v.Kind() {
		case reflect.String:
			return w.WriteToken(jsontext.String(v.String()))
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			return w.WriteToken(jsontext.Int(v.Int()))
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			return w.WriteToken(jsontext.Uint(v.Uint()))
		case reflect.Bool:
			return w.WriteToken(jsontext.Bool(v.Bool()))
		}
	}
	return json.MarshalEncode(w.Encoder, v.Interface(), encoding)
}

// untyped writes what an interface holds as encoding/json does, whose text is all that
// travels of it.
func (w inputWriter) untyped(v reflect.Value) error {
	if v.IsNil() {
		return w.WriteToken(jsontext.Null)
	}
	text, err := stdjson.Marshal(v.Interface())
	if err != nil {
		return &KeyError{Path: pointer(w.StackPointer()), Reason: "encoding/json cannot write what an interface holds", Err: err}
	}
	return w.WriteValue(text)
}

func (w inputWriter) list(n int, item func(int) error) error {
	if err := w.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for i := range n {
		if err := item(i); err != nil {
			return err
		}
	}
	return w.WriteToken(jsontext.EndArray)
}

func (w inputWriter) members(v reflect.Value) error {
	if err := w.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for it := v.MapRange(); it.Next(); {
		name, err := memberName(it.Key())
		if err != nil {
			return err
		}
		if err := w.WriteToken(jsontext.String(name)); err != nil {
			return err
		}
		if err := w.value(it.Value()); err != nil {
			return err
		}
	}
	return w.WriteToken(jsontext.EndObject)
}

// memberName is the name that the JSON library gives to a map's key.
func memberName(key reflect.Value) (string, error) {
	if key.Kind() == reflect.String && !inputFactsOf(key.Type()).own {
		return key.String(), nil
	}
	one := reflect.MakeMap(reflect.MapOf(key.Type(), reflect.TypeFor[bool]()))
	one.SetMapIndex(key, reflect.ValueOf(true))
	text, err := json.Marshal(one.Interface(), encoding)
	if err != nil {
		return "", err
	}
	var names map[string]bool
	if err := json.Unmarshal(text, &names); err != nil {
		return "", err
	}
	for name := range names {
		return name, nil
	}
	return "", nil // a key that is left out
}

func (w inputWriter) fields(v reflect.Value) error {
	if err := w.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, m := range membersOf(v.Type()).shown {
		field, err := v.FieldByIndexErr(m.index)
		if err != nil || isZero(field) { // the former: an embedded pointer is nil
			continue
		}
		if err := w.WriteToken(jsontext.String(m.name)); err != nil {
			return err
		}
		if err := w.value(field); err != nil {
			return err
		}
	}
	return w.WriteToken(jsontext.EndObject)
}

var zeroer = reflect.TypeFor[interface{ IsZero() bool }]()

// isZero reports whether a value counts as none. See [NewInput].
func isZero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil()
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
		return v.Len() == 0
	case reflect.Float32, reflect.Float64: // -0, too
		return v.Float() == 0
	}
	if f.own { // zero may have several forms in Go, and has one text
		zero := zeroText(v.Type())
		return zero != "" && ownText(v) == zero
	}
	switch v.Kind() {
	case reflect.Struct:
		return showsNothing(v)
	case reflect.Array:
		for i := range v.Len() {
			if !isZero(v.Index(i)) {
				return false
			}
		}
		return true
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
	b, err := json.Marshal(v.Interface(), encoding)
	if err != nil {
		return ""
	}
	return string(b)
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
	zeroer bool // it has a method IsZero
	taken  bool // it is taken apart: its values may hold a struct or an interface
}

var knownInputFacts sync.Map // reflect.Type to *inputFacts

func inputFactsOf(t reflect.Type) *inputFacts {
	if f, ok := knownInputFacts.Load(t); ok {
		return f.(*inputFacts) //nolint:errcheck // the map holds nothing else
	}
	f := &inputFacts{
		own:    writesItself(t),
		zeroer: reflect.PointerTo(t).Implements(zeroer),
		taken:  isTaken(t, map[reflect.Type]bool{}),
	}
	knownInputFacts.Store(t, f)
	return f
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
