package primitives_test

import (
	stdjson "encoding/json"
	"flag"
	"math"
	"math/big"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const goldenFile = "testdata/keys.json"

type order struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
	Note   string `json:"note,omitempty"`
}

type base struct{ Tenant string }

type combined struct {
	base
	order
	Sent time.Time
}

type listed struct {
	N int
	L []int
}

type goldenCase struct {
	name    string
	payload any
}

func goldenCases() []goldenCase {
	noon := time.Date(2026, 5, 6, 12, 0, 0, 1000, time.UTC)
	message := &descriptorpb.FieldDescriptorProto{Name: proto.String("n"), Number: proto.Int32(3)}
	var anyInt any = 7
	return []goldenCase{
		{"A07 two arguments", []any{"ab", "c"}},
		{"A07 two arguments split elsewhere", []any{"a", "bc"}},
		{"A07 one argument", []any{"abc"}},
		{"A07 space", []string{"a b"}},
		{"A07 space split", []string{"a", "b"}},
		{"A07 map", map[string]int{"y": 2, "x": 1}},
		{"A07 list", []int{1, 2}},
		{"A07 nil slice in a struct", listed{1, nil}},
		{"A07 empty slice in a struct", listed{1, []int{}}},
		{"A07 nil map in a list", []any{1, map[string]int(nil)}},
		{"A07 null in a list", []any{1, nil}},
		{"A16 0", 0},
		{"A16 -0.0", math.Copysign(0, -1)},
		{"A16 raw -0", stdjson.RawMessage("-0")},
		{"A16 raw -0.0", stdjson.RawMessage("-0.0e5")},
		{"A16 1", 1},
		{"A16 1.0", 1.0},
		{"A16 raw 1.0", stdjson.RawMessage("1.0")},
		{"A16 raw 10e-1", stdjson.RawMessage("10e-1")},
		{"A16 string 1", "1"},
		{"A16 UTC", noon},
		{"A16 one hour east", noon.In(time.FixedZone("", 3600))},
		{"A04 2^53", int64(1 << 53)},
		{"A04 2^53+1", int64(1<<53 + 1)},
		{"A04 raw 2^53+1", stdjson.RawMessage("9007199254740993")},
		{"A04 number 2^53+1", stdjson.Number("9007199254740993")},
		{"A04 largest uint64", uint64(math.MaxUint64)},
		{"A04 next uint64", uint64(math.MaxUint64 - 1)},
		{"A04 big.Int", new(big.Int).Lsh(big.NewInt(1), 70)},
		{"typed floats", []float64{0.1, 1e300, 1e21, 1e20, -2.5e-9, math.MaxFloat64, math.SmallestNonzeroFloat64}},
		{"typed float32", []float32{0.1, 16777216, math.MaxFloat32}},
		{"false", false},
		{"true", true},
		{"unicode", "é\u2028\u007f\x00\\\"/<&>😀"},
		{"names in UTF-16 order", map[string]int{"\ufb33": 1, "😀": 2, "ö": 3, "1": 4, "\r": 5}},
		{"struct", order{"A-1", 1250, ""}},
		{"pointer", &order{"A-1", 1250, ""}},
		{"raw message", stdjson.RawMessage(` {"amount": 1250, "id": "\u0041-1"} `)},
		{"combined", combined{base{"t"}, order{"A-1", 1250, "n"}, noon}},
		{"interface", struct{ V any }{&anyInt}},
		{"bytes", []byte("fence")},
		{"byte array", [4]byte{1, 2, 3, 4}},
		{"duration", 1500 * time.Millisecond},
		{"duration keys", map[time.Duration]int{time.Second: 1, -1: 2}},
		{"int keys", map[int]string{10: "a", 9: "b", -1: "c"}},
		{"number keys", map[stdjson.Number]stdjson.Number{"10": "5.50"}},
		{"own text", []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		{"quoted", struct {
			N int    `json:",string"`
			S string `json:",string"`
		}{5, "x"}},
		{"proto", message},
		{"proto inside", map[string]any{"m": []*descriptorpb.FieldDescriptorProto{message, nil}}},
		{"proto duration", durationpb.New(1500 * time.Millisecond)},
		{"proto timestamp", timestamppb.New(noon)},
		{"proto struct", &structpb.Struct{Fields: map[string]*structpb.Value{
			"b": structpb.NewNumberValue(1), "a": structpb.NewNullValue()}}},
	}
}

// The derivation is a wire format. A change of this file breaks every record
// that is stored anywhere, and needs a new version in the frame.
func TestGoldenKeys(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, c := range goldenCases() {
		key := newKey(t, c.payload)
		require.NotContains(t, got, c.name)
		got[c.name] = key.String()
	}
	fp, err := newFingerprintOf(order{"A-1", 1250, ""})
	require.NoError(t, err)
	got["fingerprint of struct"] = fp
	if *update {
		text, err := stdjson.MarshalIndent(got, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(goldenFile, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(goldenFile)
	require.NoError(t, err)
	var want map[string]string
	require.NoError(t, stdjson.Unmarshal(text, &want))
	require.Equal(t, want, got)
}

// Cases that share a key are listed; all others differ.
func TestGoldenKeysShareOnlyOnPurpose(t *testing.T) {
	t.Parallel()
	equal := map[string]string{
		"A07 empty slice in a struct": "A07 nil slice in a struct",
		"A16 -0.0":                    "A16 0", "A16 raw -0": "A16 0", "A16 raw -0.0": "A16 0",
		"A16 1.0": "A16 1", "A16 raw 1.0": "A16 1", "A16 raw 10e-1": "A16 1",
		"A04 raw 2^53+1": "A04 2^53+1", "A04 number 2^53+1": "A04 2^53+1",
		"pointer": "struct", "raw message": "struct",
		"proto timestamp": "A16 UTC",
	}
	first := map[string]string{}
	for _, c := range goldenCases() {
		key := newKey(t, c.payload).String()
		require.Equal(t, equal[c.name], first[key], c.name)
		if first[key] == "" {
			first[key] = c.name
		}
	}
}
