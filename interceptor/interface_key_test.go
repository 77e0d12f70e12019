package interceptor

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

func takesAny(context.Context, any) error       { return nil }
func takesAnyAlone(any) error                   { return nil }
func takesFloat(context.Context, float64) error { return nil }
func takesMany(context.Context, ...any) error   { return nil }

// keyOfCall is the key of a call of an activity, a function or a name, with args.
func keyOfCall(t *testing.T, fn any, args ...any) (string, error) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	k, err := New(Options{Redis: rdb, Guards: []Guard{For(fn, Policy{Scope: ScopeNamespace})}})
	require.NoError(t, err)
	info := ofWorkflow()
	info.ActivityType.Name, err = activityName(fn)
	require.NoError(t, err)
	plan := k.planFor(info.ActivityType.Name, args)
	op, err := newCall(context.Background(), k, plan, info).op(context.Background(), args)
	return op.Key.String(), err
}

// A04: JSON that is decoded for an interface makes a float of every number: a large
// integral one may have been another integer, and two of them would share a key.
func TestALargeNumberInAnInterfaceIsNoKey(t *testing.T) {
	t.Parallel()
	var decoded any = float64(1<<53 + 1)
	for name, c := range map[string]struct {
		fn   any
		args []any
	}{
		"an interface":          {takesAny, []any{decoded}},
		"without a context":     {takesAnyAlone, []any{decoded}},
		"several":               {takesMany, []any{[]any{decoded}}},
		"by name":               {"named", []any{decoded}},
		"by name, the second":   {"named", []any{"x", decoded}},
		"further than declared": {takesFloat, []any{1.5, decoded}},
	} {
		_, err := keyOfCall(t, c.fn, c.args...)
		var k *primitives.KeyError
		require.ErrorAs(t, err, &k, name)
	}
}

// Control: what is a float by its type is one, and what no float hides in is a key by
// name, too.
func TestOtherNumbersAreKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fn     any
		one    any
		second any
	}{
		"a float":                {takesFloat, 1e300, 2e300},
		"a float of 2^53":        {takesFloat, float64(1 << 53), float64(1<<53 + 2)},
		"small in an interface":  {takesAny, 41.0, 42.0},
		"a text in an interface": {takesAny, "9007199254740993", "9007199254740992"},
		"small by name":          {"named", 41.0, 42.0},
		"a text by name":         {"named", "9007199254740993", "9007199254740992"},
		"an integer by name":     {"named", int64(1<<53 + 1), int64(1 << 53)},
		"a struct by name":       {"named", charge{Amount: 1<<53 + 1}, charge{Amount: 1 << 53}},
	} {
		one, err := keyOfCall(t, c.fn, c.one)
		require.NoError(t, err, name)
		again, err := keyOfCall(t, c.fn, c.one)
		require.NoError(t, err, name)
		require.Equal(t, one, again, name)
		other, err := keyOfCall(t, c.fn, c.second)
		require.NoError(t, err, name)
		require.NotEqual(t, one, other, name)
	}
}
