package primitives_test

import (
	stdjson "encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit-go/primitives"
)

type (
	leftOut struct {
		ID    string            `json:"id"`
		Note  *string           `json:"note,omitempty"`
		Inner *struct{}         `json:"inner,omitempty"`
		List  *[]int            `json:"list,omitempty"`
		Map   *map[string]int   `json:"map,omitempty"`
		Held  any               `json:"held,omitempty"`
		N     int               `json:"n,omitempty"`
		B     bool              `json:"b,omitempty"`
		F     float64           `json:"f,omitempty"`
		S     string            `json:",omitempty"`
		L     []string          `json:"l,omitempty"`
		M     map[string]string `json:"m,omitempty"`
		A     [0]int            `json:"a,omitempty"`
		Time  time.Time         `json:"time,omitempty"`
		Zero  time.Time         `json:"zero,omitzero"`
		P     *int              `json:"p,omitzero"`
	}
	allTags struct {
		Plain   int
		Named   int            `json:"spaced,omitzero,more"`
		Dash    int            `json:"-,omitzero"`
		Ignored int            `json:"-"`
		Odd     int            `json:"ä/$%-.{}<&>"`
		Unknown int            `json:"u,case:ignore,whatever"`
		Quoted  int            `json:",string"`
		QuotedB bool           `json:",string"`
		QuotedS string         `json:",string"`
		QuotedP *float64       `json:",string"`
		Bytes   []byte         `json:"bytes"`
		Named2  []letter       `json:"letters"`
		Array   [3]byte        `json:"array"`
		Array2  [2]letter      `json:"array2"`
		Nested  [2][2]byte     `json:"nested"`
		Wait    time.Duration  `json:"wait"`
		Big     *big.Int       `json:"big"`
		Ints    map[int]string `json:"ints"`
		inner
		*Outer
		Tagged Outer `json:"tagged"`
	}
	inner struct {
		Plain string // hidden by the outer one
		Deep  string
	}
	Outer struct {
		X, Y *int `json:",omitempty"`
	}
)

func leftOutCases() []leftOut {
	return []leftOut{
		{}, {ID: "a"}, {Note: ptr("")}, {Note: ptr("x")}, {Inner: &struct{}{}}, {List: &[]int{}}, {List: &[]int{0}},
		{Map: &map[string]int{}}, {Held: ""}, {Held: []int{}}, {Held: map[string]int{}}, {Held: 0}, {Held: false},
		{Held: ptr("")}, {Held: struct{}{}}, {Held: (*int)(nil)}, {N: 1}, {B: true}, {F: 0.5}, {S: "s"}, {L: []string{""}},
		{M: map[string]string{"": ""}}, {Time: time.Unix(1, 0).UTC()}, {Zero: time.Unix(1, 0).UTC()}, {P: ptr(0)},
	}
}

// A payload and what encoding/json makes of it have one key; what encoding/json
// tells apart has different ones.
func TestTagsMeanWhatTheyMeanToEncodingJSON(t *testing.T) {
	t.Parallel()
	payloads := []any{
		allTags{Bytes: []byte{}, Named2: []letter{}, Ints: map[int]string{}},
		allTags{
			1, 2, 3, 4, 5, 6, 7, true, "q", ptr(1.5), []byte{1, 2}, []letter("xy"), [3]byte{1, 2, 3}, [2]letter{'a', 'b'},
			[2][2]byte{{1}, {2}}, time.Second, big.NewInt(1 << 60), map[int]string{2: "b", 10: "a"},
			inner{"p", "d"}, &Outer{ptr(0), nil}, Outer{nil, ptr(0)},
		},
	}
	for _, payload := range leftOutCases() {
		payloads = append(payloads, payload, &payload, []any{payload}, struct{ leftOut }{payload})
	}
	texts, keys := map[primitives.Key]string{}, map[string]primitives.Key{}
	for i, payload := range payloads {
		text, err := stdjson.Marshal(payload)
		require.NoError(t, err)
		key := newKey(t, payload)
		require.Equal(t, newKey(t, stdjson.RawMessage(text)), key, "%s", text)
		if other, ok := texts[key]; ok {
			require.Equal(t, other, string(text), fmt.Sprint(i))
		}
		texts[key], keys[string(text)] = string(text), key
	}
	require.Len(t, texts, len(keys))
}

func TestOmittedFieldsDiffer(t *testing.T) {
	t.Parallel()
	texts := map[primitives.Key]string{}
	rapid.Check(t, func(t *rapid.T) {
		value := leftOut{ID: "a"}
		value.Note = rapid.Ptr(rapid.SampledFrom([]string{"", "x"}), true).Draw(t, "note")
		value.List = rapid.Ptr(rapid.SampledFrom([][]int{{}, {0}}), true).Draw(t, "list")
		value.Inner = rapid.Ptr(rapid.Just(struct{}{}), true).Draw(t, "inner")
		value.Held = rapid.SampledFrom([]any{nil, "", []int{}, 0, false}).Draw(t, "held")
		value.N = rapid.IntRange(0, 1).Draw(t, "n")
		text, err := stdjson.Marshal(value)
		require.NoError(t, err)
		key := newKey(t, value)
		require.Equal(t, newKey(t, stdjson.RawMessage(text)), key)
		if other, ok := texts[key]; ok {
			require.Equal(t, other, string(text), "two values share a key")
		}
		texts[key] = string(text)
	})
}

// As documented: encoding/json would write "5".
func TestStringOptionOfANumber(t *testing.T) {
	t.Parallel()
	type quoted struct {
		N stdjson.Number `json:",string"`
	}
	require.Equal(t, newKey(t, map[string]int{"N": 5}), newKey(t, quoted{"5"}))
}
