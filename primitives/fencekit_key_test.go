package primitives_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

type pythonKey struct {
	Name    string
	Payload map[string]any
	Key     string
}

// pythonKeys reads what testdata/fencekit_keys.py wrote.
func pythonKeys(t testing.TB) []pythonKey {
	t.Helper()
	text, err := os.ReadFile("testdata/fencekit_keys.json")
	require.NoError(t, err)
	dec := stdjson.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var list []pythonKey
	require.NoError(t, dec.Decode(&list))
	require.NotEmpty(t, list)
	return list
}

func TestFencekitKeyIsPythons(t *testing.T) {
	t.Parallel()
	for _, c := range pythonKeys(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			got, err := primitives.FencekitKey("a:b{c}", c.Payload)
			require.NoError(t, err)
			require.Equal(t, c.Key, got)
		})
	}
}

// Every Go form of a value has the key of its plainest form.
func TestFencekitKeyOfEqualValues(t *testing.T) {
	t.Parallel()
	type name string
	type count uint16
	equal := map[string][]any{
		"7": {7, int8(7), int16(7), int32(7), int64(7), uint(7), uint8(7), uint64(7), count(7), uintptr(7),
			stdjson.Number("7"), big.NewInt(7), *big.NewInt(7), time.Duration(7)},
		"0":    {0, stdjson.Number("-0"), new(big.Int)},
		"text": {"text", name("text")},
		"null": {nil, any(nil), (*big.Int)(nil)},
		"list": {[]any{"a", "b"}, []string{"a", "b"}, [2]string{"a", "b"}, []name{"a", "b"}},
		"[]":   {[]any{}, []any(nil), []string{}, [0]int{}},
		"map":  {map[string]any{"a": 1}, map[string]int{"a": 1}, map[name]int{"a": 1}},
		"{}":   {map[string]any{}, map[string]int(nil)},
	}
	seen := map[string]string{}
	for label, forms := range equal {
		want, err := primitives.FencekitKey("ns", map[string]any{"v": forms[0]})
		require.NoError(t, err)
		require.NotContains(t, seen, want, "%s and %s share a key", label, seen[want])
		seen[want] = label
		for _, form := range forms[1:] {
			got, err := primitives.FencekitKey("ns", map[string]any{"v": form})
			require.NoError(t, err, "%s as %T", label, form)
			require.Equal(t, want, got, "%s as %T", label, form)
		}
	}
}

func TestFencekitKeyRefuses(t *testing.T) {
	t.Parallel()
	cyclic := []any{nil}
	cyclic[0] = cyclic
	cases := []struct {
		name    string
		payload map[string]any
		path    string
	}{
		{"float", map[string]any{"a": map[string]any{"b": 1.0}}, "/a/b"},
		{"float32 in a typed list", map[string]any{"a": []float32{1}}, "/a/0"},
		{"second element", map[string]any{"a": []any{1, []any{}, 2.5}}, "/a/2"},
		{"json.Number with a fraction", map[string]any{"n": stdjson.Number("1.0")}, "/n"},
		{"json.Number with an exponent", map[string]any{"n": stdjson.Number("1e3")}, "/n"},
		{"empty json.Number", map[string]any{"n": stdjson.Number("")}, "/n"},
		{"json.Number of anything", map[string]any{"n": stdjson.Number(`1,"b":2`)}, "/n"},
		{"json.Number with leading zero", map[string]any{"n": stdjson.Number("01")}, "/n"},
		{"4301 digits", map[string]any{"n": stdjson.Number("-1" + strings.Repeat("0", 4300))}, "/n"},
		{"name not ASCII", map[string]any{"b": map[string]any{"é": 1}}, "/b"},
		{"second name not ASCII", map[string]any{"b": map[string]any{"a": 1, "é": 1}}, "/b"},
		{"struct", map[string]any{"s": struct{ A int }{}}, "/s"},
		{"pointer", map[string]any{"p": new(int)}, "/p"},
		{"bytes", map[string]any{"p": []byte("x")}, "/p"},
		{"type with its own form", map[string]any{"t": time.Time{}}, "/t"},
		{"int keys", map[string]any{"m": map[int]string{1: "a"}}, "/m"},
		{"func", map[string]any{"f": func() {}}, "/f"},
		{"invalid UTF-8", map[string]any{"s": []any{"\xff"}}, "/s/0"},
		{"cyclic", map[string]any{"c": cyclic}, ""},
		{"too large", map[string]any{"s": strings.Repeat("x", primitives.MaxKeyPayload)}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := primitives.FencekitKey("ns", c.payload)
			fault := requireKeyError(t, err)
			if c.path != "" {
				require.Equal(t, c.path, fault.Path)
			}
		})
	}
}

func TestFencekitKeyChecksTheNamespace(t *testing.T) {
	t.Parallel()
	_, err := primitives.FencekitKey("", map[string]any{"a": 1})
	requireKeyError(t, err)
}

func ExampleFencekitKey() {
	key, err := primitives.FencekitKey("orders", map[string]any{"order": "A-1", "amount": 1250})
	fmt.Println(key, err)
	// Output: orders:439670c1aef574eab7052e276db55d9f9e38fc577756528f3637c95d55e752f0 <nil>
}

func TestFencekitKeyOfACycle(t *testing.T) {
	t.Parallel()
	list := []any{nil}
	list[0] = list
	_, err := primitives.FencekitKey("ns", map[string]any{"a": list})
	fault := requireKeyError(t, err)
	require.Less(t, len(fault.Path), 40, fault.Path)
	require.Contains(t, fault.Reason, "nested too deeply")
	var held any
	held = &held
	_, err = primitives.FencekitKey("ns", map[string]any{"a": held})
	requireKeyError(t, err)
}
