package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// once is a call that is not retried.
func once(name, arg string) plan {
	p := staged(name, arg, forever)
	p.Options.RetryPolicy.MaximumAttempts = 1
	return p
}

// G07: counters tell an execution, a replay and a busy call apart; the result does not.
func TestCountersByOutcome(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace}))
	m, seen, s := e.metered(), e.watch(), newStage(e, "work")
	e.worker(s.register)
	first := e.start(staged("work", "x", forever))
	r := s.next()
	_, err := e.run(once("work", "x"))
	require.Equal(t, interceptor.TypeBusy, failure(t, err).Type())
	r.give("result")
	var one string
	require.NoError(t, first.Get(e.ctx(), &one))
	two, err := e.run(once("work", "x"))
	require.NoError(t, err)
	require.Equal(t, one, two)

	require.Equal(t, map[string]int64{"begun": 1, "busy": 1, "replayed": 1}, m.calls())
	require.EqualValues(t, 1, m.count(interceptor.MetricEnds+"{completed}"))
	require.EqualValues(t, 1, m.count(interceptor.MetricEnds))
	require.Positive(t, m.count(interceptor.MetricMemoBytes))
	require.Len(t, m.timers[interceptor.MetricWait], 3)
	require.Len(t, m.timers[interceptor.MetricLeaseLeft], 1)
	// The hook says the same.
	require.Equal(t, primitives.Begun, seen.kind(primitives.EventBegan)[0].Outcome)
	require.Equal(t, primitives.Replayed, seen.kind(primitives.EventBegan)[1].Outcome)
}

// calls are the counters of MetricCalls by outcome.
func (m *meter) calls() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]int64{}
	for name, n := range m.counters {
		if outcome, ok := strings.CutPrefix(name, interceptor.MetricCalls+"{"); ok {
			all[strings.TrimSuffix(outcome, "}")] = n
		}
	}
	return all
}

func TestCountersOfALostLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	m, s := e.metered(), newStage(e, "work")
	e.worker(s.register)
	run := e.start(staged("work", "x", 2*time.Second))
	first, second := s.next(), s.next()
	first.give("first")
	eventually(t, "the loss", func() bool { return m.count(interceptor.MetricEnds+"{lost}") == 1 })
	second.give("second")
	s.giveAll()
	require.NoError(t, run.Get(e.ctx(), nil))
	require.Positive(t, m.count(interceptor.MetricTakeovers))
	require.Positive(t, m.calls()["takeover"])
	require.Zero(t, m.count(interceptor.MetricMemoWriteFailed))
}

// throughProxy puts a proxy between e and its Redis, and keeps the kit's patience short.
func (e *env) throughProxy() *devstack.Proxy {
	e.Helper()
	proxy := devstack.ProxyForTest(e, e.rdb.Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	e.Cleanup(func() { _ = rdb.Close() })
	e.opts.Redis, e.opts.Store.Timeout = rdb, time.Second
	return proxy
}

func cut(t testing.TB, p *devstack.Proxy) {
	t.Helper()
	require.NoError(t, p.Refuse())
	p.Reset()
}

func TestCountersOfAnUnavailableRedis(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	m, s, proxy := e.metered(), newStage(e, "work"), e.throughProxy()
	e.worker(s.register)
	cut(t, proxy)
	_, err := e.run(once("work", "x"))
	require.Equal(t, interceptor.TypeUnavailable, failure(t, err).Type())
	require.Equal(t, map[string]int64{"unavailable": 1}, m.calls())
	require.Len(t, e.logs.with("WARN fencekit: the body was not run: unavailable"), 1)
	s.over()
}

func TestCountersOfAMemoThatCannotBeStored(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	m, s, proxy := e.metered(), newStage(e, "work"), e.throughProxy()
	e.worker(s.register)
	run := e.start(staged("work", "x", forever))
	r := s.next()
	cut(t, proxy)
	r.give("done")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out)) // the effect has happened
	require.Equal(t, "done", out)
	require.EqualValues(t, 1, m.count(interceptor.MetricMemoWriteFailed))
	require.EqualValues(t, 1, m.count(interceptor.MetricEnds+"{memo_failed}"))
	require.Len(t, e.logs.with("WARN fencekit: the body succeeded, its result could not be stored"), 1)
}

func TestCountersOfARegressedToken(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	m, s := e.metered(), newStage(e, "work")
	e.worker(s.register)
	run := e.start(staged("work", "x", forever))
	r := s.next()
	r.fail(&fence.StaleError{Resource: r.attempt.Token.Resource, Token: r.token(), Current: r.token() + 1000})
	again := s.next()
	require.Greater(t, again.token(), r.token()+1000)
	again.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	require.EqualValues(t, 1, m.count(interceptor.MetricTokenRegressed))
	require.EqualValues(t, 1, m.count(interceptor.MetricStaleWrites))
}

// However many keys, errors and inputs there are, the kit adds one tag, of few values.
func TestMetricsAddOneTagOfFewValues(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{
		Scope: interceptor.ScopeNamespace, LeaseTTL: forever, MemoiseFailures: true,
		Key: interceptor.KeyFrom(func(s string) any { return strings.TrimRight(s, "abc") }),
	}))
	m := e.metered()
	e.worker(named("work", func(_ context.Context, s string) (string, error) {
		switch {
		case strings.HasPrefix(s, "panic"):
			panic(s)
		case strings.HasPrefix(s, "fail"):
			return "", errors.New(s)
		case strings.HasPrefix(s, "final"):
			return "", temporal.NewNonRetryableApplicationError(s, "Type-"+s, nil)
		}
		return s, nil
	}))
	for i := range 2 {
		for _, kind := range []string{"panic", "fail", "final", "work"} {
			arg := fmt.Sprintf("%s %d ", kind, i)
			_, _ = e.run(once("work", arg))
			_, _ = e.run(once("work", arg))     // replayed, or failed before
			_, _ = e.run(once("work", arg+"a")) // a mismatch
		}
	}
	_, _ = e.run(once("work", "")) // no key
	const outcomes = "begun busy canceled completed corrupt denied failed failed_before key_error lease_lost lost memo_failed " +
		"mismatch other outcome_unknown oversize panicked poisoned reclaimed replayed result_unavailable suspended takeover " +
		"unavailable unguarded"
	require.Subset(t, strings.Fields(outcomes), m.values("outcome"))
	require.Subset(t, m.values("outcome"), []string{"begun", "replayed", "failed_before", "mismatch", "key_error", "panicked", "failed", "completed"})
	for tag := range m.tags {
		if tag != "outcome" {
			require.Contains(t, m.sdkTags, tag)
			require.Len(t, m.values(tag), 1, tag)
		}
	}
}

// G06: who finds an operation busy is told by whom, in the error and in one log line.
func TestBusyNamesTheHolder(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace, Wait: 3 * time.Second}))
	e.opts.Identity = "worker-7@shop"
	s := newStage(e, "work")
	e.worker(s.register)
	first := e.start(staged("work", "jo@example.test", forever))
	r := s.next()
	_, err := e.run(once("work", "jo@example.test"))
	busy := failure(t, err)
	require.Equal(t, interceptor.TypeBusy, busy.Type())
	require.False(t, busy.NonRetryable())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, busy.Category())
	require.Positive(t, busy.NextRetryDelay())
	var d interceptor.Busy
	require.NoError(t, busy.Details(&d))
	require.Equal(t, r.attempt.Key.String(), d.Key)
	require.Equal(t, r.token(), d.Token)
	require.WithinDuration(t, time.Now(), d.Since, 2*time.Minute) // Redis runs on this machine
	require.Positive(t, d.RemainingMillis)
	require.LessOrEqual(t, d.RemainingMillis, forever.Milliseconds())
	who := []string{"workflow=" + first.GetID(), "run=" + first.GetRunID(), "activity=" + r.info.ActivityID, "attempt=1", "worker=worker-7@shop"}
	for _, part := range who {
		require.Contains(t, d.Holder, part)
		require.Contains(t, busy.Error(), part)
	}

	require.Len(t, e.logs.with("the body was not run"), 1) // however often the waiter has looked
	line := e.logs.with("INFO fencekit: the body was not run: busy")[0]
	for _, part := range append(who, d.Key, "FencekitKey", "HolderToken", d.Token.String(), "HolderSince", "RemainingMillis") {
		require.Contains(t, line, part)
	}
	r.give("done")
	require.NoError(t, first.Get(e.ctx(), nil))
	for _, line := range e.logs.with("fencekit:") {
		require.NotContains(t, line, "jo@example.test")
	}
}

// B19: a lease that could not be had, one that was lost at a renewal and one that was
// lost by the end of the body are three different things, within the worker as well.
func TestBusyLostAndSupersededAreTold(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{
		LeaseTTL: forever, RenewEvery: 100 * time.Millisecond, Scope: interceptor.ScopeNamespace}))
	seen, s := e.watch(), newStage(e, "work")
	answers := make(chan error, 9)
	e.worker(s.register, before(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		out, err := next(ctx, in)
		answers <- err
		return out, err
	}}))
	p := once("work", "x")
	e.start(p)
	r := s.next()
	_, err := e.run(once("work", "x"))
	require.Error(t, err)
	busy := await(t, answers, "the busy call")

	l, err := e.store().Inspect(e.ctx(), r.attempt.Token.Resource)
	require.NoError(t, err)
	_, err = e.store().Free(e.ctx(), l)
	require.NoError(t, err)
	atRenewal := r.ends(t)
	other := e.start(once("work", "x"))
	s.next().give("other")
	require.NoError(t, other.Get(e.ctx(), nil))
	require.NoError(t, await(t, answers, "the other call"))
	r.give("too late")
	atEnd := await(t, answers, "the call that lost")

	require.ErrorIs(t, busy, primitives.ErrBusy)
	require.NotErrorIs(t, busy, fence.ErrLeaseLost)
	require.ErrorIs(t, atRenewal, fence.ErrLeaseLost)
	require.NotErrorIs(t, atRenewal, primitives.ErrBusy)
	require.NotErrorIs(t, atRenewal, primitives.ErrSuperseded)
	require.ErrorIs(t, atEnd, fence.ErrLeaseLost)
	require.NotErrorIs(t, atEnd, primitives.ErrBusy)
	var a *temporal.ApplicationError
	require.ErrorAs(t, atEnd, &a)
	require.Equal(t, interceptor.TypeLeaseLost, a.Type())
	require.ErrorIs(t, seen.kind(primitives.EventLost)[0].Err, primitives.ErrSuperseded)
}
