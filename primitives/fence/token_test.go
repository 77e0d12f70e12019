package fence_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

const (
	maxEpoch = 8191
	maxLow   = 1<<50 - 1
)

// anyValue draws a Value that can have been granted.
func anyValue() *rapid.Generator[fence.Value] {
	return rapid.Custom(func(t *rapid.T) fence.Value {
		epoch := rapid.Int64Range(0, maxEpoch).Draw(t, "epoch")
		low := rapid.Int64Range(1, maxLow).Draw(t, "low")
		v, err := fence.Pack(epoch, low)
		require.NoError(t, err)
		return v
	})
}

func TestPackBounds(t *testing.T) {
	t.Parallel()
	cases := []struct {
		epoch, low int64
		want       fence.Value // 0: refused
	}{
		{0, 0, 0},
		{0, 1, 1},
		{0, maxLow, maxLow},
		{0, maxLow + 1, 0},
		{1, 0, maxLow + 1},
		{maxEpoch, maxLow, math.MaxInt64},
		{maxEpoch + 1, 1, 0},
		{-1, 1, 0},
		{1, -1, 0},
		{math.MinInt64, math.MinInt64, 0},
		{math.MaxInt64, math.MaxInt64, 0},
	}
	for _, c := range cases {
		v, err := fence.Pack(c.epoch, c.low)
		require.Equal(t, c.want, v)
		require.Equal(t, c.want == 0, err != nil, "%d, %d: %v", c.epoch, c.low, err)
	}
}

func TestPackKeepsItsParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.Int64Range(0, maxEpoch).Draw(t, "epoch")
		low := rapid.Int64Range(1, maxLow).Draw(t, "low")
		v, err := fence.Pack(epoch, low)
		require.NoError(t, err)
		require.True(t, v.Valid())
		require.Equal(t, [2]int64{epoch, low}, [2]int64{v.Epoch(), v.Low()})
	})
}

// The epoch decides; low only within one epoch.
func TestValuesAreOrderedByEpochThenLow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyValue().Draw(t, "a"), anyValue().Draw(t, "b")
		newer := a.Epoch() > b.Epoch() || a.Epoch() == b.Epoch() && a.Low() > b.Low()
		require.Equal(t, newer, a > b)
	})
}

func TestValueRoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue().Draw(t, "v")
		parsed, err := fence.ParseValue(v.String())
		require.NoError(t, err)
		require.Equal(t, v, parsed)

		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, `"`+v.String()+`"`, string(text))
		var decoded, scanned fence.Value
		require.NoError(t, json.Unmarshal(text, &decoded))
		require.Equal(t, v, decoded)

		stored, err := v.Value()
		require.NoError(t, err)
		require.NoError(t, scanned.Scan(stored))
		require.Equal(t, v, scanned)
	})
}

func TestParseValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fence.Value{
		"1": 1, "9223372036854775807": math.MaxInt64, "0000000000000000042": 42, "9007199254740993": 1<<53 + 1,
	} {
		v, err := fence.ParseValue(text)
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	for _, text := range []string{"", "0", "-0", "00", "-1", "+1", "9223372036854775808", "1.0", "1e3", "0x1", "1_0", " 1", "1\n", "١"} {
		v, err := fence.ParseValue(text)
		require.Error(t, err, "%q", text)
		require.Zero(t, v)
	}
}

func TestJSONRefusesWhatMayHaveLostDigits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`1`, `9007199254740993`, `1.5`, `null`, `true`, `{}`, `""`, `"-1"`, `"+1"`, `"1.0"`, `"9223372036854775808"`} {
		v := fence.Value(7)
		require.Error(t, json.Unmarshal([]byte(text), &v), text)
		require.Equal(t, fence.Value(7), v, text)
	}
}

func TestTokenJSON(t *testing.T) {
	t.Parallel()
	for text, tok := range map[string]fence.Token{
		`{"resource":"account/42","value":"9007199254740993","owner":"0a"}`: {Resource: "account/42", Value: 1<<53 + 1, Owner: "0a"},
		`{"resource":"account/42","value":"1"}`:                             {Resource: "account/42", Value: 1},
		`{"resource":"","value":"0"}`:                                       {},
	} {
		encoded, err := json.Marshal(tok)
		require.NoError(t, err)
		require.JSONEq(t, text, string(encoded))
		var back fence.Token
		require.NoError(t, json.Unmarshal(encoded, &back))
		require.Equal(t, tok, back)
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	var _ sql.Scanner = new(fence.Value)
	v := fence.Value(7)
	require.NoError(t, v.Scan(nil))
	require.False(t, v.Valid(), "NULL is no token")
	require.NoError(t, v.Scan(int64(0)))
	require.NoError(t, v.Scan(int64(math.MaxInt64)))
	require.Equal(t, fence.Value(math.MaxInt64), v)

	for _, src := range []any{int64(-1), 1.0, "1", []byte("1"), true, int32(1)} {
		v := fence.Value(7)
		require.Error(t, v.Scan(src), "%T", src)
		require.Equal(t, fence.Value(7), v)
	}
}

func TestDriverValue(t *testing.T) {
	t.Parallel()
	stored, err := driver.DefaultParameterConverter.ConvertValue(fence.Value(1<<53 + 1))
	require.NoError(t, err)
	require.Equal(t, int64(1<<53+1), stored)
	_, err = fence.Value(-1).Value()
	require.Error(t, err, "Scan would refuse to read it back")
}

func TestTokenValid(t *testing.T) {
	t.Parallel()
	require.True(t, fence.Token{Resource: "r", Value: 1}.Valid())
	for _, tok := range []fence.Token{{}, {Resource: "r"}, {Value: 1}, {Resource: "r", Value: -1, Owner: "o"}} {
		require.False(t, tok.Valid(), "%v", tok)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	older, newer := fence.Token{Resource: "r", Value: 1, Owner: "z"}, fence.Token{Resource: "r", Value: 2, Owner: "a"}
	for _, c := range []struct {
		a, b fence.Token
		want int
	}{{older, newer, -1}, {newer, older, 1}, {older, older, 0}} {
		got, err := c.a.Compare(c.b)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := older.Compare(fence.Token{Resource: "s", Value: 2})
	require.ErrorContains(t, err, `"r" and "s"`)
}

// Tokens go to logs; the owner nonce would let a log reader pass for the holder.
func TestStringLeavesOutTheOwner(t *testing.T) {
	t.Parallel()
	text := fence.Token{Resource: "account/42", Value: 7, Owner: "nonce"}.String()
	require.Equal(t, "account/42#7", text)
	require.False(t, strings.Contains(text, "nonce"))
}

func ExamplePack() {
	old, _ := fence.Pack(0, 200_000_000_000_000) // a clock far ahead
	promoted, _ := fence.Pack(1, 1)              // a higher epoch wins anyway
	fmt.Println(old, promoted, promoted > old)
	// Output: 200000000000000 1125899906842625 true
}

func ExampleValue_MarshalJSON() {
	text, _ := json.Marshal(fence.Token{Resource: "account/42", Value: 1<<53 + 1})
	fmt.Println(string(text))
	// Output: {"resource":"account/42","value":"9007199254740993"}
}
