package testsuite_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/testsuite"
)

// counter is an activity that counts how often its body has run.
type counter struct{ runs atomic.Int64 }

func (c *counter) Count(ctx context.Context, name string) (string, error) {
	c.runs.Add(1)
	return "hello " + name, nil
}

func newCounter(t *testing.T, p interceptor.Policy) (*testsuite.Kit, *counter) {
	c := &counter{}
	return testsuite.New(t, testsuite.Options{Guards: []interceptor.Guard{interceptor.For(c.Count, p)}}), c
}

func TestNextAttemptIsReplayed(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{})
	run := kit.Execute(c.Count, "jo")
	again := run.NextAttempt()
	for _, r := range []*testsuite.Run{run, again} {
		var out string
		require.NoError(t, r.Result(&out))
		require.Equal(t, "hello jo", out)
	}
	testsuite.RequireExecuted(t, run)
	testsuite.RequireReplayed(t, again)
	testsuite.RequireReplayed(t, run.Duplicate())
	testsuite.RequireReplayed(t, run.AfterReset())
	testsuite.RequireExecutedOnce(t, run, again)
	testsuite.RequireMemoStored(t, run)
	require.EqualValues(t, 1, c.runs.Load())
}

// Two scheduled activities are two operations, although the SDK's environments give
// them the same ids; under a business key they are one.
func TestIdentitySpaces(t *testing.T) {
	t.Parallel()
	for scope, want := range map[interceptor.Scope]int64{interceptor.ScopeExecution: 2, interceptor.ScopeNamespace: 1} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			kit, c := newCounter(t, interceptor.Policy{Scope: scope})
			kit.Execute(c.Count, "jo").OtherWorkflow()
			require.EqualValues(t, want, c.runs.Load())
		})
	}
}

func TestCrashPoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point testsuite.Point
		state primitives.State
		runs  int64
	}{
		{testsuite.BeforeStep(1), primitives.Absent, 1},
		{testsuite.BeforeBody, primitives.Running, 1},
		{testsuite.BeforeComplete, primitives.Running, 2},
		{testsuite.AfterComplete, primitives.Done, 1},
	} {
		t.Run(c.point.String(), func(t *testing.T) {
			t.Parallel()
			kit, acts := newCounter(t, interceptor.Policy{})
			run := kit.Call(acts.Count, "jo").CrashAt(c.point)
			require.ErrorIs(t, run.Err(), testsuite.ErrCrashed)
			if c.state != primitives.Absent {
				testsuite.RequireState(t, run, c.state)
			}
			again := run.NextAttempt()
			require.NoError(t, again.Err())
			require.Equal(t, c.runs, acts.runs.Load())
			if c.state == primitives.Running {
				testsuite.RequireTokensIncrease(t, run, again)
				require.Equal(t, primitives.TakenOver, again.Outcome())
			}
		})
	}
}

// A duplicate meets an attempt at work; the next attempt takes over, and the frozen one
// comes to nothing when it is thawed.
func TestFrozenRun(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{})
	zombie := kit.Call(c.Count, "jo").FreezeAt(testsuite.BeforeComplete)
	require.True(t, zombie.Frozen())
	delay := testsuite.RequireBusy(t, zombie.Duplicate())
	require.Greater(t, delay, time.Second)
	next := zombie.NextAttempt()
	testsuite.RequireExecuted(t, next)
	zombie.Thaw()
	testsuite.RequireLeaseLost(t, zombie)
	testsuite.RequireMemoStored(t, next)
}

func TestActivityByName(t *testing.T) {
	t.Parallel()
	kit := testsuite.New(t, testsuite.Options{Guards: []interceptor.Guard{interceptor.For("greet", interceptor.Policy{})}})
	fn := func(context.Context) error { return errors.New("no") }
	kit.Register(fn, activity.RegisterOptions{Name: "greet"})
	for _, call := range []any{fn, "greet"} {
		run := kit.Execute(call)
		require.ErrorContains(t, run.Err(), "no")
		require.True(t, run.BodyRan())
		testsuite.RequireState(t, run, primitives.Absent)
	}
}

func registerAs(name string) activity.RegisterOptions { return activity.RegisterOptions{Name: name} }

// What is nobody's name has one all the same.
func TestUnknownDelivery(t *testing.T) {
	t.Parallel()
	require.Equal(t, "delivery 9", testsuite.Delivery(9).String())
	require.Equal(t, "a duplicate of the attempt", testsuite.Duplicate.String())
}

// The reply that is lost is that of a command of the activity's, however many renewals
// come before it.
func TestLostReplyIsNotARenewals(t *testing.T) {
	t.Parallel()
	kit := testsuite.New(t, testsuite.Options{})
	var renewed atomic.Int64
	kit.Redis().AddHook(counting{&renewed})
	slow := func(ctx context.Context) error {
		kit.LoseReply(1)
		for before := renewed.Load(); renewed.Load() < before+2; {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Millisecond):
			}
		}
		if err := kit.Redis().Ping(ctx).Err(); err == nil {
			return errors.New("the reply was not lost")
		}
		return kit.Redis().Ping(ctx).Err()
	}
	kit.Guard(interceptor.For("slow", interceptor.Policy{LeaseTTL: 10 * time.Second, RenewEvery: 10 * time.Millisecond}))
	kit.Register(slow, registerAs("slow"))
	testsuite.RequireExecuted(t, kit.Execute("slow"))
}

// counting counts pipelines that were answered.
type counting struct{ n *atomic.Int64 }

func (c counting) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer c.n.Add(1)
		return next(ctx, cmds)
	}
}
