package interceptor

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// localOf is what workflow code says of the n-th equal call.
func localOf(t *testing.T, p Policy, n int, explicit string, args ...any) localCall {
	t.Helper()
	calls := localCalls{}
	var text []byte
	for range n {
		text = calls.header(&plan{Policy: p}, "a", args, explicit).GetData()
	}
	l, err := parseLocal(text, "a")
	require.NoError(t, err)
	require.Equal(t, n, l.Number)
	return l
}

// keyOfLocal is the key of a call.
func keyOfLocal(t *testing.T, p Policy, l localCall) string {
	t.Helper()
	info := ofWorkflow()
	info.IsLocalActivity = true
	c := newCall(t.Context(), unit(t, p), &plan{Policy: p}, info)
	c.local = l
	id, err := c.identify()
	require.NoError(t, err)
	k, err := id.within(p.Scope, l.Key).key()
	require.NoError(t, err)
	return k.String()
}

// N02, N04, N05: a local call is its input and its number among equal ones, and no id.
func TestLocalCallsAreToldApart(t *testing.T) {
	t.Parallel()
	first := localOf(t, Policy{}, 1, "", charge{Order: "A1"})
	require.Equal(t, first, localOf(t, Policy{}, 1, "", charge{Order: "A1"}))
	keys := map[string]bool{}
	for _, l := range []localCall{first, localOf(t, Policy{}, 2, "", charge{Order: "A1"}), localOf(t, Policy{}, 1, "", charge{Order: "A1", Amount: 200})} {
		keys[keyOfLocal(t, Policy{}, l)] = true
	}
	require.Len(t, keys, 3)
	require.NotContains(t, keys, keyOf(t, Policy{}, ofWorkflow(), charge{Order: "A1"}), "nor is it the regular call")

	calls := localCalls{}
	header := func(name string, args ...any) (l localCall) {
		require.NoError(t, json.Unmarshal(calls.header(&plan{}, name, args, "").GetData(), &l))
		return l
	}
	require.Equal(t, 1, header("a", 1).Number)
	require.Equal(t, 1, header("a", 2).Number, "another input")
	require.Equal(t, 1, header("b", 1).Number, "another activity")
	require.Equal(t, 2, header("a", 1).Number)
	require.Equal(t, 1, header("c", math.NaN()).Number)
	require.Equal(t, 2, header("c", math.NaN()).Number, "one that is refused counts, too")
}

// N19: what the policy picks travels with the call, because a body may change what its
// arguments point to.
func TestWhatAPolicyTakesTravels(t *testing.T) {
	t.Parallel()
	p := Policy{Scope: ScopeNamespace, Key: KeyFrom(func(c *charge) any { return c.Order }),
		Compare:  CompareFrom(func(c *charge) any { return c.Amount }),
		Resource: ResourceFrom(func(c *charge) string { return "order/" + c.Order + "\xff" })}
	in := &charge{Order: "A1", Amount: 7}
	l := localOf(t, p, 1, "", in)
	require.Equal(t, "order/A1\xff", string(l.Resource), "any bytes")
	regular, err := opOf(t, p, ofWorkflow(), in)
	require.NoError(t, err)
	require.Equal(t, regular.Key.String(), keyOfLocal(t, p, l), "a local and a regular call share a business key")
	require.Equal(t, regular.Fingerprint.String(), l.Compared)
	require.True(t, strings.HasPrefix(l.Compared, "picked:"))
	require.NotContains(t, string(localCalls{}.header(&plan{Policy: p}, "a", []any{in}, "").GetData()), "A1", "the rest is digests")
	require.Equal(t, "explicit k", localOf(t, p, 1, "k", in).Key)
}

// N11: what JSON does not show cannot be told apart, in any scope, unless something picks.
func TestHiddenFieldsOfALocalActivity(t *testing.T) {
	t.Parallel()
	type money struct {
		Currency string
		cents    int64
	}
	in := money{"EUR", 100}
	for scope := range scopeNames {
		_, err := parseLocal(localCalls{}.header(&plan{Policy: Policy{Scope: scope}}, "a", []any{in}, "").GetData(), "a")
		require.ErrorContains(t, err, "/0/cents", scope)
		p := Policy{Scope: scope, Key: KeyFrom(func(m money) any { return m.cents })}
		a, b := localOf(t, p, 1, "", money{"EUR", 100}), localOf(t, p, 1, "", money{"EUR", 200})
		require.NotEqual(t, keyOfLocal(t, p, a), keyOfLocal(t, p, b), "%s", scope)
	}
	type opaque struct{ id string } //nolint:unused // that it shows nothing is the point
	_, err := parseLocal(localCalls{}.header(&plan{}, "a", []any{opaque{}}, "").GetData(), "a")
	require.ErrorContains(t, err, "/0/id", "the field, and not only that nothing is shown")
	many := make([]map[string]any, 1_000_000)
	_, err = parseLocal(localCalls{}.header(&plan{}, "a", []any{many}, "").GetData(), "a")
	require.ErrorContains(t, err, "over the limit")
	require.NotEmpty(t, localOf(t, Policy{Scope: ScopeRun}, 1, "k", in).Input)
	_, err = opOf(t, Policy{Scope: ScopeRun}, ofWorkflow(), in)
	require.NoError(t, err, "a regular activity does not get it")
}

// A header that is not ours, cut short, or of a newer version is refused by name, and
// nothing stands for it.
func TestAForeignHeaderIsNoLocalCall(t *testing.T) {
	t.Parallel()
	good := string(localCalls{}.header(&plan{}, "a", []any{1}, "").GetData())
	_, err := parseLocal([]byte(good), "a")
	require.NoError(t, err)
	for i := range good {
		_, err := parseLocal([]byte(good[:i]), "a")
		require.ErrorContains(t, err, "the header fencekit-call is not what", "cut to %d bytes", i)
	}
	for text, says := range map[string]string{
		`null`: "version", `{}`: "version", `[]`: "is not what", `"x"`: "is not what", `{"version":1}`: "is not what",
		strings.Replace(good, "call/1", "call/2", 1):            `is of version "fencekit/call/2", not "fencekit/call/1"`,
		strings.Replace(good, `"type":"a"`, `"type":"b"`, 1):    "another activity",
		strings.Replace(good, `"number":1`, `"number":0`, 1):    "lacks the input or the number",
		strings.Replace(good, `"number":1`, `"number":-1`, 1):   "lacks the input or the number",
		strings.Replace(good, `"number":1`, `"number":1e99`, 1): "is not what",
		strings.Replace(good, `"input":"`, `"inpud":"`, 1):      "lacks the input or the number",
	} {
		_, err := parseLocal([]byte(text), "a")
		require.ErrorContains(t, err, says, text)
		require.ErrorContains(t, err, "the header fencekit-call", text)
	}
}

// G02: attempts of one call may find the header that an older release has written.
func TestTheLocalHeaderIsAWireFormat(t *testing.T) {
	t.Parallel()
	p := Policy{Scope: ScopeRun, Key: KeyFrom(func(c charge) any { return c.Order }), Resource: ResourceFrom(func(c charge) string { return c.Order })}
	require.JSONEq(t, `{"version":"fencekit/call/1","type":"a","number":1,
		"input":"v1:key:2ed063e56b29c3ddfa5803b748b1cd1aff385f7347b9888010daeb9bfb25c22a fb2b88822298655c88e01e6dfea4a0a062d9281d8d0dfdf2c50aa5ed1c58c612",
		"key":"v1:key:2ed063e56b29c3ddfa5803b748b1cd1aff385f7347b9888010daeb9bfb25c22a",
		"compared":"whole:fb2b88822298655c88e01e6dfea4a0a062d9281d8d0dfdf2c50aa5ed1c58c612","resource":"QTE="}`,
		string(localCalls{}.header(&plan{Policy: p}, "a", []any{charge{Order: "A1"}}, "").GetData()))
}

// A function of the policy that panics in workflow code fails the call, not the workflow.
func TestAPolicyThatPanicsInAWorkflow(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{
		{Key: KeyFromArgs(func([]any) any { panic("secret") })}, {Scope: ScopeRun, Key: KeyFromArgs(func([]any) any { panic("secret") })},
		{Resource: ResourceFromArgs(func([]any) string { panic("secret") })},
		{Scope: ScopeRun, Key: KeyFromArgs(func([]any) any { return 1 }), Compare: CompareFromArgs(func([]any) any { panic("secret") })},
	} {
		_, err := parseLocal(localCalls{}.header(&plan{Policy: p}, "a", []any{1}, "").GetData(), "a")
		require.ErrorContains(t, err, "it panicked")
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := parseLocal(localCalls{}.header(&plan{}, "a", []any{panics{1}}, "").GetData(), "a")
	require.ErrorContains(t, err, "panicked")
}

type panics struct{ N int }

func (panics) MarshalJSON() ([]byte, error) { panic("secret") }
