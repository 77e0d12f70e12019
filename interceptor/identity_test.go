package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// as gives a call an activity id of the workflow's own.
func (p plan) as(id string) plan {
	p.Options.ActivityID = id
	return p
}

// N01: a workflow that uses one activity id twice makes two calls, as without the kit.
func TestOneActivityIDTwice(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]interceptor.Policy{
		"default":      {},
		"a key":        {Key: interceptor.KeyFrom(func(order string) any { return order })},
		"a resource":   {Resource: resource("account")},
		"at most once": {AtMostOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("charge", policy))
			var guarded, unguarded atomic.Int64
			e.worker(and(
				named("charge", func(context.Context, string) (int64, error) { return guarded.Add(1), nil }),
				named("unguarded", func(context.Context, string) (int64, error) { return unguarded.Add(1), nil })))
			for _, activity := range []string{"unguarded", "charge"} {
				_, got := e.steps(call(activity, "order-1").as("charge"), call(activity, "order-1").as("charge"))
				require.Equal(t, []any{1.0, 2.0}, got, activity)
			}
		})
	}
}

// polls asks, under one activity id, until there is an answer, or it has asked too often.
func polls(ctx workflow.Context, activity string) (answers []string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{ActivityID: "poll", StartToCloseTimeout: forever})
	for range 5 {
		var answer string
		if err := workflow.ExecuteActivity(ctx, activity, "order-1").Get(ctx, &answer); err != nil {
			return nil, err
		}
		if answers = append(answers, answer); answer == "shipped" {
			break
		}
	}
	return answers, nil
}

// N01: a loop that polls under a fixed activity id sees every answer, not its first one
// for ever.
func TestAPollingLoopWithOneActivityIDEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("poll", interceptor.Policy{}))
	asked := func() func(context.Context, string) (string, error) {
		var n atomic.Int64
		return func(context.Context, string) (string, error) {
			if n.Add(1) < 3 {
				return "packed", nil
			}
			return "shipped", nil
		}
	}
	e.worker(and(named("poll", asked()), named("unguarded", asked()), func(w worker.Registry) { w.RegisterWorkflow(polls) }))
	for _, activity := range []string{"unguarded", "poll"} {
		run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), polls, activity)
		require.NoError(t, err)
		var answers []string
		require.NoError(t, run.Get(e.ctx(), &answers))
		require.Equal(t, []string{"packed", "packed", "shipped"}, answers, activity)
	}
}

// secondTry calls an activity again, under the same activity id, after it has timed out.
func secondTry(ctx workflow.Context, p plan) (kind string, err error) {
	_, err = runOne(ctx, p)
	var late *temporal.TimeoutError
	if !errors.As(err, &late) {
		return "", fmt.Errorf("not a timeout: %w", err)
	}
	_, err = runOne(ctx, p)
	return kindOf(err), nil
}

// kindOf is the type of an application error, "done" for none.
func kindOf(err error) string {
	var f *temporal.ApplicationError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &f):
		return f.Type()
	}
	return err.Error()
}

// N01: a second call with the activity id of one that timed out is no attempt of it: while
// the body of the first still runs, the second is busy. Control: the next attempt of one
// call takes over, see TestNextAttemptTakesOverAndTheOldOneIsFenced.
func TestASecondCallWithOneActivityIDDoesNotTakeOver(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Resource: resource("account")}))
	seen, s := e.watch(), newStage(e, "work")
	e.worker(and(s.register, func(w worker.Registry) { w.RegisterWorkflow(secondTry) }))
	p := staged("work", "x", 2*time.Second).attempts(1).as("work")
	run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), secondTry, p)
	require.NoError(t, err)
	first := s.next()
	s.giveFurther("second") // which must not begin
	var kind string
	require.NoError(t, run.Get(e.ctx(), &kind))
	require.Equal(t, interceptor.TypeBusy, kind)
	require.Empty(t, seen.began(primitives.TakenOver))
	first.give("first")
}

// outcome is what beside has seen: how each local call ended, and what the regular one
// returned.
type outcome struct {
	Locals  []string
	Regular any
}

// beside calls local activities, one after another, while a regular one runs: from the
// signal on that it does.
func beside(ctx workflow.Context, regular plan, locals []plan) (out outcome, err error) {
	long := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, regular.Options), regular.Activity, regular.Args...)
	workflow.GetSignalChannel(ctx, "it runs").Receive(ctx, nil)
	for _, p := range locals {
		_, err := runOne(ctx, p.local().once())
		out.Locals = append(out.Locals, kindOf(err))
	}
	return out, long.Get(ctx, &out.Regular)
}

// N02, N03: a local activity beside a regular one is another call, though the SDK's ids
// of both are small numbers from one range: it is busy like everybody else.
func TestALocalActivityBesideARegularOneIsBusy(t *testing.T) {
	t.Parallel()
	const busy = interceptor.TypeBusy
	byOrder := interceptor.KeyFrom(func(order string) any { return order })
	onAccount := interceptor.Policy{LeaseTTL: forever, Resource: resource("account")}
	perNamespace := interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace, Key: byOrder}
	perRun := interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeRun}
	for name, c := range map[string]struct {
		policy interceptor.Policy
		locals []plan
		want   []string
	}{
		"N02: one resource":          {onAccount, repeat(call("touch", "x"), 8), repeat(busy, 8)},
		"N02: one resource and type": {onAccount, repeat(call("long", "x"), 8), repeat(busy, 8)},
		"N03: one business key": {perNamespace, append(repeat(call("nothing", "x"), 4), call("long", "x")),
			append(repeat("done", 4), busy)},
		"N03: one key of the run": {perRun, append(repeat(call("nothing", "x"), 4), call("long", "x")),
			append(repeat("done", 4), busy)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("long", c.policy), interceptor.For("touch", c.policy))
			seen, s := e.watch(), newStage(e, "long")
			var others atomic.Int64 // local calls that have run
			other := func(context.Context, string) error { others.Add(1); return nil }
			e.worker(and(s.register, named("touch", other), named("nothing", other),
				func(w worker.Registry) { w.RegisterWorkflow(beside) }))
			run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), beside, staged("long", "x", forever).attempts(1), c.locals)
			require.NoError(t, err)
			first := s.next()
			e.signal(run, "it runs")
			eventually(t, "all local calls", func() bool {
				return len(seen.busy())+int(others.Load())+len(s.runs) >= len(c.locals)
			})
			require.Empty(t, seen.began(primitives.TakenOver))
			s.over()
			first.give("done")
			var out outcome
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, outcome{c.want, "done"}, out)
			require.ErrorIs(t, context.Cause(first.ctx), context.Canceled)
			require.NotErrorIs(t, context.Cause(first.ctx), fence.ErrLeaseLost)
		})
	}
}

func repeat[T any](v T, n int) (all []T) {
	for range n {
		all = append(all, v)
	}
	return all
}
