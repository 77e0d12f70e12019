package interceptor

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

func pay(context.Context, charge, int) error { return nil }

func withoutInput() error { return nil }

func withContextOnly(context.Context) error { return nil }

func withoutContext(charge) error { return nil }

func newWith(t *testing.T, edit func(*Options)) error {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	o := Options{Redis: rdb, Guards: []Guard{For(pay, Policy{})}}
	edit(&o)
	_, err := New(o)
	return err
}

// A key function of other types than the activity is noticed before anything runs.
func TestTypeMismatchIsCaughtAtConstruction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		activity any
		policy   Policy
		rule     string // "" if it fits
	}{
		"fits":                    {pay, Policy{Key: KeyFrom(func(charge) any { return 1 })}, ""},
		"fits two":                {pay, Policy{Key: KeyFrom2(func(charge, int) any { return 1 })}, ""},
		"fits without context":    {withoutContext, Policy{Key: KeyFrom(func(charge) any { return 1 })}, ""},
		"takes all":               {pay, Policy{Key: KeyFromArgs(func([]any) any { return 1 })}, ""},
		"by name, nothing known":  {"pay", Policy{Key: KeyFrom(func(string) any { return 1 })}, ""},
		"other type":              {pay, Policy{Key: KeyFrom(func(string) any { return 1 })}, "Guards[0] (pay).Key: takes a string as argument 1, the activity a interceptor.charge"},
		"pointer":                 {pay, Policy{Key: KeyFrom(func(*charge) any { return 1 })}, "takes a *interceptor.charge as argument 1"},
		"second":                  {pay, Policy{Key: KeyFrom2(func(charge, string) any { return 1 })}, "takes a string as argument 2, the activity a int"},
		"too many":                {withoutContext, Policy{Key: KeyFrom2(func(charge, int) any { return 1 })}, "takes 2 arguments, the activity 1"},
		"resource of other type":  {pay, Policy{Resource: ResourceFrom(func(int) string { return "x" })}, "Guards[0] (pay).Resource: takes a int as argument 1"},
		"resource of two":         {pay, Policy{Resource: ResourceFrom2(func(int, int) string { return "x" })}, "(pay).Resource: takes a int as argument 1"},
		"compare of other type":   {pay, Policy{Scope: ScopeRun, Compare: CompareFrom(func(int) any { return "x" })}, "Guards[0] (pay).Compare: takes a int as argument 1"},
		"compare of two":          {pay, Policy{Scope: ScopeRun, Compare: CompareFrom2(func(int, int) any { return "x" })}, "(pay).Compare: takes a int as argument 1"},
		"compare nil":             {pay, Policy{Scope: ScopeRun, Compare: CompareFromArgs(nil)}, "Compare: was made from a nil function"},
		"compare in execution":    {pay, Policy{Compare: CompareNothing()}, "Compare: does nothing under ScopeExecution"},
		"compare in execution 2":  {"pay", Policy{Compare: CompareFrom(func(charge) any { return 1 })}, "Compare: does nothing under ScopeExecution"},
		"N17 nothing to key":      {withoutInput, Policy{Scope: ScopeNamespace}, "Key: is missing: an activity without input"},
		"N17 a context is none":   {withContextOnly, Policy{Scope: ScopeNamespace}, "Key: is missing: an activity without input"},
		"N17 a constant":          {withoutInput, Policy{Scope: ScopeNamespace, Key: KeyFromArgs(func([]any) any { return "nightly" })}, ""},
		"N17 a workflow's":        {withoutInput, Policy{Scope: ScopeWorkflow}, ""},
		"nil function":            {pay, Policy{Key: KeyFrom[charge](nil)}, "Key: was made from a nil function"},
		"nil function of two":     {pay, Policy{Key: KeyFrom2[charge, int](nil)}, "Key: was made from a nil function"},
		"nil function of all":     {pay, Policy{Resource: ResourceFromArgs(nil)}, "Resource: was made from a nil function"},
		"nil function and a name": {"pay", Policy{Key: KeyFrom[charge](nil)}, "Key: was made from a nil function"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newWith(t, func(o *Options) { o.Guards = []Guard{For(c.activity, c.policy)} })
			if c.rule == "" {
				require.NoError(t, err)
				return
			}
			var o *primitives.OptionError
			require.ErrorAs(t, err, &o)
			require.Contains(t, err.Error(), c.rule)
		})
	}
}

func TestKeysOfSeveralArguments(t *testing.T) {
	t.Parallel()
	two := Policy{Scope: ScopeNamespace, Key: KeyFrom2(func(c charge, n int) any { return []any{c.Order, n} })}
	all := Policy{Scope: ScopeNamespace, Key: KeyFromArgs(func(args []any) any { return args[1] })}
	a1, a2, b1 := []any{charge{Order: "a"}, 1}, []any{charge{Order: "a"}, 2}, []any{charge{Order: "b"}, 1}
	require.NotEqual(t, keyOf(t, two, ofWorkflow(), a1...), keyOf(t, two, ofWorkflow(), a2...))
	require.NotEqual(t, keyOf(t, two, ofWorkflow(), a1...), keyOf(t, two, ofWorkflow(), b1...))
	require.NotEqual(t, keyOf(t, all, ofWorkflow(), a1...), keyOf(t, all, ofWorkflow(), a2...))
	require.Equal(t, keyOf(t, all, ofWorkflow(), a1...), keyOf(t, all, ofWorkflow(), b1...))
}

func TestResourcesOfSeveralArguments(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]ResourceFunc{
		"one": ResourceFrom(func(c charge) string { return "order/" + c.Order }),
		"two": ResourceFrom2(func(c charge, _ int) string { return "order/" + c.Order }),
		"all": ResourceFromArgs(func(args []any) string { return "order/" + args[0].(charge).Order }),
	} {
		op, err := opOf(t, Policy{Resource: f}, ofWorkflow(), charge{Order: "A1"}, 1)
		require.NoError(t, err, name)
		require.Equal(t, "order/A1", op.Resource, name)
	}
	_, err := opOf(t, Policy{Resource: ResourceFrom(func(charge) string { return "" })}, ofWorkflow(), charge{})
	require.ErrorContains(t, err, "empty name")
}

// A function that panics, or meets other arguments than it takes, gives no key; its
// error shows types and no values.
func TestAKeyFunctionThatFails(t *testing.T) {
	t.Parallel()
	byOrder := Policy{Scope: ScopeRun, Key: KeyFrom(func(c charge) any { return c.Order })}
	for name, c := range map[string]struct {
		policy Policy
		args   []any
		text   string
	}{
		"panics":          {Policy{Scope: ScopeRun, Key: KeyFrom(func(charge) any { panic("secret") })}, []any{charge{Order: "secret"}}, "Policy.Key: it panicked"},
		"index of all":    {Policy{Scope: ScopeRun, Key: KeyFromArgs(func(a []any) any { return a[3] })}, []any{"secret"}, "Policy.Key: it panicked"},
		"compare panics":  {Policy{Scope: ScopeRun, Key: KeyFromArgs(func([]any) any { return 1 }), Compare: CompareFrom(func(charge) any { panic("secret") })}, []any{charge{}}, "Policy.Compare: it panicked"},
		"resource panics": {Policy{Resource: ResourceFrom(func(charge) string { panic("secret") })}, []any{charge{}}, "Policy.Resource: it panicked"},
		"other type":      {byOrder, []any{"secret"}, "it takes a interceptor.charge as argument 1, the call has a string"},
		"too few":         {byOrder, nil, "it takes 1 arguments, the call has 0"},
		"nil for a value": {byOrder, []any{nil}, "the call has a <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := requireKeyError(t, c.policy, c.args...)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	nilPointer := Policy{Key: KeyFrom(func(c *charge) any { return c == nil })}
	require.NotEmpty(t, keyOf(t, nilPointer, ofWorkflow(), nil), "a nil that has lost its type is one of T")
}
