package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// D01, the default: Temporal has given attempt 1 up, so attempt 2 takes over at once,
// whatever is left of the lease, and the database refuses attempt 1.
func TestNextAttemptTakesOverAndTheOldOneIsFenced(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{LeaseTTL: forever}))
	seen, db, s := e.watch(), e.bank(), newStage(e, "sign")
	e.worker(s.register)
	run := e.start(staged("sign", "x", 2*time.Second))

	first := s.next()
	second := s.later(first)
	require.NotEmpty(t, seen.began(primitives.TakenOver))
	require.Positive(t, second.attempt.Takeovers)
	require.Greater(t, second.token(), first.token())
	require.Equal(t, first.attempt.Key, second.attempt.Key)

	require.NoError(t, db.sign(second.zombie(), "second")) // its time may be over as well
	require.ErrorIs(t, db.sign(first.zombie(), "first"), fence.ErrStale)
	second.give("second")
	s.giveFurther("second")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "second", out)

	lost := len(seen.kind(primitives.EventLost))
	first.give("first") // its result is refused, too
	eventually(t, "the loss of attempt 1", func() bool { return len(seen.kind(primitives.EventLost)) > lost })
	_, owner := db.account()
	require.Equal(t, "second", owner)
}

// D01 with NoTakeover: the body runs once, and what it returns after its deadline is
// stored for attempt 2, which has been told to wait meanwhile.
func TestNoTakeoverWaitsForTheOldAttemptAndReplaysIt(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{LeaseTTL: forever, NoTakeover: true}))
	seen, db, s := e.watch(), e.bank(), newStage(e, "sign")
	e.worker(s.register)
	run := e.start(staged("sign", "x", 2*time.Second))

	first := s.next()
	eventually(t, "attempt 2 to be busy", func() bool { return len(seen.busy()) > 0 })
	require.ErrorIs(t, first.ends(t), context.DeadlineExceeded)
	require.NoError(t, db.sign(first.zombie(), "first"))
	first.give("first")

	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "first", out)
	_, owner := db.account()
	require.Equal(t, "first", owner)
	s.over()
}

// A body that finishes after its deadline, and before the next attempt has begun, has
// done the work: the next attempt replays.
func TestLateResultIsReplayedByTheNextAttempt(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	seen, s := e.watch(), newStage(e, "work")
	e.worker(s.register, oneAtATime(nil))
	run := e.start(staged("work", "x", 2*time.Second))

	first := s.next()
	require.ErrorIs(t, first.ends(t), context.DeadlineExceeded)
	first.give("late")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "late", out)
	s.over()
	require.Len(t, seen.kind(primitives.EventCompleted), 1)
	require.NotEmpty(t, seen.began(primitives.Replayed))
}

// D08: an activity that never heartbeats hears nothing from Temporal. The lease tells.
func TestZombieWithoutHeartbeatsLearnsFromTheLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, RenewEvery: 100 * time.Millisecond}))
	s := newStage(e, "work")
	e.worker(s.register)
	p := staged("work", "x", forever)
	p.Options.HeartbeatTimeout = 2 * time.Second // by which the server gives attempt 1 up
	run := e.start(p)

	first := s.next()
	second := s.later(first)
	cause := first.ends(t)
	require.ErrorIs(t, cause, fence.ErrLeaseLost)
	var lost *primitives.LostError
	require.ErrorAs(t, cause, &lost)
	require.Contains(t, lost.Holder, " attempt=")
	require.NotContains(t, lost.Holder, fmt.Sprintf(" attempt=%d ", first.info.Attempt))
	if cause := context.Cause(second.ctx); cause != nil { // only if there is a third by now
		require.ErrorAs(t, cause, &lost)
		require.NotContains(t, lost.Holder, fmt.Sprintf(" attempt=%d ", second.info.Attempt))
	}
	first.fail(context.Cause(first.ctx))
	second.give("second")
	s.giveFurther("second")
	require.NoError(t, run.Get(e.ctx(), nil))
}

// D07: the kit does not heartbeat, so details survive its renewals.
func TestHeartbeatDetailsAreTheBodysOwn(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("rows", interceptor.Policy{
		LeaseTTL: forever, RenewEvery: 20 * time.Millisecond, Resource: resource("table")}))
	renewals := func() func() bool { // of which there have been three
		last, n := time.Duration(0), 0
		return func() bool {
			l, err := e.store().Inspect(context.Background(), "table")
			if err == nil && l.Remaining > last {
				n++
			}
			last = l.Remaining
			return n > 3
		}
	}
	var details []string
	e.worker(named("rows", func(ctx context.Context, _ string) (string, error) {
		if activity.HasHeartbeatDetails(ctx) {
			details = append(details, "")
			return "done", activity.GetHeartbeatDetails(ctx, &details[len(details)-1])
		}
		activity.RecordHeartbeat(ctx, "row-500")
		eventually(t, "renewals", renewals())
		return "", errors.New("broken off")
	}))
	p := staged("rows", "x", forever)
	p.Options.HeartbeatTimeout = time.Minute
	_, err := e.run(p)
	require.NoError(t, err)
	require.Equal(t, []string{"row-500"}, details)
}

// B15: two attempts in one process are two owners.
func TestTwoAttemptsOfALocalActivityInOneProcess(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("local", interceptor.Policy{LeaseTTL: forever}))
	seen, s := e.watch(), newStage(e, "local")
	e.worker(s.register)
	p := staged("local", "x", time.Second)
	p.Local = true
	run := e.start(p)

	first := s.next()
	second := s.later(first)
	require.Greater(t, second.token(), first.token())
	require.NotEqual(t, first.attempt.Token.Owner, second.attempt.Token.Owner)
	first.give("first")
	eventually(t, "the loss of attempt 1", func() bool { return len(seen.kind(primitives.EventLost)) > 0 })
	second.give("second")
	s.giveFurther("second")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "second", out)
}

// B14 (a): a lease shorter than the body is kept alive. It is renewed every third of it,
// so that two thirds of it are left for a machine that stands still.
func TestLeaseShorterThanTheBodyIsKeptAlive(t *testing.T) {
	t.Parallel()
	const ttl = 18 * time.Second
	e := newEnv(t, interceptor.For("long", interceptor.Policy{LeaseTTL: ttl, Resource: resource("r")}))
	s := newStage(e, "long")
	e.worker(s.register)
	run := e.start(staged("long", "x", forever))
	r := s.next()
	began := time.Now()
	eventually(t, "the body to outlast its lease", func() bool {
		l, err := e.store().Inspect(t.Context(), "r")
		require.NoError(t, err)
		require.True(t, l.Held)
		require.Equal(t, r.token(), l.Token)
		return time.Since(began) > 4*ttl/3
	})
	require.NoError(t, r.ctx.Err())
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	s.over()
}

// B16: the lease is given up although the activity's context has ended.
func TestCanceledActivityGivesItsLeaseUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("wait", interceptor.Policy{LeaseTTL: forever, Resource: resource("r")}))
	s := newStage(e, "wait")
	e.worker(s.register, heartbeatsOften)
	p := staged("wait", "x", forever)
	p.Options.HeartbeatTimeout = forever
	p.Options.WaitForCancellation = true
	run := e.start(p)
	r := s.next()
	e.cancel(run)
	eventually(t, "the cancellation", func() bool { activity.RecordHeartbeat(r.ctx); return r.ctx.Err() != nil })
	r.fail(r.ctx.Err())

	err := run.Get(e.ctx(), nil)
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	l, err := e.store().Inspect(e.ctx(), "r")
	require.NoError(t, err)
	require.False(t, l.Held)
	s.over()
}

// A terminated workflow does not stop a body that never heartbeats; what it returns is
// the result for whoever asks next.
func TestBodyOfATerminatedWorkflowStillCounts(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace}))
	seen, s := e.watch(), newStage(e, "work")
	e.worker(s.register)
	first := e.start(staged("work", "x", forever))
	r := s.next()
	e.terminate(first)
	second := e.start(staged("work", "x", forever))
	eventually(t, "the second to be busy", func() bool { return len(seen.busy()) > 0 })
	r.give("of the terminated")
	var out string
	require.NoError(t, second.Get(e.ctx(), &out))
	require.Equal(t, "of the terminated", out)
	s.over()
}

// One that heartbeats stops, and the next caller runs the body without waiting for the
// lease to end.
func TestTerminatedWorkflowsLeaseIsFreeOnceTheBodyStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace}))
	seen, s := e.watch(), newStage(e, "work")
	e.worker(s.register, heartbeatsOften)
	p := staged("work", "x", forever)
	p.Options.HeartbeatTimeout = forever
	first := e.start(p)
	r := s.next()
	e.terminate(first)
	eventually(t, "the body to hear of it", func() bool { activity.RecordHeartbeat(r.ctx); return r.ctx.Err() != nil })
	r.fail(r.ctx.Err())
	eventually(t, "its end", func() bool { return len(seen.kind(primitives.EventFailed)) == 1 })

	second := e.start(staged("work", "x", forever))
	s.next().give("second")
	var out string
	require.NoError(t, second.Get(e.ctx(), &out))
	require.Equal(t, "second", out)
}

// Two executions of one business key at the same time: the second is busy, then replays.
func TestSecondExecutionOfABusinessKeyIsBusyThenReplays(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace}))
	seen, s := e.watch(), newStage(e, "work")
	e.worker(s.register)
	first := e.start(staged("work", "x", forever))
	r := s.next()
	second := e.start(staged("work", "x", forever))
	eventually(t, "the second to be busy", func() bool { return len(seen.busy()) > 0 })
	r.give("one result")
	for _, run := range []interface {
		Get(context.Context, any) error
	}{first, second} {
		var out string
		require.NoError(t, run.Get(e.ctx(), &out))
		require.Equal(t, "one result", out)
	}
	s.over()
	require.NotEmpty(t, seen.began(primitives.Replayed))
}
