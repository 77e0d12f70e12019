package primitives_test

import (
	"bytes"
	stdjson "encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

type fuzzed struct {
	Text  string
	Int   int64
	Uint  uint64
	Float float64
	Bytes []byte
	Any   any
	Map   map[string]any
	List  []any `json:",omitempty"`

	Note  *string          `json:"note,omitempty"`
	Inner *struct{ A int } `json:",omitempty"`
	Slice *[]string        `json:",omitempty"`
	Held  any              `json:",omitempty"`
	Count int              `json:"n,omitempty"`
}

// FuzzKey: a value and its JSON round trip have one key; values that differ have
// different ones.
func FuzzKey(f *testing.F) {
	f.Add("text", "é", int64(1<<53+1), uint64(math.MaxUint64), 0.1, []byte{1, 0xff}, true)
	f.Add("", "\x00", int64(-1), uint64(0), math.Copysign(0, -1), []byte(nil), false)
	f.Add("\xff", "\u2028", int64(0), uint64(1), 1e300, []byte("x"), true)
	f.Add("a", "a", int64(0), uint64(1), math.NaN(), []byte("x"), true)
	f.Fuzz(func(t *testing.T, a, b string, i int64, u uint64, fl float64, raw []byte, flag bool) {
		if raw == nil {
			raw = []byte{} // encoding/json writes nil bytes as null
		}
		value := fuzzed{a, i, u, fl, raw, []any{b, flag}, map[string]any{"a" + a: i, "b" + b: fl, "c": map[string]any{b: a}}, nil, nil, nil, nil, nil, int(int32(i))}
		if flag {
			value.Note, value.Slice, value.Held = &b, &[]string{}, a
			value.List = []any{u, nil, a}
		}
		key, err := primitives.NewKey("ns", value)
		keyable := utf8.ValidString(a) && utf8.ValidString(b) && math.Abs(fl) < 1<<53
		require.Equal(t, keyable, err == nil, "%v", err)
		if err != nil {
			requireKeyError(t, err)
			return
		}
		requireRoundTrip(t, value, key)
		requireDifferent(t, value, key)
	})
}

func requireRoundTrip(t *testing.T, value fuzzed, key primitives.Key) {
	t.Helper()
	text, err := stdjson.Marshal(value)
	require.NoError(t, err)
	kept := bytes.Clone(text)
	require.Equal(t, key, newKey(t, stdjson.RawMessage(text)))
	require.Equal(t, kept, text)
	var indented bytes.Buffer
	require.NoError(t, stdjson.Indent(&indented, text, " ", "\t"))
	require.Equal(t, key, newKey(t, jsontext.Value(indented.Bytes())))

	dec := stdjson.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var members map[string]any // also another order of members
	require.NoError(t, dec.Decode(&members))
	require.Equal(t, key, newKey(t, members))
}

// other is nil for a pointer and a pointer for nil.
func other[T any](p *T, v T) *T {
	if p != nil {
		return nil
	}
	return &v
}

func requireDifferent(t *testing.T, value fuzzed, key primitives.Key) {
	t.Helper()
	for _, change := range []func(*fuzzed){
		func(v *fuzzed) { v.Text += " " },
		func(v *fuzzed) { v.Int++ },
		func(v *fuzzed) { v.Uint-- },
		func(v *fuzzed) { v.Float = math.Nextafter(v.Float, math.MaxFloat64) },
		func(v *fuzzed) { v.Bytes = append(bytes.Clone(v.Bytes), 0) },
		func(v *fuzzed) { v.Any = []any{v.Any} },
		func(v *fuzzed) { v.Any = nil },
		func(v *fuzzed) { v.Map = nil },
		func(v *fuzzed) { v.List = append(v.List, nil) },
		func(v *fuzzed) { v.Note = other(v.Note, "") },
		func(v *fuzzed) { v.Inner = other(v.Inner, struct{ A int }{}) },
		func(v *fuzzed) { v.Slice = other(v.Slice, []string{}) },
		func(v *fuzzed) { v.Held = []any{v.Held} },
		func(v *fuzzed) { v.Count++ },
	} {
		changed := value
		change(&changed)
		require.NotEqual(t, key, newKey(t, changed))
	}
}

// FuzzRawKey: raw JSON is refused or has the key of its canonical form, never a
// panic, and never the key of a text of another value.
func FuzzRawKey(f *testing.F) {
	for _, text := range []string{
		`{"b":[1,2.50,-0,1e2],"a":{"\u0041":null}}`, `9007199254740993.0`, `1e300`, `"\ud800"`, `{"a":1,"a":2}`, "[\xff]",
		`0.1000000000000000055511151231257827`, `[[[`, `[1e400,-1E-999]`, `123456789012345678901234567890`, ` "x" `, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := primitives.NewKey("ns", stdjson.RawMessage(text))
		if err != nil {
			requireKeyError(t, err)
			return
		}
		canonical := jsontext.Value(bytes.Clone(text))
		require.NoError(t, canonical.Canonicalize(jsontext.CanonicalizeRawInts(false)))
		require.Equal(t, key, newKey(t, canonical))
		if kind := canonical.Kind(); kind == '0' {
			requireSameNumber(t, string(text), string(canonical))
		}
		require.NotEqual(t, key, newKey(t, []any{stdjson.RawMessage(text)}))
	})
}

// requireSameNumber: the canonical form has the value of the text, exactly.
func requireSameNumber(t *testing.T, text, canonical string) {
	t.Helper()
	text = string(bytes.TrimSpace([]byte(text)))
	if canonical == "0" { // big.Rat cannot hold every exponent of zero
		mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
		text = mantissa
	}
	require.Zero(t, ratOf(t, text).Cmp(ratOf(t, canonical)), "%s became %s", text, canonical)
}

// FuzzFencekitKey: a mapping and its JSON round trip have one key.
func FuzzFencekitKey(f *testing.F) {
	f.Add("a", "é😀\x7f", int64(math.MinInt64), true)
	f.Add("", "\u2028\x00", int64(1<<53+1), false)
	f.Add("é", "\xff", int64(0), false)
	f.Fuzz(func(t *testing.T, name, text string, n int64, flag bool) {
		payload := map[string]any{name: []any{n, text, nil}, "m": map[string]any{name: text, "n": n}, "f": flag}
		key, err := primitives.FencekitKey("ns", payload)
		if err != nil {
			requireKeyError(t, err)
			require.False(t, isASCII(name) && utf8.ValidString(text))
			return
		}
		require.True(t, isASCII(name) && (utf8.ValidString(text) || name == "m" || name == "f"))
		encoded, err := stdjson.Marshal(payload)
		require.NoError(t, err)
		dec := stdjson.NewDecoder(bytes.NewReader(encoded))
		dec.UseNumber()
		var back map[string]any
		require.NoError(t, dec.Decode(&back))
		again, err := primitives.FencekitKey("ns", back)
		require.NoError(t, err)
		require.Equal(t, key, again)
		back["extra"] = rand.Int()
		other, err := primitives.FencekitKey("ns", back)
		require.NoError(t, err)
		require.NotEqual(t, key, other)
	})
}
