package primitives

import (
	"bytes"
	"crypto/sha256"
	stdjson "encoding/json"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// boundedText is an [io.Writer] that refuses more than `most` bytes.
type boundedText struct {
	b    []byte
	most int
}

const maxPooledText = 64 << 10

var texts = sync.Pool{New: func() any { return new(boundedText) }}

type emptiness bool

const (
	mayBeEmpty  emptiness = false
	needContent emptiness = true
)

// encoding writes Go values as JSON. Field tags and bytes are encoding/json's.
// Its other legacy options stay off: they would hide faults, tell nil slices from
// empty ones, and call a method depending on how the value is held.
var encoding = json.JoinOptions(
	json.Deterministic(true),
	jsonv1.FormatByteArrayAsArray(true),
	jsonv1.FormatBytesWithLegacySemantics(true),
	jsonv1.FormatDurationAsNano(true),
	jsonv1.OmitEmptyWithLegacySemantics(true),
	jsonv1.StringifyWithLegacySemantics(true),
	json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(writeNumber),
		json.MarshalToFunc(writeMessage),
	)),
)

// digestOf hashes frame and the canonical JSON of payload. Frames are such that
// none is a prefix of another, so the whole is injective.
func digestOf(frame []byte, payload any, need emptiness) ([32]byte, error) {
	return digestText(frame, func(t *boundedText) error { return t.canonicalize(payload, need) })
}

// digestText hashes frame and the text that write has written.
func digestText(frame []byte, write func(*boundedText) error) (sum [32]byte, err error) {
	text := texts.Get().(*boundedText) //nolint:errcheck // the pool holds nothing else
	text.b, text.most = text.b[:0], MaxKeyPayload
	defer func() {
		if cause := recover(); cause != nil {
			sum, err = [32]byte{}, panicError(cause)
		}
		if cap(text.b) <= maxPooledText {
			texts.Put(text)
		}
	}()
	if err := write(text); err != nil {
		return sum, err
	}
	h := sha256.New()
	h.Write(frame)
	h.Write(text.b)
	h.Sum(sum[:0])
	return sum, nil
}

// canonicalize fills t with the canonical JSON of payload. The encoder copies
// raw JSON, so that reordering in place never touches the caller's bytes.
func (t *boundedText) canonicalize(payload any, need emptiness) error {
	if fault := inspectPayload(payload); fault != nil { // first: the encoder follows some cycles forever
		return fault
	}
	if err := json.MarshalWrite(t, payload, encoding); err != nil {
		return encodingError(err)
	}
	content, err := t.normalize()
	if err == nil && need == needContent && !content {
		return &KeyError{Reason: "the payload is empty: it identifies nothing"}
	}
	return err
}

// normalize makes the JSON in t canonical, and reports whether it identifies anything.
func (t *boundedText) normalize() (content bool, err error) {
	content, fault := scanText(t.b, lossyNumber)
	if fault != nil {
		return false, fault
	}
	value := jsontext.Value(t.b)
	if err := value.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return false, encodingError(err)
	}
	t.b = value
	return content, nil
}

func (t *boundedText) Write(p []byte) (int, error) {
	if size := len(t.b) + len(p); size > t.most {
		return 0, &KeyError{Reason: fmt.Sprintf(
			"the payload has at least %d bytes of JSON, over the limit of %d", size, t.most)}
	}
	t.b = append(t.b, p...)
	return len(p), nil
}

// writeNumber writes a json.Number as the number it is. As a map key it stays a
// string.
func writeNumber(enc *jsontext.Encoder, n stdjson.Number) error {
	if kind, length := enc.StackIndex(enc.StackDepth()); kind == '{' && length%2 == 0 {
		return enc.WriteToken(jsontext.String(string(n)))
	}
	if jsontext.Value(n).Kind() != '0' {
		return &KeyError{Reason: "a json.Number is not a number"}
	}
	return enc.WriteValue(jsontext.Value(n))
}

// scanner reads JSON text that is known to be valid.
type scanner struct {
	src bytes.Reader
	dec *jsontext.Decoder
}

var scanners = sync.Pool{New: func() any {
	s := new(scanner)
	s.dec = jsontext.NewDecoder(&s.src, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return s
}}

// scanText reports whether text holds a number, a boolean or a non-empty string
// that is not a member name. It returns an error for the first number for which
// fault gives a reason, and for malformed text.
func scanText(text []byte, fault func(literal []byte) string) (content bool, _ *KeyError) {
	s := scanners.Get().(*scanner) //nolint:errcheck // the pool holds nothing else
	defer scanners.Put(s)
	s.src.Reset(text)
	s.dec.Reset(&s.src, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer s.src.Reset(nil)
	for s.dec.PeekKind() != 0 {
		leaf, err := s.next()
		if err != nil {
			return false, encodingError(err)
		}
		if leaf.Kind() == '0' {
			if reason := fault(leaf); reason != "" {
				return false, &KeyError{Path: pointer(s.dec.StackPointer()), Reason: reason}
			}
		}
		content = content || isContent(leaf)
	}
	return content, nil
}

// next reads one token. It returns its text if it is a leaf, and nil for
// brackets and member names.
func (s *scanner) next() (jsontext.Value, error) {
	switch s.dec.PeekKind() {
	case '{', '}', '[', ']':
		_, err := s.dec.ReadToken()
		return nil, err
	}
	kind, length := s.dec.StackIndex(s.dec.StackDepth())
	leaf, err := s.dec.ReadValue()
	if kind == '{' && length%2 == 0 {
		return nil, err
	}
	return leaf, err
}

func isContent(leaf jsontext.Value) bool {
	switch leaf.Kind() {
	case '0', 't', 'f':
		return true
	case '"':
		return len(leaf) > len(`""`)
	}
	return false
}
