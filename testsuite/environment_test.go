package testsuite_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/testsuite"
)

func count2(ctx workflow.Context, local bool) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	for range 2 {
		run := workflow.ExecuteActivity
		if local {
			run = workflow.ExecuteLocalActivity
		}
		if err := run(ctx, (*counter).Count, "jo").Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// The SDK's trap: its environments share one workflow id, run id and activity ids.
func TestHundredEnvironments(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if i%2 == 0 {
				env := kit.ActivityEnvironment()
				env.RegisterActivity(c.Count)
				_, err := env.ExecuteActivity(c.Count, "jo")
				require.NoError(t, err)
				return
			}
			env := kit.WorkflowEnvironment()
			env.RegisterActivity(c.Count)
			env.ExecuteWorkflow(count2, i%4 == 1)
			require.NoError(t, env.GetWorkflowError())
		})
	}
	all.Wait()
	require.EqualValues(t, 50+50*2, c.runs.Load())
}

// passages counts how often activities pass through the interceptors.
type passages struct {
	sdk.WorkerInterceptorBase
	sdk.ActivityInboundInterceptorBase

	n *atomic.Int64
}

func (p *passages) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	in := &passages{n: p.n}
	in.Next = next
	return in
}

func (p *passages) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (any, error) {
	p.n.Add(1)
	return p.Next.ExecuteActivity(ctx, in)
}

// The SDK's traps with mocks, as WorkflowEnvironment documents them: the workflow calls
// the activity twice.
func TestMocksAndTheGuard(t *testing.T) {
	t.Parallel()
	values := []any{"mocked", nil}
	function := []any{func(context.Context, string) (string, error) { return "mocked", nil }}
	for _, c := range []struct {
		name    string
		local   bool
		returns []any
		want    int64
	}{
		{"values", false, values, 0},
		{"function", false, function, 2},
		{"local, values", true, values, 2},
		{"local, function", true, function, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := &passages{n: &atomic.Int64{}}
			acts := &counter{}
			kit := testsuite.New(t, testsuite.Options{
				Guards: []interceptor.Guard{interceptor.For(acts.Count, interceptor.Policy{})},
				Before: []sdk.WorkerInterceptor{p},
			})
			env := kit.WorkflowEnvironment()
			env.RegisterActivity(acts.Count)
			env.OnActivity(acts.Count, mock.Anything, "jo").Return(c.returns...)
			env.ExecuteWorkflow(count2, c.local)
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, c.want, p.n.Load())
			require.Zero(t, acts.runs.Load())
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  func(*testsuite.Kit)
		refuse bool
	}{
		"down":       {(*testsuite.Kit).RedisDown, true},
		"read only":  {(*testsuite.Kit).RedisReadOnly, true},
		"slow":       {(*testsuite.Kit).RedisSlow, true},
		"lost reply": {func(k *testsuite.Kit) { k.LoseReply(1) }, false},
		"none":       {func(*testsuite.Kit) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit, acts := newCounter(t, interceptor.Policy{})
			c.fault(kit)
			run := kit.Execute(acts.Count, "jo")
			if !c.refuse {
				testsuite.RequireExecuted(t, run)
				return
			}
			testsuite.RequireUnavailable(t, run)
			require.Zero(t, acts.runs.Load())
			kit.RedisUp()
			testsuite.RequireExecuted(t, run.NextAttempt())
		})
	}
}

// After a flush, and with a clock that was set back, tokens still rise; the lease that
// was flushed is not revived.
func TestFlushAndClock(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{
		Resource: interceptor.ResourceFrom(func(name string) string { return "name/" + name }),
	})
	zombie := kit.Call(c.Count, "jo").FreezeAt(testsuite.BeforeComplete)
	kit.RegressClock(time.Hour)
	next := zombie.NextAttempt()
	testsuite.RequireTokensIncrease(t, zombie, next)
	other := kit.Execute(c.Count, "jo")
	testsuite.RequireTokensIncrease(t, next, other)
	kit.AdvanceClock(2 * time.Hour)
	kit.FlushRedis()
	testsuite.RequireNoMemo(t, other)
	testsuite.RequireTokensIncrease(t, other, kit.Execute(c.Count, "jo"))
	zombie.Thaw()
	testsuite.RequireLeaseLost(t, zombie)
}

func TestLeaseFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*testsuite.Kit, string){
		"expired": (*testsuite.Kit).ExpireLease,
		"stolen":  func(k *testsuite.Kit, r string) { k.StealLease(r) },
		"freed":   (*testsuite.Kit).FreeLease,
		"by time": func(k *testsuite.Kit, _ string) { k.AdvanceClock(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit, c := newCounter(t, interceptor.Policy{})
			run := kit.Call(c.Count, "jo").FreezeAt(testsuite.BeforeComplete)
			testsuite.RequireBusy(t, run.Duplicate())
			fault(kit, run.Resource())
			again := run.Duplicate()
			run.Thaw()
			if name == "stolen" {
				testsuite.RequireBusy(t, again)
				testsuite.RequireExecuted(t, run) // nobody has begun the operation after it
				return
			}
			testsuite.RequireExecuted(t, again)
			testsuite.RequireLeaseLost(t, run)
		})
	}
}
