package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// held is a body that says when it runs and returns what it is told, whatever becomes
// of its context.
type held struct {
	counted

	started chan primitives.Attempt
	result  chan string
}

func newHeld() *held {
	return &held{started: make(chan primitives.Attempt, 10), result: make(chan string)}
}

// newHeldOn starts a worker with a held activity.
func newHeldOn(e *env, name string, edits ...func(*worker.Options)) *held {
	e.Helper()
	h := newHeld()
	e.worker(and(named(name, h.body)), edits...)
	e.Cleanup(func() { close(h.result) }) // before the worker stops
	return h
}

func (h *held) body(ctx context.Context, _ string) (string, error) {
	h.ran(ctx)
	h.started <- attemptOf(ctx)
	return <-h.result, nil
}

// A long lease: its end is never what a test waits for.
var long = interceptor.Policy{Scope: interceptor.ScopeNamespace, LeaseTTL: time.Hour}

var longFixed = func() interceptor.Policy { p := fixed; p.LeaseTTL = time.Hour; return p }()

// D02: busy is a top-level, benign, retryable error that says who is at work.
func TestBusy(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("slow", long))
	e.opts.Identity = "worker-1"
	w, seen := e.attend()
	h := newHeldOn(e, "slow", seen)
	first := e.start(call("slow", "x"))
	at := <-h.started
	_, err := e.run(call("slow", "x").once())

	f := failure(t, err)
	var activity *temporal.ActivityError
	require.ErrorAs(t, err, &activity)
	require.Same(t, f, activity.Unwrap(), "at top level")
	require.Equal(t, interceptor.TypeBusy, f.Type())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, f.Category())
	require.False(t, f.NonRetryable())
	require.Greater(t, f.NextRetryDelay(), 20*time.Minute, "half of ScheduleToClose is left")
	require.LessOrEqual(t, f.NextRetryDelay(), 30*time.Minute)

	var busy interceptor.Busy
	require.NoError(t, f.Details(&busy))
	require.Equal(t, at.Key.String(), busy.Key)
	require.Equal(t, at.Token.Value, busy.Token)
	require.InDelta(t, time.Hour.Milliseconds(), busy.RemainingMillis, 10*60*1000)
	require.WithinDuration(t, time.Now(), busy.Since, 10*time.Minute)
	for _, part := range []string{"workflow=" + first.GetID(), "run=" + first.GetRunID(), "activity=", "attempt=1", "worker=worker-1"} {
		require.Contains(t, busy.Holder, part)
	}
	answers := w.all()
	require.Len(t, answers, 1)
	require.ErrorIs(t, answers[0].err, primitives.ErrBusy, "before it crosses the wire")

	h.result <- "done"
	out, err := e.run(call("slow", "x"))
	require.NoError(t, err)
	require.Equal(t, "done", out)
	require.Equal(t, 1, h.runs())
}

// Temporal fails an activity at once whose next attempt would come after
// ScheduleToClose; so a busy one's comes before.
func TestBusyIsRetriedWithinScheduleToClose(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("slow", long))
	w, seen := e.attend()
	h := newHeldOn(e, "slow", seen)
	e.start(call("slow", "x"))
	<-h.started
	p := call("slow", "x").attempts(9) // unlimited ones would not wait for the end of the lease
	// The next attempt comes at half of it; the other half is for a machine that is late.
	p.Options.ScheduleToCloseTimeout = 40 * time.Second
	second := e.start(p)
	eventually(t, "busy", func() bool { return len(w.all()) > 0 })
	require.ErrorIs(t, w.all()[0].err, primitives.ErrBusy)
	h.result <- "done"
	var out string
	require.NoError(t, second.Get(e.ctx(), &out))
	require.Equal(t, "done", out)
}

// C07: what is flagged as non-retryable is memoised by option, and fails the same way
// again. What only one caller's retry policy calls final is not.
func TestMemoisedFailures(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("decline", memoising(longFixed)), interceptor.For("by-policy", memoising(longFixed)), interceptor.For("default", longFixed))
	var runs counted
	declined := temporal.NewApplicationErrorWithOptions("declined", "Declined", temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{"card", 7}, Category: temporal.ApplicationErrorCategoryBenign, Cause: errors.New("why")})
	e.worker(and(
		named("decline", func(ctx context.Context) error { runs.ran(ctx); return declined }),
		named("by-policy", func(ctx context.Context) error {
			runs.ran(ctx)
			return temporal.NewApplicationError("declined", "Declined")
		}),
		named("default", func(ctx context.Context) error { runs.ran(ctx); return declined })))
	var texts []string
	for range 2 {
		run := e.start(call("decline"))
		err := run.Get(e.ctx(), nil)
		f := failure(t, err)
		require.Equal(t, "Declined", f.Type())
		require.True(t, f.NonRetryable())
		require.Equal(t, temporal.ApplicationErrorCategoryBenign, f.Category())
		var card string
		var n int
		require.NoError(t, f.Details(&card, &n))
		require.Equal(t, []any{"card", 7}, []any{card, n})
		require.ErrorContains(t, f.Unwrap(), "why")
		texts = append(texts, e.failures(run)[0].String())
	}
	require.Equal(t, texts[0], texts[1], "the failure in history is the same")
	require.Equal(t, 1, runs.runs())

	for range 2 {
		p := call("by-policy")
		p.Options.RetryPolicy = &temporal.RetryPolicy{NonRetryableErrorTypes: []string{"Declined"}}
		_, err := e.run(p)
		require.Equal(t, "Declined", failure(t, err).Type())
	}
	require.Equal(t, 3, runs.runs(), "final by this caller's policy only: another one's may differ")
	for range 2 {
		_, err := e.run(call("default"))
		require.Equal(t, "Declined", failure(t, err).Type())
	}
	require.Equal(t, 5, runs.runs(), "by default nothing is memoised")
}

// C07: a failure that is worth a retry is never memoised.
func TestRetryableFailuresAreNotMemoised(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("flaky", memoising(longFixed)))
	var runs counted
	e.worker(and(named("flaky", func(ctx context.Context) (string, error) {
		switch runs.ran(ctx) {
		case 1:
			return "", errors.New("db down")
		case 2: // Temporal retries what wraps an error that it would not retry
			return "", fmt.Errorf("paying: %w", temporal.NewNonRetryableApplicationError("declined", "Declined", nil))
		}
		return "fine", nil
	})))
	_, got := e.steps(call("flaky").attempts(3), call("flaky"))
	require.Equal(t, []any{"fine", "fine"}, got)
	require.Equal(t, 3, runs.runs())
}

// C08: the same key with other input, after completion, meanwhile and after a takeover.
func TestMismatch(t *testing.T) {
	t.Parallel()
	type payment struct {
		Ref    string
		Amount int
	}
	byRef := long
	byRef.Key = interceptor.KeyFrom(func(p payment) any { return p.Ref })
	e := newEnv(t, interceptor.For("pay", byRef))
	s := newStage(e, "pay")
	e.worker(and(named("pay", func(ctx context.Context, p payment) (string, error) {
		if p.Amount != 100 {
			t.Error("the body runs with the other input")
		}
		return s.body(ctx, p.Ref)
	})))
	mismatch := func(when string) {
		t.Helper()
		_, err := e.run(call("pay", payment{"k1", 200}))
		f := failure(t, err)
		require.Equal(t, interceptor.TypeMismatch, f.Type(), when)
		require.True(t, f.NonRetryable())
		require.Contains(t, f.Error(), "v1:pay:", "the key is named")
	}
	p := staged("pay", "", 3*time.Second)
	p.Args = []any{payment{"k1", 100}}
	run := e.start(p)
	first := s.next()
	mismatch("in progress")
	second := s.next()
	require.Equal(t, primitives.TakenOver, second.attempt.Outcome)
	mismatch("after a takeover")
	first.give("late")
	second.give("late")
	s.giveAll() // the second may have timed out as well
	require.NoError(t, run.Get(e.ctx(), nil))
	mismatch("after completion")
}

// A job that kills its workers again and again is stopped. An attempt may end before its
// body has begun, if the machine is late: it counts, too.
func TestPoisoned(t *testing.T) {
	t.Parallel()
	p := long
	p.MaxTakeovers = 1
	e := newEnv(t, interceptor.For("slow", p))
	h := newHeldOn(e, "slow")
	stuck := staged("slow", "x", 2*time.Second) // without a limit of Temporal's
	_, err := e.run(stuck)
	f := failure(t, err)
	require.Equal(t, interceptor.TypePoisoned, f.Type())
	require.True(t, f.NonRetryable())
	require.Positive(t, h.runs())
	require.LessOrEqual(t, h.runs(), 2)
}

// At most once: after an interruption nobody runs the body, until an operator has said
// what became of it.
func TestOutcomeUnknownAndItsResolution(t *testing.T) {
	t.Parallel()
	p := long
	p.AtMostOnce = true
	e := newEnv(t, interceptor.For("pay", p))
	var runs counted
	kit := e.interceptor()
	e.workerWith(kit, and(named("pay", func(ctx context.Context, ref string) (string, error) {
		if runs.ran(ctx) < 3 {
			panic("in mid-body")
		}
		return "paid " + ref, nil
	})))
	interrupt := func(ref string) primitives.Record {
		t.Helper()
		_, err := e.run(call("pay", ref).attempts(3))
		f := failure(t, err)
		require.Equal(t, interceptor.TypeOutcomeUnknown, f.Type())
		require.True(t, f.NonRetryable())
		for r, err := range kit.Store().Records(e.ctx()) {
			require.NoError(t, err)
			if r.Stuck() {
				return r
			}
		}
		require.Fail(t, "no record is stuck")
		return primitives.Record{}
	}
	memo, err := kit.Memo("pay", "paid by hand")
	require.NoError(t, err)
	require.NoError(t, kit.Store().Resolve(e.ctx(), interrupt("A1"), memo, 0))
	out, err := e.run(call("pay", "A1"))
	require.NoError(t, err)
	require.Equal(t, "paid by hand", out)

	require.NoError(t, kit.Store().Forget(e.ctx(), interrupt("A2")))
	out, err = e.run(call("pay", "A2"))
	require.NoError(t, err)
	require.Equal(t, "paid A2", out)
	require.Equal(t, 3, runs.runs())
}

// An operator's result is given to whoever asks, also through a codec that binds what
// it encodes to a workflow.
func TestAnOperatorsMemoThroughABindingCodec(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", longFixed))
	e.dial(newSealing(true).converter())
	kit := e.interceptor()
	e.workerWith(kit, and(named("pay", func(context.Context) (string, error) { return "", nil })))
	memo, err := kit.Memo("pay", "by hand")
	require.NoError(t, err)
	require.NotContains(t, string(memo), "by hand")
	_, err = e.run(call("pay"))
	require.NoError(t, err)
	require.NoError(t, e.rdb.HSet(e.ctx(), e.records()[0], "memo", memo).Err())
	out, err := e.run(call("pay"))
	require.NoError(t, err)
	require.Equal(t, "by hand", out)
}

// F15: a user of Redis without the rights is a matter of configuration.
func TestDenied(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("greet", longFixed))
	name := "user-" + e.queue
	require.NoError(t, e.rdb.ACLSetUser(e.ctx(), name, "reset", "on", ">secret", "~*", "&*", "+@all", "-@scripting").Err())
	t.Cleanup(func() { _ = e.rdb.ACLDelUser(context.Background(), name).Err() })
	limited := redis.NewClient(&redis.Options{Addr: e.rdb.Options().Addr, Username: name, Password: "secret", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = limited.Close() })
	e.opts.Redis = limited
	var runs counted
	e.worker(and(named("greet", func(ctx context.Context) error { runs.ran(ctx); return nil })))
	_, err := e.run(call("greet"))
	f := failure(t, err)
	require.Equal(t, interceptor.TypeDenied, f.Type())
	require.True(t, f.NonRetryable())
	require.Contains(t, f.Error(), "NOPERM")
	require.Zero(t, runs.runs())
}

// Somebody else's data under the record's name are left alone.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("greet", longFixed))
	var runs counted
	e.worker(and(named("greet", func(ctx context.Context) error { runs.ran(ctx); return nil })))
	e.steps(call("greet"))
	require.NoError(t, e.rdb.Set(e.ctx(), e.records()[0], "not ours", 0).Err())
	_, err := e.run(call("greet"))
	f := failure(t, err)
	require.Equal(t, interceptor.TypeCorrupt, f.Type())
	require.True(t, f.NonRetryable())
	require.Equal(t, 1, runs.runs())
	require.Equal(t, "not ours", e.rdb.Get(e.ctx(), e.records()[0]).Val())
}

// down puts e's interceptor on a Redis that cannot be reached, until accept.
func (e *env) down() (accept func()) {
	e.Helper()
	proxy := devstack.ProxyForTest(e, e.rdb.Options().Addr)
	require.NoError(e, proxy.Refuse())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	e.Cleanup(func() { _ = far.Close() })
	e.opts.Redis, e.opts.Store.Timeout = far, 300*time.Millisecond
	return func() { require.NoError(e, proxy.Accept()) }
}

// C19: without Redis the body does not run; the attempt is retried, and the one that
// finds Redis again runs it.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("greet", longFixed))
	accept := e.down()
	w, seen := e.attend()
	var runs counted
	e.worker(and(named("greet", func(ctx context.Context) (string, error) { runs.ran(ctx); return "hello", nil })), seen)
	_, err := e.run(call("greet").once())
	f := failure(t, err)
	require.Equal(t, interceptor.TypeUnavailable, f.Type())
	require.False(t, f.NonRetryable())
	require.Positive(t, f.NextRetryDelay())
	require.ErrorIs(t, w.all()[0].err, primitives.ErrUnavailable)
	require.Zero(t, runs.runs())
	accept()
	out, err := e.run(call("greet").attempts(100))
	require.NoError(t, err)
	require.Equal(t, "hello", out)
}

// untouched is a database that nothing may be sent to.
type untouched struct{ testing.TB }

func (u untouched) Query(context.Context, string, ...any) (pgx.Rows, error) {
	u.Error("SQL was sent without a token")
	return nil, errors.New("untouched")
}

// C19, E26: fail-open runs the body without a token, so that fenced writes refuse.
func TestFailOpenHasNoToken(t *testing.T) {
	t.Parallel()
	p := longFixed
	p.FailOpen = true
	e := newEnv(t, interceptor.For("greet", p))
	e.down()
	w, seen := e.attend()
	e.worker(and(named("greet", func(ctx context.Context) (string, error) {
		a := attemptOf(ctx)
		require.Equal(t, primitives.Unguarded, a.Outcome)
		_, err := fence.FromContext(ctx)
		require.ErrorIs(t, err, fence.ErrNoToken)
		_, err = interceptor.Pending(ctx)
		require.ErrorIs(t, err, primitives.ErrInvalid)
		accounts := pgxfence.Table{Name: pgx.Identifier{"accounts"}}
		return "ran", accounts.Update(ctx, untouched{t}, pgxfence.Change{
			Key: pgxfence.Values{"id": 1}, Set: pgxfence.Values{"status": "open"}})
	})), seen)
	_, err := e.run(call("greet").once())
	require.ErrorContains(t, err, fence.ErrNoToken.Error())
	require.ErrorIs(t, w.all()[0].err, fence.ErrNoToken)
	require.Equal(t, 1, w.kinds(primitives.EventUnguarded))
}
