package interceptor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// crowd is many different calls of one activity at once, all on one resource.
type crowd struct {
	callers int
	term    time.Duration // how long a body takes
	local   bool
	retry   *temporal.RetryPolicy
	policy  interceptor.Policy // less its resource

	toClose time.Duration // ScheduleToClose; default an hour
	workers int           // default one
}

// crowded is how a crowd fared.
type crowded struct {
	failed   int           // callers who never had their turn
	attempts int           // the most that a caller needed
	total    int           // of all callers together
	took     time.Duration // from the first call to the end of the last body
}

func (c crowded) String() string {
	return fmt.Sprintf("%d failed, at most %d attempts, %d in total, %.1f s", c.failed, c.attempts, c.total, c.took.Seconds())
}

// everybody makes all the calls of a crowd, and counts those that fail as busy.
func everybody(ctx workflow.Context, p plan, callers int) (failed int, err error) {
	ctx = workflow.WithActivityOptions(ctx, p.Options)
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: p.Options.StartToCloseTimeout, ScheduleToCloseTimeout: p.Options.ScheduleToCloseTimeout,
		RetryPolicy: p.Options.RetryPolicy})
	run := workflow.ExecuteActivity
	if p.Local {
		run = workflow.ExecuteLocalActivity
	}
	all := make([]workflow.Future, callers)
	for i := range all {
		all[i] = run(ctx, p.Activity, fmt.Sprint("caller ", i))
	}
	for _, f := range all {
		if err := f.Get(ctx, nil); err != nil {
			failed++
		}
	}
	return failed, nil
}

// meet has a crowd meet.
func (c crowd) meet(t *testing.T) (out crowded) {
	t.Helper()
	c.policy.Resource = resource("r")
	e := newEnv(t, interceptor.For("work", c.policy))
	var mu sync.Mutex
	attempts, started, ended := map[string]int{}, time.Time{}, time.Time{}
	count := before(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		mu.Lock()
		if started.IsZero() {
			started = time.Now()
		}
		attempts[in.Args[0].(string)]++
		mu.Unlock()
		return next(ctx, in)
	}})
	for range max(c.workers, 1) {
		e.worker(func(w worker.Registry) {
			w.RegisterWorkflowWithOptions(everybody, workflow.RegisterOptions{Name: "everybody"})
			w.RegisterActivityWithOptions(func(ctx context.Context, _ string) error {
				select { // the work itself
				case <-time.After(c.term):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				mu.Lock()
				defer mu.Unlock()
				ended = time.Now()
				return nil
			}, activity.RegisterOptions{Name: "work"})
		}, count)
	}
	p := staged("work", "", time.Minute)
	p.Local, p.Options.RetryPolicy, p.Options.TaskQueue = c.local, c.retry, e.queue
	if p.Options.ScheduleToCloseTimeout = c.toClose; c.toClose == 0 {
		p.Options.ScheduleToCloseTimeout = time.Hour
	}
	run, err := e.execute(client.StartWorkflowOptions{}, "everybody", p, c.callers)
	require.NoError(t, err)
	require.NoError(t, run.Get(e.ctx(), &out.failed))
	mu.Lock()
	defer mu.Unlock()
	for _, n := range attempts {
		out.attempts, out.total = max(out.attempts, n), out.total+n
	}
	out.took = ended.Sub(started)
	return out
}

func limited(attempts int32) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{MaximumAttempts: attempts}
}

// N33: callers of one resource come back one after another, as soon as they may ask: all
// have their turn within few attempts, and in a time that grows with what their bodies take
// and not with the lease. Before, one of them got in each time that the lease ended: 8 of 10
// callers with two attempts failed without having run, and 30 with unlimited attempts used
// 465 of them. A machine that stands still makes bodies longer than those before them, so
// that a few callers may fail all the same; before, four of five did.
func TestACrowdOnOneResource(t *testing.T) {
	t.Parallel()
	const term = 200 * time.Millisecond
	for name, c := range map[string]struct {
		crowd
		most int // attempts of all together
	}{
		"two attempts":              {crowd{callers: 10, retry: limited(2)}, 20},
		"four attempts":             {crowd{callers: 30, retry: limited(4)}, 90},
		"unlimited":                 {crowd{callers: 30}, 180},
		"unlimited, a long lease":   {crowd{callers: 30, policy: interceptor.Policy{LeaseTTL: time.Minute}}, 180},
		"local, four attempts":      {crowd{callers: 30, retry: limited(4), local: true}, 90},
		"a fleet, four attempts":    {crowd{callers: 30, retry: limited(4), workers: 5}, 90},
		"without takeover":          {crowd{callers: 30, retry: limited(4), policy: interceptor.Policy{NoTakeover: true}}, 90},
		"a minute to close":         {crowd{callers: 30, toClose: time.Minute}, 180},
		"waiting, and two attempts": {crowd{callers: 10, retry: limited(2), policy: interceptor.Policy{Wait: term * 5}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.term = term
			if c.policy.LeaseTTL == 0 {
				c.policy.LeaseTTL = time.Second
			}
			if c.retry == nil {
				c.retry = limited(0)
			}
			got := c.meet(t)
			t.Log(got)
			require.LessOrEqual(t, got.failed, c.callers/5)
			require.LessOrEqual(t, got.total, c.most)
		})
	}
}

// N33: a busy local activity that a timer of its workflow brings back asks for as long as its
// ScheduleToClose lasts. The SDK then says that it was scheduled anew, so that the next
// attempt would come too late, and Temporal fail the activity at once.
func TestABusyLocalActivityAsksUntilItsTimeIsUp(t *testing.T) {
	t.Parallel()
	const ttl = 18 * time.Second // more than a workflow task lasts
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: ttl, Resource: resource("r")}))
	seen, s := e.watch(), newStage(e, "work")
	release := e.held("r", forever)
	e.worker(s.register)
	p := staged("work", "x", forever)
	p.Local, p.Options.ScheduleToCloseTimeout, p.Options.RetryPolicy = true, 30*time.Second, limited(30)
	run := e.start(p)
	eventually(t, "it to come back by a timer, and to be busy again", func() bool { return len(seen.busy()) >= 2 })
	release()
	s.next().give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
}
