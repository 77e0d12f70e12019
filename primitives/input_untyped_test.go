package primitives

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// N10: what an interface holds, as a workflow passes it, and as a worker decodes it.
func TestUntypedValuesCountAsDecoded(t *testing.T) {
	t.Parallel()
	type nested struct {
		A int
		B []string
		C map[string]int
	}
	for name, v := range map[string]any{
		"nil slice": []string(nil), "nil map": map[string]int(nil), "nil bytes": []byte(nil), "nested nil": [][]string{nil},
		"nil pointer": (*nested)(nil), "zero fields": nested{}, "pointer": &nested{A: 1}, "form held by value": pointerForm{1},
		"form held by pointer": &pointerForm{1}, "empty": []string{}, "bytes": []byte{0, 255}, "number": 7, "float": 1.5, "text": "<&>",
		"duration": time.Second, "time": time.Unix(1, 1).UTC(), "list": []any{1, "a", nil, []int(nil)}, "map": map[int]any{3: []byte(nil)},
		"big": big.NewInt(77), "address": netip.MustParseAddr("::1"), "array": [2][]string{},
	} {
		for place, wrap := range map[string]func(any) any{
			"in a map":       func(v any) any { return &map[string]any{"id": 1, "v": v} },
			"in a list":      func(v any) any { return &[]any{v} },
			"in a struct":    func(v any) any { return &struct{ V any }{v} },
			"as an argument": func(v any) any { return &v },
			"deeper":         func(v any) any { return &map[string][]map[string]any{"x": {{"y": v}}} },
		} {
			live := wrap(v)
			text, err := json.Marshal(live)
			require.NoError(t, err)
			decoded := reflect.New(reflect.TypeOf(live).Elem())
			require.NoError(t, json.Unmarshal(text, decoded.Interface()))
			require.Equal(t, input(t, live), input(t, decoded.Interface()), "%s %s", name, place)
		}
	}
}

// What a type holds comes back as it was, or the digest does not see the difference.
func TestTypedValuesCountAsDecoded(t *testing.T) {
	t.Parallel()
	type all struct {
		Raw     json.RawMessage
		Number  json.Number
		List    *[]string
		Map     *map[string]int
		Bytes   *[]byte
		Pointer **int
		RawP    *json.RawMessage
		Form    *nullForm
		Raws    [2]json.RawMessage
		Numbers []json.Number
		ByName  map[string]json.Number
		NumberP *json.Number
		Any     any
	}
	for name, fill := range map[string]func(*all){
		"nothing": func(*all) {}, "nil list": func(a *all) { a.List = new([]string) }, "nil map": func(a *all) { a.Map = new(map[string]int) },
		"nil bytes": func(a *all) { a.Bytes = new([]byte) }, "nil pointer": func(a *all) { a.Pointer = new(*int) },
		"null": func(a *all) { a.RawP = ptr(json.RawMessage("null")) }, "raw null": func(a *all) { a.Raw = json.RawMessage("null") },
		"null form": func(a *all) { a.Form = &nullForm{} }, "empty numbers": func(a *all) { a.Numbers = []json.Number{""} },
		"a number by name": func(a *all) { a.ByName = map[string]json.Number{"a": ""} }, "a pointer to a number": func(a *all) { a.NumberP = new(json.Number) },
		"zero": func(a *all) { a.Number = "0" }, "a raw object": func(a *all) { a.Raw = json.RawMessage(`{ "b":1, "a":2 }`) },
		"an untyped pointer": func(a *all) { a.Any = new([]string) },
	} {
		var live all
		fill(&live)
		text, err := json.Marshal(live)
		require.NoError(t, err)
		var decoded all
		require.NoError(t, json.Unmarshal(text, &decoded))
		require.Equal(t, input(t, &live), input(t, &decoded), name)
		require.Equal(t, input(t, &live, ptr(1)), input(t, &decoded, ptr(1)), name)
	}
	require.NotEqual(t, input(t, &all{List: &[]string{}}), input(t, &all{}), "a pointer to something counts")
}

type nullForm struct{}

func (nullForm) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func (*nullForm) UnmarshalJSON([]byte) error { return nil }

// An argument whose parameter is not known may be held by an interface: zeros differ there.
func TestArgumentsOfUnknownType(t *testing.T) {
	t.Parallel()
	seen := map[Fingerprint]any{}
	for _, v := range []any{nil, "", 0, false, []any{}, map[string]any{}, 0.5} {
		f := input(t, ptr("name"), v)
		require.NotContains(t, seen, f, "%v", v)
		seen[f] = v
	}
	require.Equal(t, input(t, ptr("name")), input(t, ptr("name"), nil))
	require.Equal(t, input(t, ptr("name")), input(t, ptr("name"), struct{ N int }{}))
}

// set writes its members in the order of a map, as many do.
type set map[string]struct{}

func (s set) MarshalJSON() ([]byte, error) {
	var list []string
	for member := range s {
		list = append(list, member)
	}
	return json.Marshal(list)
}

// A form that is another one each time is no key.
func TestAFormWithoutOrderIsRefused(t *testing.T) {
	t.Parallel()
	members := set{}
	for i := range 9 {
		members[fmt.Sprint(i)] = struct{}{}
	}
	for _, v := range []any{&members, &struct{ Members set }{members}, &[]struct{ M *set }{{&members}}} {
		_, err := NewInput([]any{v}, 0)
		require.ErrorContains(t, err, "primitives.set writes itself in another order each time")
	}
	_, err := NewInput([]any{&set{"a": {}}}, 0)
	require.NoError(t, err)
}

// What encoding/json would pass over in silence is refused: two inputs could not be told apart.
func TestUntypedValuesThatHide(t *testing.T) {
	t.Parallel()
	type order struct{ Amount big.Int }
	amount := *big.NewInt(1)
	for path, v := range map[string]any{
		"/0": &[]any{"\xff"}, "/0/m/v": &struct {
			M map[string]any `json:"m"`
		}{map[string]any{"v": amount}},
		"/0/0": &[]any{amount}, "/0/0/Amount": &[]any{order{amount}}, "/0/0/0": &[]any{[1]big.Int{amount}},
		"/0/1": &[]any{1, map[int]big.Int{1: amount}},
	} {
		_, err := NewInput([]any{v}, 0)
		var e *KeyError
		require.ErrorAs(t, err, &e, path)
		require.Contains(t, e.Path, path)
	}
	for _, v := range []any{&[]any{&amount}, &[]any{&order{amount}}, &[]any{[]big.Int{amount}}, &[]any{&[1]big.Int{amount}}} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.Contains(t, string(text), "1", "or the test shows nothing")
		_, err = NewInput([]any{v}, 0)
		require.NoError(t, err)
	}
}
