package primitives

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func input(t testing.TB, args ...any) Fingerprint {
	t.Helper()
	in, err := NewInput(args, 0)
	require.NoError(t, err)
	require.False(t, in.Fingerprint().IsZero())
	return in.Fingerprint()
}

// failsAtZero has a method that must not be called for a field that is not there.
type failsAtZero int

func (s failsAtZero) MarshalText() ([]byte, error) {
	if s == 0 {
		return nil, errors.New("there is no such status")
	}
	return fmt.Appendf(nil, "status-%d", s), nil
}

type optional struct{ at *time.Time }

func (o optional) IsZero() bool { return o.at == nil || o.at.IsZero() }

func (o optional) MarshalJSON() ([]byte, error) { return json.Marshal(o.at) }

// N06: a release adds fields; while nobody fills them, nothing changes.
func TestAFieldAtZeroIsNoField(t *testing.T) {
	t.Parallel()
	type line struct{ SKU string }
	type inner struct {
		Code string
		Tags []string
	}
	type before struct {
		Order string
		Lines []line
	}
	type addedLine struct {
		SKU   string
		Count int
		Inner inner
	}
	type after struct {
		inner
		Note    string
		Due     time.Time
		Tags    []string
		Labels  map[string]string
		Blob    []byte
		Raw     json.RawMessage
		Flag    bool
		Price   float64
		Pointer *inner
		Any     any
		Inner   inner
		Array   [2]inner
		Status  failsAtZero
		Maybe   optional
		Order   string
		Lines   []addedLine
	}
	old := input(t, &before{"A1", []line{{"x"}}})
	require.Equal(t, old, input(t, &after{Order: "A1", Lines: []addedLine{{SKU: "x"}}}))
	zeros := after{Order: "A1", Lines: []addedLine{{SKU: "x", Inner: inner{Tags: []string{}}}},
		Due: time.Time{}.In(time.FixedZone("", 3600)), Tags: []string{}, Labels: map[string]string{}, Blob: []byte{}, Raw: json.RawMessage{},
		Inner: inner{Tags: []string{}}, Array: [2]inner{{Tags: []string{}}}, Maybe: optional{new(time.Time)}}
	require.Equal(t, old, input(t, &zeros), "empty is zero too, at any depth")

	for name, fill := range map[string]func(*after){
		"string": func(a *after) { a.Note = "n" }, "time": func(a *after) { a.Due = time.Unix(0, 0) },
		"slice": func(a *after) { a.Tags = []string{""} }, "map": func(a *after) { a.Labels = map[string]string{"": ""} },
		"bytes": func(a *after) { a.Blob = []byte{0} }, "raw": func(a *after) { a.Raw = json.RawMessage("0") },
		"bool": func(a *after) { a.Flag = true }, "float": func(a *after) { a.Price = 0.5 },
		"a pointer to zero": func(a *after) { a.Pointer = &inner{} }, "an untyped zero": func(a *after) { a.Any = 0 },
		"struct": func(a *after) { a.Inner.Code = "c" }, "array": func(a *after) { a.Array[1].Code = "c" },
		"embedded": func(a *after) { a.Code = "c" }, "own form": func(a *after) { a.Status = 1 },
		"IsZero": func(a *after) { now := time.Unix(1, 0); a.Maybe.at = &now }, "element": func(a *after) { a.Lines[0].Count = 1 },
	} {
		filled := after{Order: "A1", Lines: []addedLine{{SKU: "x"}}}
		fill(&filled)
		require.NotEqual(t, old, input(t, &filled), name)
	}
}

// N06: so does an argument that is added at the end.
func TestAnArgumentAtZeroIsNone(t *testing.T) {
	t.Parallel()
	type options struct{ Fast bool }
	one := input(t, ptr("A1"))
	for name, added := range map[string]any{
		"string": ptr(""), "number": ptr(0), "struct": ptr(options{}), "nil": nil, "pointer": ptr((*options)(nil)),
		"untyped": ptr(any(nil)), "list": ptr([]string{}), "time": ptr(time.Time{}),
	} {
		require.Equal(t, one, input(t, ptr("A1"), added), name)
		require.Equal(t, one, input(t, ptr("A1"), added, added), name)
		require.Equal(t, input(t, nil, ptr("A1")), input(t, added, ptr("A1")), name)
		require.NotEqual(t, one, input(t, added, ptr("A1")), name)
	}
	require.NotEqual(t, one, input(t, ptr("A1"), ptr(&options{})), "a pointer that is not nil counts")
	require.NotEqual(t, one, input(t, ptr("A1"), ptr(any(""))), "so does an untyped value")
	require.Equal(t, input(t), input(t, ptr("")))
}

func ptr[T any](v T) *T { return &v }

// pointerForm has a form of its own, of which encoding/json knows only where it is held by a pointer.
type pointerForm struct{ N int }

func (p *pointerForm) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"form-%d"`, p.N), nil }

// An IsZero that says less than the fields do is not asked: two inputs would be one.
func TestIsZeroOfOthersIsNotAsked(t *testing.T) {
	t.Parallel()
	type order struct {
		base
		Amount int
	}
	type held struct{ Order order }
	for _, c := range [][2]any{
		{&order{Amount: 5}, &order{Amount: 6}}, {&held{order{Amount: 5}}, &held{order{Amount: 6}}}, {&base{Note: "a"}, &base{Note: "b"}},
		{&struct{ T dated }{dated{Cents: 5}}, &struct{ T dated }{dated{Cents: 6}}},
	} {
		require.NotEqual(t, input(t, c[0]), input(t, c[1]))
	}
}

type base struct{ ID, Note string }

func (b base) IsZero() bool { return b.ID == "" }

// dated has a form of its own, and its IsZero from the time that is embedded in it.
type dated struct {
	time.Time
	Cents int64
}

func (o dated) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%d", o.Cents), nil }

// What has a type counts by its type, and nil as empty.
func TestTypedValues(t *testing.T) {
	t.Parallel()
	require.Equal(t, input(t, &[][]string{nil}), input(t, &[][]string{{}}))
	require.Equal(t, input(t, &map[string][]int{"a": nil}), input(t, &map[string][]int{"a": {}}))
	require.NotEqual(t, input(t, &[][]string{nil}), input(t, &[][]string{nil, nil}))
	require.NotEqual(t, input(t, &map[string]int{"a": 0}), input(t, &map[string]int{"b": 0}), "members of a map count")
	require.NotEqual(t, input(t, &map[string]struct{ N int }{"a": {}}), input(t, &map[string]struct{ N int }{}))
	require.NotEqual(t, input(t, ptr(int64(1<<53))), input(t, ptr(int64(1<<53+1))))
	require.NotEqual(t, input(t, ptr(1e22)), input(t, ptr(1e23)))
	require.Equal(t, input(t, ptr(map[netip.Addr]struct{ N any }{netip.MustParseAddr("::1"): {N: 1}})),
		input(t, ptr(map[string]struct{ N any }{"::1": {N: 1}})), "names of members are as encoding/json writes them")
	require.Equal(t, input(t, ptr(timestamppb.New(time.Unix(1, 0)))), input(t, ptr("1970-01-01T00:00:01Z")))
	require.Equal(t, input(t, ptr([]*durationpb.Duration{durationpb.New(time.Second)})), input(t, ptr([]string{"1s"})))
	type order struct{ A, B string }
	type reordered struct{ B, A string }
	require.Equal(t, input(t, &order{"1", "2"}), input(t, &reordered{"2", "1"}))
}

// What cannot be told apart is refused, as for a key, and named.
func TestInputThatIsRefused(t *testing.T) {
	t.Parallel()
	type deep struct{ Rates []any }
	for path, arg := range map[string]any{
		"/0/Rates/0": &deep{[]any{1e300}}, "/0": ptr(math.NaN()), "/0/m": &map[string]any{"m": make(chan int)},
	} {
		_, err := NewInput([]any{arg}, 0)
		var e *KeyError
		require.ErrorAs(t, err, &e)
		require.Equal(t, path, e.Path)
	}
	unknown := &commonpb.WorkflowExecution{WorkflowId: "w"}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	_, err := NewInput([]any{&unknown}, 0)
	require.ErrorContains(t, err, "this build does not know")
	loop := []any{nil}
	loop[0] = loop
	_, err = NewInput([]any{&loop}, 0)
	require.ErrorContains(t, err, "refers to itself")
	_, err = NewInput([]any{ptr(panicking{1})}, 0)
	require.ErrorContains(t, err, "panicked")
}

type panicking struct{ N int }

func (panicking) IsZero() bool { return false }

func (panicking) MarshalJSON() ([]byte, error) { panic("no") }

func inputKey(namespace string, args []any) (Key, error) {
	in, err := NewInput(args, 0)
	if err != nil {
		return Key{}, err
	}
	return in.Key(namespace)
}

// What is larger than the caller has time for is refused before it is written.
func TestAnInputHasABound(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 1000)
	_, err := NewInput([]any{&text}, 2000)
	require.NoError(t, err)
	_, err = NewInput([]any{&text, &text}, 2000)
	require.ErrorContains(t, err, "over the limit of 2000")
	_, err = NewInput([]any{&text, &text}, 0)
	require.NoError(t, err)
	many := make([]map[string]any, 1_000_000)
	_, err = NewInput([]any{&many}, 1<<20)
	require.ErrorContains(t, err, "over the limit")
	for _, most := range []int{-1, MaxKeyPayload + 1} {
		_, err = NewInput(nil, most)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// A key of the whole input identifies by what is there, at zero too.
func TestInputKeys(t *testing.T) {
	t.Parallel()
	type page struct {
		Page int
		Text string
	}
	key, err := inputKey("input", []any{&page{}})
	require.NoError(t, err)
	again, err := inputKey("input", []any{&struct {
		page
		Size int
	}{}})
	require.NoError(t, err)
	require.Equal(t, key, again)
	for _, args := range [][]any{{}, {nil}, {ptr("")}, {&struct{ Text string }{}}} {
		_, err = inputKey("input", args)
		require.ErrorContains(t, err, "identifies nothing")
	}
	_, err = inputKey("", []any{1})
	require.ErrorContains(t, err, "namespace")
	other, err := inputKey("other", []any{&page{Page: 1}})
	require.NoError(t, err)
	require.NotEqual(t, key, other)
}

// wide has a form of its own, in which several values are zero.
type wide struct{ N, Scale int }

func (w wide) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d", w.N), nil }

// A zero that has several forms in Go is one zero.
func TestZeroHasManyForms(t *testing.T) {
	t.Parallel()
	type in struct {
		F float64
		W wide
		B big.Int
		N string
	}
	zero := input(t, &in{N: "n"})
	scaled := in{N: "n", F: math.Copysign(0, -1), W: wide{0, 3}}
	scaled.B.SetString("0", 10)
	require.Equal(t, zero, input(t, &scaled))
	scaled.B.SetInt64(1)
	require.NotEqual(t, zero, input(t, &scaled))
	require.NotEqual(t, zero, input(t, &in{N: "n", W: wide{1, 0}}))
}

// Two fingerprints of different kinds have different texts, and the texts can be read.
func TestFingerprintKinds(t *testing.T) {
	t.Parallel()
	f := input(t, 1)
	whole := f.Of("whole")
	require.Equal(t, "whole:"+f.String(), whole.String())
	for _, want := range []Fingerprint{{}, f, whole} {
		got, err := ParseFingerprint(want.String())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"x", "whole:", "Whole:" + f.String(), ":" + f.String(), f.String()[1:], "a1:" + f.String()} {
		_, err := ParseFingerprint(text)
		require.ErrorIs(t, err, ErrInvalid, text)
	}
	require.True(t, Fingerprint{}.Of("whole").IsZero())
	require.ErrorContains(t, Op{Key: must(NewKey("a", 1)), Fingerprint: f.Of("NO")}.check(), "Fingerprint")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
