package primitives

import (
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// FencekitKey derives the idempotency key that fencekit for Python derives, so
// that services in both languages name an operation alike; neither reads the other's records. It is "<namespace>:<digest>",
// where the digest is
//
//	sha256(json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True))
//
// in lower-case hex. Values may be nil, booleans, strings, integers of every kind
// (also [big.Int] and integral json.Number) and lists and maps of these. Member
// names must be ASCII. Nil maps and lists are empty ones. Everything else, floats
// and structs above all, is a [*KeyError], because the two languages write it
// differently. New code should use [NewKey].
//
// The namespace follows the rules of [NewKey]. An empty payload is accepted.
func FencekitKey(namespace string, payload map[string]any) (string, error) {
	if reason := namespaceFault(namespace); reason != "" {
		return "", &KeyError{Reason: reason}
	}
	text := boundedText{most: MaxKeyPayload}
	p := pythonWriter{jsontext.NewEncoder(&text)}
	if err := p.value(reflect.ValueOf(payload)); err != nil {
		return "", p.locate(err)
	}
	sum := sha256.Sum256(escapeNonASCII(text.b[:len(text.b)-len("\n")]))
	return namespace + ":" + hex.EncodeToString(sum[:]), nil
}

// pythonWriter writes the values that Python's json module writes alike.
type pythonWriter struct{ enc *jsontext.Encoder }

// unwritable is the reason why a value cannot be written.
type unwritable string

func (u unwritable) Error() string { return string(u) }

// locate adds to err the place that the encoder has reached.
func (p pythonWriter) locate(err error) *KeyError {
	reason, ok := err.(unwritable) //nolint:errorlint // it is not wrapped on the way here
	if !ok {
		return encodingError(err)
	}
	at := p.enc.StackPointer()
	switch kind, length := p.enc.StackIndex(p.enc.StackDepth()); {
	case kind == '[': // the element that comes next
		parent := at
		if length > 0 {
			parent = at.Parent()
		}
		at = parent.AppendToken(fmt.Sprint(length))
	case kind == '{' && length%2 == 0 && length > 0: // a name that was not written
		at = at.Parent()
	}
	return &KeyError{Path: pointer(at), Reason: string(reason)}
}

func (p pythonWriter) value(v reflect.Value) error {
	if v.IsValid() && v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() {
		return p.enc.WriteToken(jsontext.Null)
	}
	switch x := v.Interface().(type) {
	case stdjson.Number:
		return p.literal(string(x))
	case *big.Int:
		return p.bigInt(x)
	case big.Int:
		return p.bigInt(&x)
	}
	switch {
	case hasOwnForm(v.Type()):
		return unwritable("a " + typeName(v.Type()) + " has its own JSON form, which Python does not know")
	case v.CanInt():
		return p.enc.WriteToken(jsontext.Int(v.Int()))
	case v.CanUint():
		return p.enc.WriteToken(jsontext.Uint(v.Uint()))
	}
	return p.composite(v)
}

func (p pythonWriter) composite(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		return p.enc.WriteToken(jsontext.String(v.String()))
	case reflect.Bool:
		return p.enc.WriteToken(jsontext.Bool(v.Bool()))
	case reflect.Slice, reflect.Array:
		return p.list(v)
	case reflect.Map:
		return p.mapping(v)
	case reflect.Float32, reflect.Float64:
		return unwritable("Python writes floats differently: use an integer or a string")
	}
	return unwritable("Python has no JSON form for a " + typeName(v.Type()))
}

func (p pythonWriter) list(v reflect.Value) error {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return unwritable("Python has no JSON form for bytes")
	}
	if err := p.enc.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for i := range v.Len() {
		if err := p.value(v.Index(i)); err != nil {
			return err
		}
	}
	return p.enc.WriteToken(jsontext.EndArray)
}

func (p pythonWriter) mapping(v reflect.Value) error {
	if v.Type().Key().Kind() != reflect.String || hasOwnForm(v.Type().Key()) {
		return unwritable("the keys of a map must be strings")
	}
	if err := p.enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	members := map[string]reflect.Value{}
	for it := v.MapRange(); it.Next(); {
		members[it.Key().String()] = it.Value()
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !isASCII(name) {
			return unwritable("a member name is not ASCII")
		}
		if err := p.enc.WriteToken(jsontext.String(name)); err != nil {
			return err
		}
		if err := p.value(members[name]); err != nil {
			return err
		}
	}
	return p.enc.WriteToken(jsontext.EndObject)
}

// maxPythonDigits is where Python stops to print integers
// (sys.int_info.default_max_str_digits).
const maxPythonDigits = 4300

func (p pythonWriter) bigInt(n *big.Int) error {
	if n == nil {
		return p.enc.WriteToken(jsontext.Null)
	}
	return p.literal(n.String())
}

func (p pythonWriter) literal(s string) error {
	digits := s
	if digits != "" && digits[0] == '-' {
		digits = digits[1:]
	}
	switch {
	case jsontext.Value(s).Kind() != '0' || !jsontext.Value(s).IsValid() || !isInteger([]byte(s)):
		return unwritable("a json.Number is not an integer")
	case len(digits) > maxPythonDigits:
		return unwritable("Python does not print integers of more than 4300 digits")
	case digits == "0":
		return p.enc.WriteToken(jsontext.Int(0)) // -0 too
	}
	return p.enc.WriteValue(jsontext.Value(s))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escapeNonASCII rewrites JSON text as Python's ensure_ascii does. What is not
// printable ASCII can only occur inside of strings there.
func escapeNonASCII(text []byte) []byte {
	if !slices.ContainsFunc(text, isEscaped) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/2)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case !isEscaped(text[0]):
			out = append(out, text[0])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}

const del = 0x7f

func isEscaped(b byte) bool { return b >= del }
