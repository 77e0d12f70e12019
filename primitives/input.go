package primitives

import (
	"crypto/sha256"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	inputDomain    = "fencekit/input/v1\n"
	inputKeyDomain = "fencekit/input-key/v1\n"
)

// bytesPerStep is how many bytes of text are reckoned for each value that is looked at
// before it is written.
const bytesPerStep = 8

// inputEncoding differs from that of a key where encoding/json does.
var inputEncoding = json.JoinOptions(encoding, json.WithMarshalers(json.JoinMarshalers(
	json.MarshalToFunc(writeNumberOrZero), json.MarshalToFunc(writeMessage))))

// writeNumberOrZero writes an empty json.Number as encoding/json does.
func writeNumberOrZero(enc *jsontext.Encoder, n stdjson.Number) error {
	if n == "" {
		n = "0"
	}
	return writeNumber(enc, n)
}

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
//     slice, map or string of length 0, a struct of such fields, and, of a type with a
//     JSON or text form of its own, what its IsZero() bool says or what has the form of
//     the zero value. A pointer that is not nil counts, whatever it points to. An
//     argument at its zero value counts as null, and at the end of the list as no
//     argument.
//   - What an interface holds is untyped: it counts as the text that encoding/json writes
//     of it, in which a nil slice or map is null, zero fields are there, and a method
//     with a pointer receiver may not be called: where that hides fields, it is a
//     [*KeyError]. An interface type that writes itself, such as proto.Message, is typed.
//   - All else counts as for [NewKey], and is refused as there, as a [*KeyError].
//
// An argument that is a pointer counts as what it points to. Pass a pointer to an
// interface for an argument that is untyped itself. One that is passed by its value has a
// type that is not known for sure: of these only nil and a struct at zero count as null. most bounds the JSON text, as written
// before it is made canonical, in bytes, up to [MaxKeyPayload]; 0 stands for that. Another
// number is an [*OptionError].
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
		if fault := inspectBounded(args, most/bytesPerStep); fault != nil {
			return fault
		}
		w := inputWriter{jsontext.NewEncoder(t), t.most}
		if err := w.arguments(args); err != nil {
			if fault, ok := errors.AsType[*KeyError](err); ok {
				return fault
			}
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
type inputWriter struct {
	*jsontext.Encoder

	most int
}

// inside puts a parent's token before the path of an error.
func inside(err error, token string) error {
	if err == nil {
		return nil
	}
	fault, ok := errors.AsType[*KeyError](err)
	if !ok { // of the encoder, about what it was given last
		fault = &KeyError{Reason: encodingReason(err), Err: err}
	}
	return fault.within(token)
}

func (w inputWriter) arguments(args []any) error {
	values := make([]reflect.Value, len(args)) // the zero Value for null
	last := 0
	for i, arg := range args {
		v := reflect.ValueOf(arg)
		switch v.Kind() {
		case reflect.Invalid:
			continue
		case reflect.Pointer:
			if v.IsNil() || isZero(v.Elem()) {
				continue
			}
			v = v.Elem()
		case reflect.Struct:
			if isZero(v) {
				continue
			}
		}
		values[i], last = v, i+1
	}
	return w.list(last, func(i int) error {
		if !values[i].IsValid() {
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
	if err := w.fits(v); err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		if isZero(v) {
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
	if err := w.fits(v); err != nil {
		return err
	}
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
	if f.unordered {
		return w.marshalOrdered(v)
	}
	return w.marshal(v, inputEncoding)
}

// fits refuses what is too large before it is written: each byte and each element takes a
// byte of text at least.
func (w inputWriter) fits(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Array, reflect.Map:
		if v.Len() > w.most {
			return &KeyError{Reason: fmt.Sprintf("the payload has at least %d bytes of JSON, over the limit of %d", v.Len(), w.most)}
		}
	}
	return nil
}

// marshalOrdered writes a value whose own method may go through a map, which Go does in any
// order: it is written several times.
func (w inputWriter) marshalOrdered(v reflect.Value) error {
	first := ownText(v)
	for range triesOfOrder {
		if ownText(v) != first {
			return &KeyError{Reason: typeName(indirect(v.Type())) + " writes itself in another order each time"}
		}
	}
	return w.marshal(v, inputEncoding)
}

const triesOfOrder = 8

// marshal has the JSON library write a value.
func (w inputWriter) marshal(v reflect.Value, options json.Options) error {
	text := boundedText{most: w.most}
	if err := json.MarshalWrite(&text, v.Interface(), options); err != nil {
		return encodingError(err)
	}
	return w.WriteValue(text.b)
}

func (w inputWriter) list(n int, item func(int) error) error {
	if err := w.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for i := range n {
		if err := item(i); err != nil {
			return inside(err, strconv.Itoa(i))
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
			return inside(err, "*")
		}
		if err := w.WriteToken(jsontext.String(name)); err != nil {
			return inside(err, name)
		}
		if err := w.value(it.Value()); err != nil {
			return inside(err, name)
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
	text, err := json.Marshal(one.Interface(), inputEncoding)
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
	return "", &KeyError{Reason: "a key of a map has no form in JSON"}
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
			return inside(err, m.name)
		}
		if err := w.value(field); err != nil {
			return inside(err, m.name)
		}
	}
	return w.WriteToken(jsontext.EndObject)
}
