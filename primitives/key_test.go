package primitives_test

import (
	"crypto/sha256"
	stdjson "encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/fencekit/fencekit-go/primitives"
)

// The frame is spelled out here, so that a change of it cannot pass unseen.
func TestDigestIsSHA256OfFrameAndCanonicalJSON(t *testing.T) {
	t.Parallel()
	payload := map[string]any{"b": []any{1.0, "é"}, "a": int64(math.MaxInt64)}
	canonical := `{"a":9223372036854775807,"b":[1,"é"]}`
	require.Equal(t, sha256.Sum256([]byte("fencekit/key/v1\n\x02ns"+canonical)), newKey(t, payload).Digest())
	fp, err := newFingerprintOf(payload)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte("fencekit/fingerprint/v1\n"+canonical))), fp)
}

// A10: the namespace is part of the key, and cannot be shifted into the payload.
func TestA10NamespacesSeparate(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]string{}
	for _, ns := range []string{"debit", "notify", "debit:", "debi", "Debit"} {
		for _, payload := range []string{"ref-1", "tref-1", ":ref-1"} {
			key, err := primitives.NewKey(ns, payload)
			require.NoError(t, err)
			require.NotContains(t, seen, key.Digest())
			seen[key.Digest()] = ns
		}
	}
}

// A13: neither a key nor its text shows the payload.
func TestA13KeyHoldsNoValue(t *testing.T) {
	t.Parallel()
	key := newKey(t, order{ID: secret})
	require.NotContains(t, fmt.Sprintf("%v %+v %s", key, key, key), secret)
	require.Regexp(t, `^v1:ns:[0-9a-f]{64}$`, key.String())
}

func TestA04NeighboursDiffer(t *testing.T) {
	t.Parallel()
	type typed struct{ N int64 }
	neighbours := [][2]any{
		{typed{1<<53 + 1}, typed{1 << 53}},
		{uint64(math.MaxUint64), uint64(math.MaxUint64 - 1)},
		{stdjson.RawMessage(`{"N":9007199254740993}`), stdjson.RawMessage(`{"N":9007199254740992}`)},
		{map[string]any{"N": stdjson.Number("9007199254740993")}, map[string]any{"N": stdjson.Number("9007199254740992")}},
		{map[string]any{"N": int64(1<<53 + 1)}, map[string]any{"N": int64(1 << 53)}},
	}
	for _, pair := range neighbours {
		require.NotEqual(t, newKey(t, pair[0]), newKey(t, pair[1]), "%v", pair)
	}
	newKey(t, map[string]any{"f": struct{ F, G float64 }{1e300, 1 << 60}, "l": []float64{1e300}})
	newKey(t, ptr(1e300))
	newKey(t, map[string]any{"largest": float64(1<<53 - 1), "half": 0.5})
}

type letter byte

func TestEqualPayloads(t *testing.T) {
	t.Parallel()
	type renamed struct {
		Amount int32  `json:"amount"`
		ID     string `json:"id"`
		hidden int
	}
	groups := map[string][]any{
		"struct, map and raw": {
			order{"A", 1, ""}, &order{"A", 1, ""}, renamed{1, "A", 9}, map[string]any{"amount": 1, "id": "A"},
			stdjson.RawMessage(`{"id":"\u0041","amount":1e0}`), jsontext.Value("\n{ \"amount\":1, \"id\":\"A\" }"),
		},
		"embedded": {
			combined{base{"t"}, order{"A", 1, ""}, time.Unix(0, 0).UTC()},
			map[string]any{"Tenant": "t", "id": "A", "amount": 1, "Sent": "1970-01-01T00:00:00Z"},
		},
		"zero":       {0, 0.0, math.Copysign(0, -1), stdjson.Number("-0"), stdjson.RawMessage("0e9"), float32(0)},
		"bytes":      {[]byte("ab"), "YWI=", []letter("ab")},
		"byte array": {[2]byte{'a', 'b'}, [2]letter{'a', 'b'}, []int{97, 98}},
		"nil":        {[]any{1, []int(nil)}, []any{1, []int{}}, []any{1, []string{}}, stdjson.RawMessage(`[1,[]]`)},
		"null":       {[]any{1, nil}, []any{1, (*int)(nil)}, []any{1, stdjson.RawMessage(nil)}, []any{1, (*order)(nil)}, []any{1, (*descriptorpb.DescriptorProto)(nil)}},
		"duration":   {time.Second, 1000000000},
		"proto":      {&descriptorpb.DescriptorProto{Name: proto.String("n")}, map[string]string{"name": "n"}},
		"any":        {packed(&descriptorpb.DescriptorProto{Name: proto.String("n")}), map[string]string{"@type": "type.googleapis.com/google.protobuf.DescriptorProto", "name": "n"}},
		"rest":       {withRest{1, map[string]any{"x": 2}}, withRawRest{1, jsontext.Value(`{"x":2.0}`)}, map[string]int{"A": 1, "x": 2}},
	}
	require.NotEqual(t, newKey(t, ptr(1e22)), newKey(t, stdjson.RawMessage("1"+strings.Repeat("0", 22)))) // as documented
	seen := map[primitives.Key]string{}
	for name, group := range groups {
		want := newKey(t, group[0])
		require.NotContains(t, seen, want, "%s and %s", name, seen[want])
		seen[want] = name
		for _, payload := range group[1:] {
			require.Equal(t, want, newKey(t, payload), "%s: %T", name, payload)
		}
	}
}

// The order of a map's members is random in Go, and so is protojson's white
// space.
func TestKeyIsStable(t *testing.T) {
	t.Parallel()
	members := map[string]any{}
	for i := range 50 {
		members[fmt.Sprint("name", i)] = map[string]int{"b": i, "a": -i}
	}
	message := &descriptorpb.DescriptorProto{Name: proto.String("n"), ReservedName: []string{"a", "b"}}
	payload := []any{members, message, []*anypb.Any{packed(message).(*anypb.Any)}}
	want := newKey(t, payload)
	for range 50 {
		require.Equal(t, want, newKey(t, payload))
	}
}

// Canonicalization works in place; the caller's bytes must not be the place.
func TestPayloadIsNotModified(t *testing.T) {
	t.Parallel()
	const text = ` {"b":1.0, "a":{"d":[], "c":"\u0041"}} `
	direct, nested, value := []byte(text), []byte(text), jsontext.Value(text)
	newKey(t, stdjson.RawMessage(direct))
	newKey(t, map[string]any{"r": []stdjson.RawMessage{nested}, "v": &value})
	newKey(t, value)
	require.Equal(t, []string{text, text, text}, []string{string(direct), string(nested), string(value)})
}

func TestPayloadSizeLimit(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("x", primitives.MaxKeyPayload-len(`""`))
	newKey(t, fits)
	_, err := primitives.NewKey("ns", fits+"x")
	require.Contains(t, requireKeyError(t, err).Reason, "16777217 bytes")
	spaces := stdjson.RawMessage("[1" + strings.Repeat(" ", primitives.MaxKeyPayload) + "]")
	require.Equal(t, newKey(t, []int{1}), newKey(t, spaces))
}

func TestKeyText(t *testing.T) {
	t.Parallel()
	for _, ns := range []string{"ns", "a:b:", "v1:", "größe {}", ":"} {
		key, err := primitives.NewKey(ns, rand.Int())
		require.NoError(t, err)
		text, err := stdjson.Marshal(map[string]primitives.Key{"key": key})
		require.NoError(t, err)
		var back map[string]primitives.Key
		require.NoError(t, stdjson.Unmarshal(text, &back))
		require.Equal(t, key, back["key"])
		require.Equal(t, "v1:"+ns+":"+fmt.Sprintf("%x", key.Digest()), key.String())
	}
}

func TestKeyTextIsStrict(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0a", 32)
	var valid primitives.Key
	require.NoError(t, valid.UnmarshalText([]byte("v1:ns:"+digest)))
	for _, text := range []string{
		"", "v1:", "v1::" + digest, "v1:" + digest, "v2:ns:" + digest, "V1:ns:" + digest, "ns:" + digest,
		"v1:ns:" + strings.ToUpper(digest), "v1:ns:" + digest[1:], "v1:ns:" + digest + "00", "v1:ns:" + digest + "\n",
		"v1:ns:" + digest[:63] + "g", "v1:n\ns:" + digest, "v1:\xff:" + digest, " v1:ns:" + digest, "invalid key",
		"v1:" + strings.Repeat("n", 256) + ":" + digest,
	} {
		key := valid
		require.Error(t, key.UnmarshalText([]byte(text)), "%q", text)
		require.Equal(t, valid, key, "%q", text)
	}
}

func TestZeroKeyAndFingerprint(t *testing.T) {
	t.Parallel()
	var key primitives.Key
	require.False(t, key.Valid())
	require.Equal(t, "invalid key", key.String())
	_, err := key.MarshalText()
	require.Error(t, err)
	var fp primitives.Fingerprint
	require.True(t, fp.IsZero())
	require.Empty(t, fp.String())
}

func ExampleNewKey() {
	type Input struct {
		OrderID string `json:"order_id"`
		Amount  int64  `json:"amount"`
	}
	key, err := primitives.NewKey("shop/charge", Input{"A-1", 1250})
	fmt.Println(key, err)

	_, err = primitives.NewKey("shop/charge", map[string]any{"order_id": "", "amount": nil})
	fmt.Println(err)
	// Output:
	// v1:shop/charge:1757e4e4878639052d7b10c7a1d566688047b508806ee4a84d39c4a9fc7cbe66 <nil>
	// primitives: no safe key: the payload is empty: it identifies nothing
}

func ExampleNewFingerprint() {
	type Input struct{ OrderID, Note string }
	first, second := Input{"A-1", "gift"}, Input{"A-1", "no gift"}
	key1, _ := primitives.NewKey("shop/charge", first.OrderID)
	key2, _ := primitives.NewKey("shop/charge", second.OrderID)
	print1, _ := primitives.NewFingerprint(first)
	print2, _ := primitives.NewFingerprint(second)
	fmt.Println(key1 == key2, print1 == print2)
	// Output: true false
}
