package primitives_test

import (
	stdjson "encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit-go/primitives"
)

// anyTree draws a JSON value from so few parts that equal ones come up often.
func anyTree(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.SampledFrom([]any{nil, true, false, "", "a", "ab", "1", "null", "[]", "\x00", "é", "😀", `"`, ","}),
		rapid.SampledFrom([]any{0, 1, -1, 10, int64(1 << 53), int64(1<<53 + 1), uint64(math.MaxUint64), 0.5, 1.0, -2.5e-7}),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	inner := anyTree(depth - 1)
	names := rapid.SampledFrom([]string{"", "a", "b", "ab", "é", "\ufb33", "😀", `":`})
	return rapid.OneOf(append(leaves,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(list []any) any { return append([]any{}, list...) }),
		rapid.Map(rapid.MapOfN(names, inner, 0, 3), func(members map[string]any) any { return members }),
	)...)
}

// encoding/json sorts members too, and keeps integers; of these values it writes
// one text each. So keys are equal exactly where the texts are.
func TestKeysAreEqualExactlyForEqualValues(t *testing.T) {
	t.Parallel()
	texts := map[primitives.Key]string{}
	keys := map[string]primitives.Key{}
	rapid.Check(t, func(t *rapid.T) {
		value := []any{1, anyTree(3).Draw(t, "value")}
		text, err := stdjson.Marshal(value)
		require.NoError(t, err)
		key := newKey(t, value)
		if other, ok := texts[key]; ok {
			require.Equal(t, other, string(text), "two values share a key")
		}
		if other, ok := keys[string(text)]; ok {
			require.Equal(t, other, key, "one value has two keys")
		}
		texts[key], keys[string(text)] = string(text), key
		require.Equal(t, key, newKey(t, stdjson.RawMessage(text)))
	})
}

// Pointers, structs with interface fields and named types change nothing.
func TestHowAValueIsHeldDoesNotMatter(t *testing.T) {
	t.Parallel()
	type text string
	type list []any
	type holder struct {
		V any `json:"v"`
	}
	rapid.Check(t, func(t *rapid.T) {
		value := anyTree(2).Draw(t, "value")
		want := newKey(t, map[string]any{"v": value, "n": 1})
		type numbered struct {
			*holder
			N **int `json:"n"`
		}
		require.Equal(t, want, newKey(t, &numbered{&holder{&value}, ptr(ptr(1))}))
		require.Equal(t, want, newKey(t, map[text]*any{"v": &value, "n": ptr(any(1))}))
		require.Equal(t, newKey(t, []any{1, value}), newKey(t, list{1, &value}))
	})
}
