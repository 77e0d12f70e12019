package primitives

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNamespace is the longest namespace of a [Key], in bytes.
	MaxNamespace = 255

	// MaxKeyPayload is the largest compact JSON form of a payload that [NewKey],
	// [NewFingerprint] and [FencekitKey] accept, in bytes.
	MaxKeyPayload = 16 << 20

	keyVersion        = "v1:"
	keyDomain         = "fencekit/key/v1\n"
	fingerprintDomain = "fencekit/fingerprint/v1\n"
)

// Key is the idempotency key of one logical operation: a namespace and a digest
// of what identifies the operation. It holds no part of the payload. Keys are
// comparable; the zero Key is invalid and stands for no operation.
type Key struct {
	namespace string
	digest    [32]byte
}

// NewKey derives a key from payload, within namespace. Equal payloads give equal
// keys in every process and build; the derivation is a wire format. Different
// payloads give different keys, up to a collision of SHA-256.
//
// The namespace separates operations that may have equal payloads. It is not
// hashed away but stays readable, so it must hold no personal data. It is valid
// UTF-8 of 1 to [MaxNamespace] bytes without control characters.
//
// Payloads are compared by their canonical JSON (RFC 8785: members in order, no
// white space, shortest floats), except that integers keep all their digits:
// 9007199254740993 and 9007199254740992 are different. What follows from that:
//   - 1, 1.0 and 1e0 are equal, and so are 0 and -0. A float written as a string
//     (a map key, or the string option of a field tag) keeps its sign. From 2^53
//     on, integers keep their digits and typed floats are written as floats, so
//     that a big.Int of 10^22 and the float64 1e22 are different.
//   - A nil slice or map equals an empty one. A nil pointer is null, and null is
//     not the same as an absent member. Fields are left out as their tags say.
//   - A [time.Time] keeps its text: one instant written in two time zones is two
//     payloads. A [time.Duration] is its nanoseconds.
//   - []byte is the base64 string; it equals a string of that text. [N]byte is a
//     list of numbers.
//   - Protobuf messages, at any depth, are their protobuf JSON form.
//   - Other types with MarshalJSON or MarshalText are what these return; so is,
//     as in encoding/json, a struct that has the method from an embedded field.
//
// Field tags mean what they mean to encoding/json, omitempty above all: a pointer
// to "" is written, a nil pointer is left out. There are these differences:
//   - An embedded non-struct needs a name in its tag.
//   - What encoding/json passes over is a [*KeyError]: a malformed tag ("-," too),
//     two fields of one name in one struct, the option "string" on lists, maps
//     and structs, the option "format" of newer JSON libraries.
//   - The option "string" has no effect on a json.Number.
//   - The option "embed" of newer JSON libraries works, but not in a build of
//     Go 1.26 with GOEXPERIMENT=jsonv2.
//   - A method with a pointer receiver is called however the value is held.
//
// What cannot be told apart safely is a [*KeyError]:
//   - a float of 2^53 or more that an interface holds, payload itself included,
//     or a google.protobuf.Value: decoding may have rounded an integer; and in raw
//     JSON and json.Number, a number of that size that is not an integer literal,
//     or one with more digits than a float64 holds. Typed floats may be of any
//     size: pass a pointer to one that is the whole payload;
//   - a struct that shows none of its fields, and a protobuf message with unknown
//     fields;
//   - NaN, infinities, invalid UTF-8, two members of one name, functions,
//     channels, values that refer to themselves or are nested deeper than 10,000
//     (pointers and interfaces count), a method that fails;
//   - more than [MaxKeyPayload] bytes of JSON.
//
// So is a payload that identifies nothing: null, "", or an object or array in
// which every leaf is one of these or an empty object or array. The names of
// members do not count, so a set kept in a map must be given as a sorted list.
// Numbers and booleans, zero or not, do count.
//
// NewKey neither modifies nor keeps payload. It is safe for concurrent use. It
// never panics, also if a method of payload does.
func NewKey(namespace string, payload any) (Key, error) {
	if reason := namespaceFault(namespace); reason != "" {
		return Key{}, &KeyError{Reason: reason}
	}
	frame := make([]byte, 0, len(keyDomain)+1+MaxNamespace)
	frame = append(frame, keyDomain...)
	frame = append(frame, byte(len(namespace)))
	frame = append(frame, namespace...)
	sum, err := digestOf(frame, payload, needContent)
	if err != nil {
		return Key{}, err
	}
	return Key{namespace, sum}, nil
}

func namespaceFault(ns string) string {
	switch {
	case ns == "":
		return "the namespace is empty"
	case len(ns) > MaxNamespace:
		return fmt.Sprintf("the namespace has %d bytes, more than %d", len(ns), MaxNamespace)
	case !utf8.ValidString(ns):
		return "the namespace is not valid UTF-8"
	case strings.ContainsFunc(ns, unicode.IsControl):
		return "the namespace holds a control character"
	}
	return ""
}

// Namespace is the namespace that the key was made with.
func (k Key) Namespace() string { return k.namespace }

// Digest is the SHA-256 of namespace and payload.
func (k Key) Digest() [32]byte { return k.digest }

// Valid reports whether k came from [NewKey] or [Key.UnmarshalText].
func (k Key) Valid() bool { return k.namespace != "" }

// String is "v1:<namespace>:<digest in 64 lower-case hex digits>". The namespace
// may hold colons; the last one ends it. The zero Key is "invalid key".
func (k Key) String() string {
	if !k.Valid() {
		return "invalid key"
	}
	return keyVersion + k.namespace + ":" + hex.EncodeToString(k.digest[:])
}

// MarshalText is the form of [Key.String]. The zero Key has none.
func (k Key) MarshalText() ([]byte, error) {
	if !k.Valid() {
		return nil, errors.New("primitives: the zero Key has no text")
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads exactly what [Key.MarshalText] writes: another version,
// upper-case digits or a namespace that [NewKey] would refuse are errors.
func (k *Key) UnmarshalText(text []byte) error {
	rest, ok := strings.CutPrefix(string(text), keyVersion)
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return errors.New(`primitives: the text of a key is "v1:<namespace>:<digest>"`)
	}
	namespace, digits := rest[:colon], rest[colon+1:]
	if reason := namespaceFault(namespace); reason != "" {
		return fmt.Errorf("primitives: the text of a key: %s", reason)
	}
	sum, err := hex.DecodeString(digits)
	if err != nil || len(sum) != 32 || strings.ToLower(digits) != digits {
		return errors.New("primitives: the digest in the text of a key must be 64 lower-case hex digits")
	}
	*k = Key{namespace, [32]byte(sum)}
	return nil
}
