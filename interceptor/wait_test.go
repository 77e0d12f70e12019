package interceptor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// held has somebody else, in another program, hold a resource under a kept lease.
func (e *env) held(name string, ttl time.Duration) (release func()) {
	e.Helper()
	l, err := e.store().Acquire(e.ctx(), name, primitives.LeaseOptions{TTL: ttl, Holder: "somebody else"})
	require.NoError(e, err)
	_, stop := l.Keep(context.Background())
	var once sync.Once
	release = func() {
		once.Do(func() { stop(); _ = l.Release(context.Background()) })
	}
	e.Cleanup(release)
	return release
}

// D02: while the holder lives, and up to the end of one lease after it, a busy activity
// uses two of its attempts at most.
func TestBusyDoesNotEatTheRetryBudget(t *testing.T) {
	t.Parallel()
	const ttl = 18 * time.Second // two thirds of which are left when a machine begins to stand still
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: ttl, Resource: resource("r")}))
	seen, s := e.watch(), newStage(e, "work")
	release := e.held("r", ttl)
	e.worker(s.register)
	p := staged("work", "x", forever)
	p.Options.RetryPolicy.MaximumAttempts = 3
	run := e.start(p)
	eventually(t, "attempt 1 to be busy", func() bool { return len(seen.busy()) > 0 })
	busyAt := time.Now()
	var busy *primitives.BusyError
	require.ErrorAs(t, seen.busy()[0].Err, &busy)
	eventually(t, "the holder's time", func() bool { return time.Since(busyAt) > 3*time.Second })
	release()

	r := s.next()
	require.GreaterOrEqual(t, r.info.StartedTime.Sub(seen.firstBusy()), busy.Remaining, "the delay covers what was left of the lease")
	require.LessOrEqual(t, len(seen.busy()), 2)
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
}

// B14 (b): a crashed attempt holds the lease of a body that may not be taken over. The
// retries are not burnt before that lease is over.
func TestRetriesOutlastTheLeaseOfACrashedAttempt(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: ttl, NoTakeover: true}))
	seen, s := e.watch(), newStage(e, "work")
	shared, proxied := e.opts.Redis, devstack.ProxyForTest(t, e.rdb.Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxied.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	e.opts.Redis = rdb
	crashed := e.worker(s.register)
	p := staged("work", "x", 2*time.Second)
	// Some may be lost with the worker that stops, or on a machine that stands still. To ask
	// all the time would burn any number of them.
	p.Options.RetryPolicy.MaximumAttempts = 20
	run := e.start(p)
	first := s.next()
	require.NoError(t, proxied.Refuse()) // for Redis, the worker is gone
	proxied.Reset()
	crashed.Stop()

	e.opts.Redis = shared
	e.worker(s.register)
	second := s.later(first)
	require.GreaterOrEqual(t, time.Since(first.info.StartedTime), ttl)
	require.Greater(t, second.token(), first.token())
	require.NotEmpty(t, seen.began(primitives.Reclaimed))
	require.Empty(t, seen.began(primitives.TakenOver))
	require.LessOrEqual(t, len(seen.busy()), 5)
	second.give("second")
	s.giveFurther("second")
	require.NoError(t, run.Get(e.ctx(), nil))
}

// waiting is an env in which one call of "work" is at work and another one waits for it
// inside its attempt, under a lease that does not end.
func waiting(t *testing.T, p interceptor.Policy, edit func(*plan)) (e *env, s *stage, first *entrance, second client.WorkflowRun) {
	t.Helper()
	p.Scope, p.LeaseTTL = interceptor.ScopeNamespace, forever
	e = newEnv(t, interceptor.For("work", p))
	s = newStage(e, "work")
	e.worker(s.register)
	e.start(staged("work", "x", forever))
	first = s.next()
	later := staged("work", "x", forever)
	later.Options.RetryPolicy.MaximumAttempts = 1
	if edit != nil {
		edit(&later)
	}
	return e, s, first, e.start(later)
}

// waiters are those who stand in line for the resource of a run, or for its record.
func (e *env) waiters(r *entrance) int {
	l, err := e.store().Inspect(e.Context(), r.attempt.Token.Resource)
	require.NoError(e, err)
	return l.Waiters
}

func TestWaitIsHandedTheResult(t *testing.T) {
	t.Parallel()
	e, s, first, second := waiting(t, interceptor.Policy{Wait: time.Hour}, nil)
	eventually(t, "the second to wait", func() bool { return e.waiters(first) == 1 })
	first.give("done")
	require.NoError(t, second.Get(e.ctx(), nil))
	s.over()
}

func TestWaitIsHandedTheLeaseOfAFailedCall(t *testing.T) {
	t.Parallel()
	e, s, first, second := waiting(t, interceptor.Policy{Wait: time.Hour}, nil)
	eventually(t, "the second to wait", func() bool { return e.waiters(first) == 1 })
	first.fail(temporal.NewNonRetryableApplicationError("no", "No", nil))
	s.next().give("second")
	require.NoError(t, second.Get(e.ctx(), nil))
}

func TestWaitIsCutToHalfOfTheDeadline(t *testing.T) {
	t.Parallel()
	e, s, first, second := waiting(t, interceptor.Policy{Wait: time.Hour}, func(p *plan) {
		p.Options.StartToCloseTimeout, p.Options.RetryPolicy.MaximumAttempts = 12*time.Second, 0
	})
	e.failsAsBusy(second)
	first.give("done")
	require.NoError(t, second.Get(e.ctx(), nil))
	s.over()
}

func TestWaitIsCutToHalfOfTheHeartbeatTimeout(t *testing.T) {
	t.Parallel()
	e, s, first, second := waiting(t, interceptor.Policy{Wait: time.Hour}, func(p *plan) {
		p.Options.HeartbeatTimeout, p.Options.RetryPolicy.MaximumAttempts = 12*time.Second, 0
	})
	e.failsAsBusy(second)
	first.give("done")
	require.NoError(t, second.Get(e.ctx(), nil))
	s.over()
}

// failsAsBusy waits until an attempt of run's activity fails as busy. If none were told in
// time that it may wait no longer, all would fail with a timeout.
func (e *env) failsAsBusy(run client.WorkflowRun) {
	e.Helper()
	eventually(e, "an attempt to be busy, and not to time out", func() bool {
		d, err := e.client.DescribeWorkflow(e.Context(), run.GetID(), run.GetRunID())
		if err != nil || len(d.RawResponse.GetPendingActivities()) == 0 {
			return false
		}
		return d.RawResponse.GetPendingActivities()[0].GetLastFailure().GetApplicationFailureInfo().GetType() == interceptor.TypeBusy
	})
}

// fan calls one activity many times at once.
func fan(ctx workflow.Context, p plan, times int) error {
	ctx = workflow.WithActivityOptions(ctx, p.Options)
	var all []workflow.Future
	for range times {
		all = append(all, workflow.ExecuteActivity(ctx, p.Activity, p.Args...))
	}
	for _, f := range all {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// stopwatch is an interceptor that notes how long calls take that do not run the body.
type stopwatch struct {
	sdk.WorkerInterceptorBase

	body    sync.Map // task tokens of calls that ran it
	mu      sync.Mutex
	longest time.Duration
}

func (s *stopwatch) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	i := &timed{watch: s}
	i.Next = next
	return i
}

type timed struct {
	sdk.ActivityInboundInterceptorBase

	watch *stopwatch
}

func (i *timed) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (any, error) {
	began := time.Now()
	out, err := i.Next.ExecuteActivity(ctx, in)
	i.watch.mu.Lock()
	defer i.watch.mu.Unlock()
	if _, ran := i.watch.body.Load(string(activity.GetInfo(ctx).TaskToken)); !ran {
		i.watch.longest = max(i.watch.longest, time.Since(began))
	}
	return out, err
}

// B20: three hundred calls for one key run the body once, in a bounded number of Redis
// commands, and hold their worker slots no longer than Policy.Wait.
func TestManyCallsForOneKey(t *testing.T) {
	t.Parallel()
	const calls, slack = 300, time.Minute
	for _, c := range []struct {
		wait time.Duration
		each int // Redis commands for each attempt
	}{
		{wait: 0, each: 2},
		{wait: 10 * time.Second, each: 10},
	} {
		t.Run(fmt.Sprint("waiting ", c.wait), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("work", interceptor.Policy{
				LeaseTTL: forever, Scope: interceptor.ScopeNamespace, Wait: c.wait}))
			own := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
			e.opts.Redis = own.Client(func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = true, stall })
			var attempts, runs atomic.Int64
			w := &stopwatch{}
			count := func(ctx context.Context, _ string) (string, error) {
				runs.Add(1)
				w.body.Store(string(activity.GetInfo(ctx).TaskToken), true)
				select { // the load itself
				case <-time.After(2 * time.Second):
				case <-ctx.Done():
				}
				return "done", ctx.Err()
			}
			seen := e.watch()
			e.worker(func(r worker.Registry) {
				r.RegisterWorkflowWithOptions(fan, workflow.RegisterOptions{Name: "fan"})
				r.RegisterActivityWithOptions(count, registerAs("work"))
			}, func(o *worker.Options) { o.Interceptors = append([]sdk.WorkerInterceptor{w}, o.Interceptors...) })
			p := staged("work", "x", forever)
			p.Options.TaskQueue = e.queue
			run, err := e.execute(client.StartWorkflowOptions{}, "fan", p, calls)
			require.NoError(t, err)
			require.NoError(t, run.Get(e.ctx(), nil))

			attempts.Store(int64(len(seen.kind(primitives.EventBegan)) + len(seen.kind(primitives.EventRefused))))
			require.EqualValues(t, 1, runs.Load())
			require.GreaterOrEqual(t, attempts.Load(), int64(calls))
			require.LessOrEqual(t, w.longest, c.wait+slack)
			sent := commands(t, e.opts.Redis.(*redis.Client))
			t.Logf("%d calls: %d attempts, %d Redis commands, longest slot %s", calls, attempts.Load(), sent, w.longest)
			require.LessOrEqual(t, sent, c.each*int(attempts.Load())+100)
		})
	}
}

// commands is how many commands a Redis has been sent by clients.
func commands(t testing.TB, rdb *redis.Client) (n int) {
	t.Helper()
	stats, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(line, ":calls=")
		var calls int
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_subscribe", "cmdstat_unsubscribe", "cmdstat_ping":
			_, err := fmt.Sscanf(rest, "%d", &calls)
			require.NoError(t, err)
			n += calls
		}
	}
	require.Positive(t, n)
	return n
}

// A call that is cancelled while it waits is cancelled, and not busy. Somebody else
// heartbeats for it.
func TestCanceledWhileWaiting(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Resource: resource("r"), Wait: time.Hour}))
	m, s := e.metered(), newStage(e, "work")
	e.held("r", forever)
	e.worker(s.register, before(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for tick := time.NewTicker(soon); ; {
				activity.RecordHeartbeat(ctx)
				select {
				case <-tick.C:
				case <-stop:
					return
				}
			}
		}()
		return next(ctx, in)
	}}), heartbeatsOften)
	p := staged("work", "x", forever)
	p.Options.HeartbeatTimeout = forever
	p.Options.WaitForCancellation = true
	run := e.start(p)
	eventually(t, "the call to wait", func() bool {
		l, err := e.store().Inspect(t.Context(), "r")
		require.NoError(t, err)
		return l.Waiters == 1
	})
	e.cancel(run)
	err := run.Get(e.ctx(), nil)
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	require.Equal(t, map[string]int64{"canceled": 1}, m.calls())
	eventually(t, "the line to be empty", func() bool {
		l, err := e.store().Inspect(t.Context(), "r")
		require.NoError(t, err)
		return l.Waiters == 0
	})
	s.over()
}

// A local activity that finds its operation busy is retried like any other: within the
// workflow task if it may ask soon, and by a timer of its workflow if its attempts are
// limited, and the lease outlasts the workflow task.
func TestBusyLocalActivity(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int32{"within the task": 0, "by a timer": 50} {
		t.Run(name, func(t *testing.T) {
			const ttl = 18 * time.Second // of which at least 12 are left
			t.Parallel()
			e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: ttl, Scope: interceptor.ScopeNamespace}))
			seen, s := e.watch(), newStage(e, "work")
			e.worker(s.register)
			first := e.start(staged("work", "x", forever))
			r := s.next()
			p := staged("work", "x", forever)
			p.Local = true
			p.Options.RetryPolicy.MaximumAttempts = attempts
			asked := time.Now()
			second := e.start(p)
			eventually(t, "the second to be busy", func() bool { return len(seen.busy()) > 0 })
			r.give("one result")
			var out string
			require.NoError(t, second.Get(e.ctx(), &out))
			require.Equal(t, "one result", out)
			require.NoError(t, first.Get(e.ctx(), nil))
			// One, but for a machine that stands still: its workflow tasks run it again.
			require.LessOrEqual(t, len(seen.busy()), 2+int(time.Since(asked)/(2*time.Second)))
			s.over()
		})
	}
}
