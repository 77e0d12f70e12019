package primitives_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	stdjson "encoding/json"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/fencekit/fencekit-go/primitives"
)

const secret = "jo@example.test"

var errOwn = errors.New("own error about " + secret)

type (
	opaque   struct{ id string }
	ignoring struct {
		A  string `json:"-"`
		id int
	}
	marker     struct{} //nolint:unused // embedded to be invisible
	markedPlus struct {
		marker //nolint:unused // see there
		id     string
	}
	meter      float64
	custom     map[string]any
	failing    struct{}
	panicking  struct{}
	textPanics struct{}
	lossy      struct{}
	nothing    struct{}
	node       struct{ Next, Prev *node }
	withOpaque struct {
		opaque
		B int
	}
	withPointer struct {
		P *opaque
		B int
	}
	text     string
	withText struct {
		text
		B int
	}
	withInterface struct {
		fmt.Stringer
		B int
	}
	withMutex struct {
		sync.Mutex
		ID string
	}
	tree struct {
		V    any
		Kids []*tree
		M    map[string]tree
	}
	leavesOut struct {
		Ring *unseen `json:",omitzero"`
		B    int
	}
	unseen struct{ Self any }

	selfPointer *selfPointer
	selfList    []selfList
	selfMap     map[string]selfMap
	box[T any]  struct{ V T }
	withRest    struct {
		A    int
		Rest map[string]any `json:",embed"`
	}
	withRawRest struct {
		A    int
		Rest jsontext.Value `json:",embed"`
	}
)

func (failing) MarshalJSON() ([]byte, error)    { return nil, errOwn }
func (panicking) MarshalJSON() ([]byte, error)  { panic(errOwn) }
func (textPanics) MarshalText() ([]byte, error) { panic(secret) }
func (lossy) MarshalJSON() ([]byte, error)      { return []byte(`{"n":0.12345678901234567890}`), nil }
func (nothing) MarshalJSON() ([]byte, error)    { return nil, nil }

type refusal struct {
	name    string
	payload any
	path    string
	reason  string // part of it
}

func unknownMessage() proto.Message {
	inner := &descriptorpb.EnumDescriptorProto{Name: proto.String("e")}
	inner.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 0x01})
	return &descriptorpb.DescriptorProto{EnumType: []*descriptorpb.EnumDescriptorProto{inner}}
}

func packed(m proto.Message) proto.Message {
	packed, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return packed
}

func refusals() []refusal {
	ring := &node{}
	ring.Next, ring.Prev = ring, ring
	loop := &unseen{}
	loop.Self = loop
	self := map[string]any{}
	self["self"] = self
	var pointer any
	pointer = &pointer
	var typed selfPointer
	typed = &typed
	list := []any{1, nil}
	list[1] = list
	typedList := selfList{nil}
	typedList[0] = typedList
	typedMap := selfMap{}
	typedMap["a"] = typedMap
	var deep any = 1
	for range 20_000 {
		deep = ptr(deep)
	}
	wide := any(1)
	for range 60 {
		wide = []any{wide, wide}
	}
	return []refusal{
		{"cycle: pointer", pointer, "", "refers to itself"},
		{"cycle: pointer in a map", map[string]any{"a": 1, "b": pointer}, "/b", "refers to itself"},
		{"cycle: typed pointer", typed, "", "refers to itself"},
		{"cycle: pointer to typed pointer", &typed, "", "refers to itself"},
		{"cycle: list", list, "/1", "refers to itself"},
		{"cycle: typed list", typedList, "/0", "refers to itself"},
		{"cycle: map", self, "/self", "refers to itself"},
		{"cycle: typed map", typedMap, "/a", "refers to itself"},
		{"cycle: struct", []any{ring}, "/0/Next", "refers to itself"},
		{"cycle: after much else", []any{make([]any, 5000), list}, "/1/1", "refers to itself"},
		{"deep pointers", deep, "", "deeper than 10000"},
		{"a graph of 2^60 paths", wide, "", "limit of 16777216"},
		{"deep raw", stdjson.RawMessage(strings.Repeat("[", 20_000)), "", "raw JSON"},
		{"format option", struct {
			T time.Time `json:",format:unix"`
		}{}, "", "format"},
		{"malformed name", struct {
			A int `json:"'a,b'"`
		}{}, "", "malformed"},
		{"string option on a list", struct {
			A []int `json:",string"`
		}{}, "/A", ""},
		{"A04 untyped integral number", map[string]any{"a": []any{0, float64(1 << 53)}}, "/a/1", "2^53"},
		{"A04 negative", struct{ V any }{-1e18}, "/V", "2^53"},
		{"A04 float32", []any{float32(1e20)}, "/0", "2^53"},
		{"A04 named float", []any{meter(1e20)}, "/0", "2^53"},
		{"A04 named float in a method set", []fmt.Stringer{meter(1e20)}, "/0", "2^53"},
		{"A04 top level", 1e16, "", "2^53"},
		{"A04 in a named map", struct{ C custom }{custom{"n": 1e16}}, "/C/n", "2^53"},
		{"A04 in a map of maps", map[string]map[string]any{"a": {"b": 1e16}}, "/a/b", "2^53"},
		{"A04 behind pointers", &[]*any{ptr(any(1e16))}, "/0", "2^53"},
		{"A04 in embedded rest", withRest{1, map[string]any{"x": 1e16}}, "/x", "2^53"},
		{"A04 raw embedded rest", withRawRest{1, jsontext.Value(`{"x":1e300}`)}, "/x", "integer"},
		{"A04 raw with a fraction", map[string]stdjson.RawMessage{"r": []byte(`{"a":[9007199254740993.0]}`)}, "/r/a/0", "integer"},
		{"A04 raw with an exponent", []jsontext.Value{jsontext.Value(`1e300`)}, "/0", "integer"},
		{"A04 raw with a signed exponent", jsontext.Value(`-1.5E+300`), "", "integer"},
		{"A04 raw too large", stdjson.RawMessage(`1e400`), "", "integer"},
		{"A04 number with an exponent", struct{ N stdjson.Number }{"1e300"}, "/N", "integer"},
		{"A04 number of too many digits", struct{ N stdjson.Number }{"0.12345678901234567890"}, "/N", "digits"},
		{"A04 raw of too many digits", stdjson.RawMessage(`[0.10000000000000001]`), "/0", "digits"},
		{"A04 raw too small", stdjson.RawMessage(`1e-400`), "", "digits"},
		{"A04 method writes too many digits", []lossy{{}}, "/0/n", "digits"},
		{"A04 protobuf value", []any{structpb.NewNumberValue(1e16)}, "/0/numberValue", "2^53"},
		{"A08 nothing exported", opaque{"a"}, "", "fields"},
		{"A08 in a field", struct{ R opaque }{}, "/R", "fields"},
		{"A08 in an interface", map[string]any{"r": &opaque{"a"}}, "/r", "fields"},
		{"A08 everything ignored", []ignoring{{"a", 1}}, "/0", "fields"},
		{"A08 embedded", withOpaque{opaque{"a"}, 1}, "", "fields"},
		{"A08 behind a pointer", withPointer{&opaque{"a"}, 1}, "/P", "fields"},
		{"A08 only a marker and hidden", markedPlus{id: "a"}, "", "fields"},
		{"A08 error", struct{ Err error }{errOwn}, "/Err", "fields"},
		{"A16 NaN", struct{ F float64 }{math.NaN()}, "/F", "NaN"},
		{"A16 Inf", []any{math.Inf(-1)}, "/0", "NaN"},
		{"A16 float32 NaN", []float32{float32(math.NaN())}, "/0", "NaN"},
		{"A16 NaN map key", map[float64]int{math.NaN(): 1}, "", "NaN"},
		{"invalid UTF-8", []string{"\xff" + secret}, "/0", "UTF-8"},
		{"invalid UTF-8 map key", map[string]int{secret + "\xff": 1}, "", "UTF-8"},
		{"invalid UTF-8 raw", stdjson.RawMessage("[\"\xff\"]"), "", "UTF-8"},
		{"lone surrogate", stdjson.RawMessage(`"\ud800"`), "", ""},
		{"duplicate names", stdjson.RawMessage(`{"a":1,"a":2}`), "", "two members"},
		{"func", struct{ F func() }{}, "/F", "func"},
		{"chan", []any{make(chan int)}, "/0", "chan"},
		{"complex", complex(1, 2), "", "complex"},
		{"ring", ring, "/Next", "itself"},
		{"map that holds itself", self, "/self", "itself"},
		{"broken raw", stdjson.RawMessage(`{"a":` + secret), "", "raw JSON"},
		{"empty raw", struct{ R stdjson.RawMessage }{stdjson.RawMessage{}}, "/R", "raw JSON"},
		{"bool map keys", []any{map[bool]int{true: 1}}, "/0", "keys"},
		{"time without a form", []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "/0", "a method of time.Time"},
		{"embedded string without a name", withText{"a", 1}, "", "embedded"},
		{"embedded interface without a name", []withInterface{{nil, 1}}, "/0", "embedded"},
		{"embedded mutex", &withMutex{ID: "a"}, "", "sync.Mutex"},
		{"untyped map key", map[string]any{"m": map[any]int{1e16: 1}}, "/m/*", "2^53"},
		{"behind a recursive type", tree{Kids: []*tree{{M: map[string]tree{"x": {V: 1e16}}}}}, "/Kids/0/M/x/V", "2^53"},
		{"untyped in a map of any keys", map[any]any{"a": 1e16}, "/a", "2^53"},
		{"protobuf struct", &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(-1e16)}}, "/fields/a/numberValue", "2^53"},
		{"ring in a field that is left out", leavesOut{loop, 1}, "/Ring/Self", "itself"},
		{"in an array", struct{ A [2]any }{[2]any{1, 1e16}}, "/A/1", "2^53"},
		{"generic", box[any]{1e16}, "/V", "2^53"},
		{"not a number", []stdjson.Number{"one"}, "/0", "json.Number"},
		{"empty number", struct{ N stdjson.Number }{}, "/N", "json.Number"},
		{"two numbers", []stdjson.Number{"1,2"}, "/0", ""},
		{"failing method", map[string]failing{"f": {}}, "/f", "a method of"},
		{"method without result", []nothing{{}}, "/0", "a method of"},
		{"panicking method", []panicking{{}}, "", "panicked"},
		{"panicking text method", []textPanics{{}}, "", "panicked"},
		{"unknown protobuf field", unknownMessage(), "/enumType/0", "does not know"},
		{"unknown protobuf field inside", map[string]any{"a": []any{packed(unknownMessage())}}, "/a/0/enumType/0", "does not know"},
		{"protobuf of an unknown type", &anypb.Any{TypeUrl: "x/" + secret, Value: []byte{1}}, "", "protobuf"},
		{"too large", strings.Repeat("x", primitives.MaxKeyPayload), "", "limit of 16777216"},
		{"mail address as a key", map[string]any{secret: math.NaN()}, "/*", "NaN"},
		{"number as a key", map[string]any{"49301234567": 1e16}, "/*", "2^53"},
		{"int key", map[int]any{7: 1e16}, "/*", "2^53"},
	}
}

func ptr[T any](v T) *T { return &v }

func (*unseen) IsZero() bool { return true }

func (meter) String() string { return "" }

func TestNewKeyRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			key, err := primitives.NewKey("ns", c.payload)
			require.False(t, key.Valid())
			fault := requireKeyError(t, err)
			require.Contains(t, fault.Reason, c.reason)
			require.Equal(t, c.path, fault.Path)
			_, err = primitives.NewFingerprint(c.payload)
			requireKeyError(t, err)
		})
	}
}

// A13: what is refused leaves no trace of the payload in the text.
func TestA13KeyErrorHoldsNoValue(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		_, err := primitives.NewKey("ns", c.payload)
		text := err.Error()
		require.NotContains(t, text, "example", c.name)
		require.NotContains(t, text, "4930", c.name)
		require.Less(t, len(text), 600, c.name)
	}
}

func TestKeyErrorUnwraps(t *testing.T) {
	t.Parallel()
	for _, payload := range []any{failing{}, panicking{}} {
		_, err := primitives.NewKey("ns", payload)
		require.ErrorIs(t, fmt.Errorf("wrapped: %w", err), errOwn)
	}
}

// A03, A02: a key that identifies nothing would be everybody's key.
func TestA03EmptyPayload(t *testing.T) {
	t.Parallel()
	type composite struct{ User, Order string }
	empty := []any{
		nil, "", (*order)(nil), composite{}, map[string]any{"user": nil, "order": ""}, []string{}, []string(nil),
		[]any{nil, "", []any{map[string]any{"a": nil}}}, map[string]struct{}{"alice": {}}, stdjson.RawMessage(" { } "),
		stdjson.RawMessage(nil), []byte{}, struct{}{}, &descriptorpb.DescriptorProto{}, [0]int{},
		struct{ P *composite }{&composite{}}, struct {
			N int `json:",omitzero"`
		}{},
	}
	for _, payload := range empty {
		_, err := primitives.NewKey("ns", payload)
		require.Contains(t, requireKeyError(t, err).Reason, "empty", "%#v", payload)
		fp, err := primitives.NewFingerprint(payload)
		require.NoError(t, err, "%#v", payload)
		require.False(t, fp.IsZero())
	}
	for _, payload := range []any{0, false, 0.0, " ", composite{User: "u"}, []any{nil, 0}, []byte{0}, stdjson.RawMessage(`[[{"a":false}]]`)} {
		require.True(t, newKey(t, payload).Valid(), "%#v", payload)
	}
	require.NotEqual(t, newKey(t, composite{User: "x"}), newKey(t, composite{Order: "x"}))
}

func TestNilPointerToOpaqueIsVisible(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, newKey(t, withPointer{B: 1}), newKey(t, withPointer{B: 2}))
}

// A14
func TestA14Namespace(t *testing.T) {
	t.Parallel()
	for _, ns := range []string{"", "a\r\n", "\x00", "\x7f", "\u0085", "\xff", strings.Repeat("n", 256), strings.Repeat("n", 4<<20)} {
		_, err := primitives.NewKey(ns, 1)
		fault := requireKeyError(t, err)
		require.Contains(t, fault.Reason, "namespace")
	}
	for _, ns := range []string{"acme{eu}", "{}", "a}b{c", "a:b:", " ", "größe", strings.Repeat("n", 255)} {
		key, err := primitives.NewKey(ns, 1)
		require.NoError(t, err)
		require.Equal(t, ns, key.Namespace())
	}
}

func TestA14PayloadMayHoldAnything(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("{", 4<<20)
	seen := map[primitives.Key]bool{}
	for _, payload := range []string{"{}", "a}b{c", "\r\n\x00", long, long + "{"} {
		key := newKey(t, payload)
		require.False(t, seen[key])
		require.Len(t, key.String(), len("v1:ns:")+64)
		seen[key] = true
	}
}

func TestNewKeyIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	type fresh struct { // a type that no other test has shown to the cache
		A any
		B map[string]any
		C []*order
	}
	payload := fresh{"a", map[string]any{"x": 1.5, "y": []any{nil}}, []*order{{"A", 1, ""}, nil}}
	keys := make([]primitives.Key, 32)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() { keys[i], _ = primitives.NewKey("ns", payload) })
	}
	wg.Wait()
	for _, key := range keys {
		require.Equal(t, newKey(t, payload), key)
	}
}
