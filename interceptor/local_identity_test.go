package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// backedOff starts a local activity whose backoff is longer than the workflow task
// timeout: the SDK waits by a timer then, and schedules every attempt under an activity
// id of its own.
func (e *env) backedOff(p plan, attempts int32) client.WorkflowRun {
	e.Helper()
	p = p.local().attempts(attempts)
	p.Options.RetryPolicy.InitialInterval = 4 * time.Second
	run, err := e.execute(client.StartWorkflowOptions{WorkflowTaskTimeout: 2 * time.Second}, "run-one", p)
	require.NoError(e, err)
	return run
}

// ids are the activity ids of a body's runs.
type ids struct {
	counted

	mu  sync.Mutex
	all []string
}

func (i *ids) ran(ctx context.Context) int {
	i.mu.Lock()
	i.all = append(i.all, activity.GetInfo(ctx).ActivityID)
	i.mu.Unlock()
	return i.counted.ran(ctx)
}

// N04: an at-most-once body that has panicked does not run again, under whatever id.
func TestAtMostOnceOverALongBackoff(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]interceptor.Policy{
		"default":        {AtMostOnce: true},
		"whole input":    {AtMostOnce: true, Scope: interceptor.ScopeRun},
		"a key":          {AtMostOnce: true, Key: interceptor.KeyFrom(func(s string) any { return s })},
		"a resource too": {AtMostOnce: true, Resource: resource("account")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("charge", policy))
			var runs counted
			e.worker(named("charge", func(ctx context.Context, _ string) (int, error) {
				if runs.ran(ctx) == 1 {
					panic("out of range")
				}
				return runs.runs(), nil
			}))
			err := e.backedOff(call("charge", "x"), 2).Get(e.ctx(), nil)
			require.Equal(t, 1, runs.runs())
			require.Equal(t, interceptor.TypeOutcomeUnknown, kindOf(err))
		})
	}
}

// N04: one key over all attempts, so that one effect happens once, and others' requests
// keep their keys.
func TestAnEffectOverALongBackoff(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("deposit", interceptor.Policy{}))
	db := e.bank()
	var runs ids
	var requests [3]string
	e.worker(named("deposit", func(ctx context.Context, _ string) (string, error) {
		n := runs.ran(ctx)
		var err error
		if requests[n-1], err = interceptor.IdempotencyKey(ctx, "bank"); err != nil {
			return "", err
		}
		out, err := db.deposit(ctx, attemptOf(ctx).Key.String())
		if err == nil && n < 3 {
			return "", errors.New("once more")
		}
		return out, err
	}))
	var out string
	require.NoError(t, e.backedOff(call("deposit", "x"), 3).Get(e.ctx(), &out))
	require.Equal(t, "deposited", out)
	require.Len(t, runs.all, 3)
	require.NotEqual(t, runs.all[0], runs.all[1], "or the test shows nothing")
	require.NotEqual(t, runs.all[1], runs.all[2], "or the test shows nothing")
	balance, _ := db.account()
	require.EqualValues(t, 100, balance)
	require.Equal(t, requests[0], requests[1])
	require.Equal(t, requests[0], requests[2])
}

// N04: the next attempt takes over from the one before, whose writes are stale.
func TestAZombieOverALongBackoff(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	db, s := e.bank(), newStage(e, "sign")
	e.opts.Guards = []interceptor.Guard{interceptor.For("sign", interceptor.Policy{LeaseTTL: forever, Seal: pgxfence.Sealer(db.Pool)})}
	e.worker(s.register)
	run := e.backedOff(staged("sign", "x", time.Second), 9)
	first := s.next()
	second := s.next()
	require.NotEqual(t, first.info.ActivityID, second.info.ActivityID, "or the test shows nothing")
	require.Equal(t, first.attempt.Key, second.attempt.Key)
	require.Greater(t, second.token(), first.token())
	require.Equal(t, primitives.TakenOver, second.attempt.Outcome)
	require.ErrorIs(t, db.signInTx(first.zombie(), "first"), fence.ErrStale)
	newest := s.applies(second, func(ctx context.Context) error { return db.signInTx(ctx, "second") })
	first.give("first")
	newest.give("second")
	s.giveFurther("second")
	require.NoError(t, run.Get(e.ctx(), nil))
	_, owner := db.account()
	require.Equal(t, "second", owner)
}

// wavering makes some local calls, and its workflow task fails. Their bodies send it a
// signal, by which its code makes others when the task is tried again.
func wavering(ctx workflow.Context, calls, later []plan) (out []any, err error) {
	told := workflow.GetSignalChannel(ctx, "changed").ReceiveAsync(nil)
	if told {
		calls = later
	}
	for _, p := range calls {
		result, err := runOne(ctx, p.local())
		if err != nil {
			return nil, err
		}
		out = append(out, result)
	}
	if !told {
		panic("the workflow task fails")
	}
	return out, nil
}

// N05: a local call is told by what it asks for, not by its place: what the code asks for
// anew runs, and what it asks for again does not, whatever stands before it.
func TestLocalCallsAfterAFailedWorkflowTask(t *testing.T) {
	t.Parallel()
	charge := func(n int) plan { return call("charge", n) }
	note := func(n int) plan { return call("note", n) }
	for name, c := range map[string]struct {
		calls, later []plan
		want         []any
		runs         []string
	}{
		"the same":                    {[]plan{charge(100)}, []plan{charge(100)}, []any{"charged 100"}, []string{"charge 100"}},
		"other input":                 {[]plan{charge(100)}, []plan{charge(200)}, []any{"charged 200"}, []string{"charge 100", "charge 200"}},
		"twice, in one order":         {[]plan{charge(100), charge(100)}, []plan{charge(100), charge(100)}, []any{"charged 100", "charged 100"}, []string{"charge 100", "charge 100"}},
		"another type before it":      {[]plan{charge(100)}, []plan{note(1), charge(100)}, []any{"noted 1", "charged 100"}, []string{"charge 100", "note 1"}},
		"other input before it":       {[]plan{charge(100)}, []plan{charge(200), charge(100)}, []any{"charged 200", "charged 100"}, []string{"charge 100", "charge 200"}},
		"an equal call of another":    {[]plan{note(1), charge(100)}, []plan{note(1), note(1), charge(100)}, []any{"noted 1", "noted 1", "charged 100"}, []string{"note 1", "charge 100", "note 1"}},
		"one call less before it":     {[]plan{note(1), charge(100)}, []plan{charge(100)}, []any{"charged 100"}, []string{"note 1", "charge 100"}},
		"one equal call more, behind": {[]plan{charge(100)}, []plan{charge(100), charge(100)}, []any{"charged 100", "charged 100"}, []string{"charge 100", "charge 100"}},
		"in another order":            {[]plan{charge(100), charge(200)}, []plan{charge(200), charge(100)}, []any{"charged 200", "charged 100"}, []string{"charge 100", "charge 200"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("charge", interceptor.Policy{}), interceptor.For("note", interceptor.Policy{}))
			ran := make(chan string, 99)
			did := func(do, done string) any {
				return func(ctx context.Context, n float64) (string, error) { // as a plan has it, whose arguments are JSON
					ran <- fmt.Sprint(do, " ", n)
					w := activity.GetInfo(ctx).WorkflowExecution
					return fmt.Sprint(done, " ", n), e.client.SignalWorkflow(ctx, w.ID, w.RunID, "changed", nil)
				}
			}
			e.worker(and(named("charge", did("charge", "charged")), named("note", did("note", "noted")),
				func(w worker.Registry) { w.RegisterWorkflow(wavering) }))
			run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), wavering, c.calls, c.later)
			require.NoError(t, err)
			var out []any
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, c.want, out)
			close(ran)
			var runs []string
			for r := range ran {
				runs = append(runs, r)
			}
			require.Equal(t, c.runs, runs)
		})
	}
}

// account is what a body puts into its normal form: the same value that the workflow
// has passed, and passes again for the next attempt.
type account struct{ ID string }

// normalises calls a local activity on two accounts, whose ids differ until it has run.
func normalises(ctx workflow.Context) (out []string, err error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: forever, ScheduleToCloseTimeout: forever, RetryPolicy: &temporal.RetryPolicy{InitialInterval: soon}})
	for _, id := range []string{"A-1", "a-1"} {
		var paid string
		if err := workflow.ExecuteLocalActivity(ctx, "pay", &account{id}).Get(ctx, &paid); err != nil {
			return nil, err
		}
		out = append(out, paid)
	}
	return out, nil
}

// N19: a local call is what the workflow has passed, whatever its first attempt has made
// of it: the second attempt is no other operation, whose result it would return.
func TestALocalBodyThatChangesWhatItsKeyIsMadeOf(t *testing.T) {
	t.Parallel()
	byID := interceptor.KeyFrom(func(a *account) any { return a.ID })
	onID := interceptor.ResourceFrom(func(a *account) string { return "account/" + a.ID })
	for name, policy := range map[string]interceptor.Policy{
		"a key":                {Scope: interceptor.ScopeNamespace, Key: byID},
		"the whole input":      {Scope: interceptor.ScopeRun},
		"a resource":           {Resource: onID},
		"a resource and a key": {Scope: interceptor.ScopeWorkflow, Key: byID, Resource: onID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy.LeaseTTL = forever
			e := newEnv(t, interceptor.For("pay", policy))
			var runs counted
			var resources [4]string
			var failed atomic.Bool
			e.worker(and(named("pay", func(ctx context.Context, a *account) (string, error) {
				n := runs.ran(ctx)
				resources[n] = attemptOf(ctx).Token.Resource
				if a.ID = strings.ToUpper(a.ID); n > 1 && !failed.Swap(true) {
					return "", errors.New("once more")
				}
				return fmt.Sprint("paid by run ", n), nil
			}), func(w worker.Registry) { w.RegisterWorkflow(normalises) }))
			run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), normalises)
			require.NoError(t, err)
			var out []string
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, []string{"paid by run 1", "paid by run 3"}, out)
			require.Equal(t, runs.keys[1], runs.keys[2])
			require.NotEqual(t, runs.keys[0], runs.keys[1])
			require.Equal(t, resources[2], resources[3])
			require.NotEqual(t, resources[1], resources[2])
		})
	}
}
