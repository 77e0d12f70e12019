package primitives

import (
	stdjson "encoding/json"
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

// NewInput hashes the arguments of a call, so that the same input gives the same
// fingerprint on every way to the function, and over releases of the program that add
// fields to a struct. [NewKey] is exact; here two inputs are equal if a function that
// decodes them cannot tell them apart:
//   - A field of a struct at its zero value counts as no field: the Go zero value, a
//     slice, map or string of length 0, a struct of such fields, or what a method
//     IsZero() bool says, which is asked before any other method of the value. A
//     pointer that is not nil counts, whatever it points to. An argument at its zero
//     value counts as null, and at the end of the list as no argument.
//   - What an interface without methods holds is untyped: it counts as the text that encoding/json
//     writes of it, in which a nil slice or map is null, zero fields are there, and a
//     method with a pointer receiver may not be called.
//   - All else counts as for [NewKey], and is refused as there.
//
// An argument that is a pointer counts as what it points to. Pass a pointer to an
// interface for an argument that is untyped itself.
func NewInput(args []any) (Fingerprint, error) {
	sum, _, err := digestOfInput([]byte(inputDomain), args)
	return Fingerprint{digest: sum}, err
}

// NewInputKey derives a key from the arguments of a call by the rules of [NewInput].
// Whether they identify anything is judged by those of NewKey: a field that is there,
// as in {"page": 0}, does.
func NewInputKey(namespace string, args []any) (Key, error) {
	if reason := namespaceFault(namespace); reason != "" {
		return Key{}, &KeyError{Reason: reason}
	}
	frame := append([]byte(inputKeyDomain), byte(len(namespace)))
	sum, content, err := digestOfInput(append(frame, namespace...), args)
	if err == nil && !content {
		_, err = NewKey(namespace, args)
	}
	if err != nil {
		return Key{}, err
	}
	return Key{namespace, sum}, nil
}

func digestOfInput(frame []byte, args []any) (sum [32]byte, content bool, err error) {
	sum, err = digestText(frame, func(t *boundedText) error {
		if fault := inspectPayload(args); fault != nil {
			return fault
		}
		w := inputWriter{jsontext.NewEncoder(t)}
		if err := w.arguments(args); err != nil {
			return encodingError(err)
		}
		var err error
		content, err = t.normalize()
		return err
	})
	return sum, content, err
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
		if hasOwnForm(v.Type()) && !v.IsNil() { // it is declared as something that writes itself
			return w.value(v.Elem())
		}
		return w.untyped(v)
	}
	if !isTaken(v.Type()) {
		return json.MarshalEncode(w.Encoder, v.Interface(), encoding)
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
	if key.Kind() == reflect.String && !hasOwnForm(key.Type()) {
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
	if reflect.PointerTo(v.Type()).Implements(zeroer) {
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
	if hasOwnForm(v.Type()) { // zero may have several forms in Go, and has one text
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
	if hasOwnForm(v.Type()) || slices.Contains(rawTypes, v.Type()) {
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

var knownTaken sync.Map // reflect.Type to bool

// isTaken reports whether values of t are taken apart: they may hold a struct or an
// interface. What is in a form of its own is not.
func isTaken(t reflect.Type) bool {
	if taken, ok := knownTaken.Load(t); ok {
		return taken.(bool) //nolint:errcheck // the map holds nothing else
	}
	taken := takes(t, map[reflect.Type]bool{})
	knownTaken.Store(t, taken)
	return taken
}

func takes(t reflect.Type, open map[reflect.Type]bool) bool {
	if open[t] || hasOwnForm(t) || t == numberType || slices.Contains(rawTypes, t) {
		return open[t]
	}
	open[t] = true
	switch t.Kind() {
	case reflect.Interface, reflect.Struct:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return takes(t.Elem(), open)
	}
	return false
}
