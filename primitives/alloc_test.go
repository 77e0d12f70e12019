package primitives

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// answered is a client that knows the answer before the question and allocates
// nothing, so that what a test counts is fencekit's own.
type answered struct {
	Client
	bySHA map[string]*redis.Cmd
}

func (a answered) EvalSha(_ context.Context, sha string, _ []string, _ ...any) *redis.Cmd {
	return a.bySHA[sha]
}

// The numbers are stated in DESIGN.md, with a few to spare for the race detector. They
// bound what a call costs above go-redis, which allocates 33 times to run the two
// scripts of a guarded one.
func TestAGuardedCallAllocatesNoMoreThanStated(t *testing.T) { //nolint:paralleltest // counts allocations
	scripts, err := embeddedScripts()
	require.NoError(t, err)
	answer := func(fields ...any) *redis.Cmd {
		cmd := &redis.Cmd{}
		cmd.SetVal(fields)
		return cmd
	}
	grant := answer("begun", "0000028754956600082", "0")
	client := answered{bySHA: map[string]*redis.Cmd{
		scripts.begin.sha: grant, scripts.complete.sha: answer("completed"),
		scripts.acquire.sha: answer("granted", "0000028754956600082"), scripts.release.sha: answer("released"),
	}}
	store, err := New(client, Options{})
	require.NoError(t, err)
	store.direct = true // as for *redis.Client with ContextTimeoutEnabled
	guard, err := NewGuard(store, GuardOptions{})
	require.NoError(t, err)
	key, err := NewKey("test", 42)
	require.NoError(t, err)
	memo, ctx := []byte("memo"), context.Background()

	for _, c := range []struct {
		name string
		most float64
		call func() error
	}{
		{"Begin and Complete", 78, func() error {
			start, err := guard.Begin(ctx, Op{Key: key})
			if err != nil {
				return err
			}
			return start.Claim.Complete(ctx, memo)
		}},
		{"Do", 90, func() error {
			_, err := guard.Do(ctx, Op{Key: key}, func(context.Context) ([]byte, error) { return memo, nil })
			return err
		}},
		{"Acquire and Release", 52, func() error {
			l, err := store.Acquire(ctx, "r", LeaseOptions{})
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
	} {
		require.NoError(t, c.call())
		got := testing.AllocsPerRun(200, func() { _ = c.call() })
		t.Logf("%s: %.0f allocations", c.name, got)
		require.LessOrEqual(t, got, c.most, c.name)
	}
}
