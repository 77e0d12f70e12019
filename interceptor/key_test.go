package interceptor

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/fencekit/fencekit-go/primitives"
)

var namespaceScope = Policy{Scope: ScopeNamespace}

func requireKeyError(t *testing.T, p Policy, args ...any) error {
	t.Helper()
	_, err := opOf(t, p, ofWorkflow(), args...)
	require.Error(t, err)
	return err
}

func raw(encoding, data string) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}, Data: []byte(data)})
}

// A02, A03: a key of which every part is empty would be everybody's.
func TestAnEmptyKeyIsRefused(t *testing.T) {
	t.Parallel()
	type pair struct{ User, Order string }
	for name, picked := range map[string]any{
		"nothing": nil, "no text": "", "nil pointer": (*string)(nil), "empty list": []string{},
		"A03 struct of empty parts": pair{}, "A03 map of empty parts": map[string]any{"user": nil, "order": ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e *primitives.KeyError
			p := Policy{Scope: ScopeNamespace, Key: KeyFrom(func(string) any { return picked })}
			require.ErrorAs(t, requireKeyError(t, p, "order 11"), &e)
			require.ErrorAs(t, requireKeyError(t, Policy{Scope: ScopeRun, Key: p.Key}, "order 11"), &e)
		})
	}
	half := func(v pair) string {
		return keyOf(t, Policy{Scope: ScopeNamespace, Key: KeyFrom(func(string) any { return v })}, ofWorkflow(), "in")
	}
	require.NotEqual(t, half(pair{User: "x"}), half(pair{Order: "x"}), "A03: one part is enough, and names which")
}

// A02: with the whole input as the business key, no input is nobody's key.
func TestNoInputIsNoBusinessKey(t *testing.T) {
	t.Parallel()
	requireKeyError(t, namespaceScope)
	requireKeyError(t, namespaceScope, "")
	require.NotEmpty(t, keyOf(t, Policy{}, ofWorkflow()), "the scope tells it apart")
}

// A04: integers keep all their digits; what a decoder may have rounded is no key.
func TestLargeIntegersDoNotCollapse(t *testing.T) {
	t.Parallel()
	type typed struct{ ID int64 }
	type unsigned struct{ ID uint64 }
	differ := func(a, b any) {
		t.Helper()
		require.NotEqual(t, keyOf(t, namespaceScope, ofWorkflow(), a), keyOf(t, namespaceScope, ofWorkflow(), b))
	}
	differ(typed{1<<53 + 1}, typed{1 << 53})
	differ(unsigned{math.MaxUint64}, unsigned{math.MaxUint64 - 1})
	differ(json.RawMessage("9007199254740993"), json.RawMessage("9007199254740992"))
	differ(raw("json/plain", `{"id":9007199254740993}`), raw("json/plain", `{"id":9007199254740992}`))
	differ(encoded(t, int64(1<<53+1)), encoded(t, int64(1<<53)))
	// An untyped argument has been decoded to a float before it comes here.
	var decoded map[string]any
	require.NoError(t, json.Unmarshal([]byte(`{"id":9007199254740993}`), &decoded))
	var e *primitives.KeyError
	require.ErrorAs(t, requireKeyError(t, namespaceScope, decoded), &e)
	require.Contains(t, e.Path, "/id", "the field is named")
}

// A07: where one argument ends and the next begins is part of the key.
func TestBoundariesBetweenArguments(t *testing.T) {
	t.Parallel()
	key := func(args ...any) string { return keyOf(t, namespaceScope, ofWorkflow(), args...) }
	seen := map[string]bool{}
	for _, args := range [][]any{
		{"ab", "c"}, {"a", "bc"}, {"abc"}, {[]string{"a b"}}, {[]string{"a", "b"}}, {"a", "b"},
		{map[string]int{"x": 1, "y": 2}}, {[]int{1, 2}}, {1, 2},
	} {
		require.False(t, seen[key(args...)], "%v", args)
		seen[key(args...)] = true
	}
	require.Equal(t, key(map[string]int{"x": 1, "y": 2}), key(map[string]int{"y": 2, "x": 1}))
	require.Equal(t, key(1, []int(nil)), key(1, []int{}), "nil equals empty, as the golden file fixes")
}

// A01: the arguments behind a dynamic activity's one value.
func TestADynamicActivityIsKeyedByItsValues(t *testing.T) {
	t.Parallel()
	key := func(args ...any) string {
		return keyOf(t, namespaceScope, dynamicInfo("unknown-a"), encoded(t, args...))
	}
	require.NotEqual(t, key("alice", 1), key("bob", 2))
	require.NotEqual(t, key("alice", 1), key("alice"))
	require.Equal(t, key(map[string]int{"x": 1, "y": 2}), key(json.RawMessage(`{"y":2,"x":1}`)))
	require.NotEmpty(t, keyOf(t, Policy{}, dynamicInfo("unknown-a"), encoded(t)), "none at all")
}

// A08: what shows none of its fields is no key; a raw payload is its content.
func TestOpaqueAndRawInput(t *testing.T) {
	t.Parallel()
	type ref struct{ id string }
	var e *primitives.KeyError
	require.ErrorAs(t, requireKeyError(t, namespaceScope, ref{id: "a"}), &e)
	key := func(encoding, data string) string { return keyOf(t, namespaceScope, ofWorkflow(), raw(encoding, data)) }
	require.NotEqual(t, key("binary/plain", "1"), key("binary/plain", "2"))
	require.NotEqual(t, key("binary/plain", "1"), key("json/plain", "1"))
	require.Equal(t, key("json/plain", `{"a":1,"b":2}`), key("json/plain", `{ "b": 2, "a": 1 }`))
	require.NotEqual(t, key("json/plain", `{"a":1,"b":0}`), key("json/plain", `{"a":1}`), "nothing is known of its type")
}

// A10: type and namespace are in every key, whatever the scope.
func TestKeysAreBoundToTypeAndNamespace(t *testing.T) {
	t.Parallel()
	k := unit(t, namespaceScope)
	for scope, name := range scopeNames {
		key := func(edit func(*charge)) string {
			in := charge{Order: "A1"}
			info := ofWorkflow()
			edit(&in)
			if in.Trace == "type" {
				info.ActivityType.Name = "b"
			}
			if in.Trace == "namespace" {
				info.Namespace = "other"
			}
			p := &plan{Policy: Policy{Scope: scope}}
			op, err := newCall(t.Context(), k, p, info).op(t.Context(), []any{charge{Order: "A1"}})
			require.NoError(t, err)
			return op.Key.String()
		}
		same := key(func(*charge) {})
		require.NotEqual(t, same, key(func(c *charge) { c.Trace = "type" }), name)
		require.NotEqual(t, same, key(func(c *charge) { c.Trace = "namespace" }), name)
	}
}

// A11: what changes from attempt to attempt is not in the key, nor is the queue.
func TestWhatIsVolatileIsNotInTheKey(t *testing.T) {
	t.Parallel()
	first, second := ofWorkflow(), ofWorkflow()
	second.Attempt, second.TaskToken, second.TaskQueue = 2, []byte("other"), "other"
	second.StartedTime = second.StartedTime.Add(1)
	require.Equal(t, keyOf(t, Policy{}, first, "x"), keyOf(t, Policy{}, second, "y"), "nor is the input of a call")
	second.ScheduledTime = second.ScheduledTime.Add(1)
	require.NotEqual(t, keyOf(t, Policy{}, first, "x"), keyOf(t, Policy{}, second, "x"), "N01: another call under one activity id")
	byOrder := Policy{Scope: ScopeNamespace, Key: KeyFrom(func(c charge) any { return c.Order })}
	a, b := charge{Order: "A1", Trace: "1"}, charge{Order: "A1", Trace: "2"}
	require.Equal(t, keyOf(t, byOrder, first, a), keyOf(t, byOrder, first, b))
	require.NotEqual(t, keyOf(t, namespaceScope, first, a), keyOf(t, namespaceScope, first, b))
}

// A16: NaN equals nothing, itself included.
func TestNaNIsNoKey(t *testing.T) {
	t.Parallel()
	var e *primitives.KeyError
	for range 2 {
		require.ErrorAs(t, requireKeyError(t, Policy{Scope: ScopeRun}, map[string]float64{"rate": math.NaN()}), &e)
		require.Equal(t, "/0/rate", e.Path)
	}
	require.Equal(t, keyOf(t, namespaceScope, ofWorkflow(), 1), keyOf(t, namespaceScope, ofWorkflow(), 1.0))
	require.Equal(t, keyOf(t, namespaceScope, ofWorkflow(), 0.0), keyOf(t, namespaceScope, ofWorkflow(), math.Copysign(0, -1)))
}

// D13, D14, D16: what each scope tells apart.
func TestScopesTellApart(t *testing.T) {
	t.Parallel()
	again, nextRun, otherWorkflow := ofWorkflow(), ofWorkflow(), ofWorkflow()
	again.ScheduledTime, nextRun.WorkflowExecution.RunID, otherWorkflow.WorkflowExecution.ID = again.ScheduledTime.Add(1), "r2", "w2"
	for _, c := range []struct {
		scope                         Scope
		again, nextRun, otherWorkflow bool
	}{
		{ScopeExecution, true, true, true},
		{ScopeRun, false, true, true},
		{ScopeWorkflow, false, false, true},
		{ScopeNamespace, false, false, false},
	} {
		p := Policy{Scope: c.scope}
		first := keyOf(t, p, ofWorkflow(), "x")
		require.Equal(t, c.again, first != keyOf(t, p, again, "x"), "%s, called again", c.scope)
		require.Equal(t, c.nextRun, first != keyOf(t, p, nextRun, "x"), "%s, next run", c.scope)
		require.Equal(t, c.otherWorkflow, first != keyOf(t, p, otherWorkflow, "x"), "%s, other workflow", c.scope)
	}
}

// D16: an activity that no workflow has started is a run and a workflow of its own.
func TestStandaloneActivitiesDoNotMeet(t *testing.T) {
	t.Parallel()
	for scope := range scopeNames {
		p := Policy{Scope: scope}
		one, two := keyOf(t, p, standalone("act", "run"), "x"), keyOf(t, p, standalone("act2", "run2"), "x")
		require.Equal(t, scope == ScopeNamespace, one == two, "%s", scope)
	}
	require.NotEqual(t, keyOf(t, Policy{Scope: ScopeRun}, standalone("act", "run"), "x"),
		keyOf(t, Policy{Scope: ScopeRun}, standalone("act", "run2"), "x"), "an id that is used again")
	a, err := opOf(t, Policy{}, standalone("act", "run"), "x")
	require.NoError(t, err)
	b, err := opOf(t, Policy{}, standalone("act", "run2"), "x")
	require.NoError(t, err)
	require.NotEqual(t, a.Execution.ID, b.Execution.ID)
	require.NotContains(t, a.Holder, "workflow=", "nothing that it does not have")
	require.Contains(t, a.Holder, "activity=act activity-run=run")
}
