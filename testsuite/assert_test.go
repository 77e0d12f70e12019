package testsuite_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/testsuite"
)

// worldOfRuns has one run of each kind.
type worldOfRuns struct {
	executed, replayed, failed, busy, lost, unavailable, unguarded, large, stale *testsuite.Run
}

func newWorld(t *testing.T) (w worldOfRuns) {
	c := &counter{}
	fail := func(context.Context) error { return errors.New("no") }
	stale := func(ctx context.Context) error {
		tok, err := fence.FromContext(ctx)
		return errors.Join(err, &fence.StaleError{Resource: tok.Resource, Token: tok.Value, Current: tok.Value - 1})
	}
	large := func(context.Context) (string, error) { return strings.Repeat("x", 100), nil }
	kit := testsuite.New(t, testsuite.Options{Guards: []interceptor.Guard{
		interceptor.For(c.Count, interceptor.Policy{}), interceptor.For("fail", interceptor.Policy{}),
		interceptor.For("stale", interceptor.Policy{}), interceptor.For("large", interceptor.Policy{MaxMemo: 10}),
	}})
	kit.Register(fail, registerAs("fail"))
	kit.Register(stale, registerAs("stale"))
	kit.Register(large, registerAs("large"))
	kit.Register(fail, registerAs("unguarded"))
	w.executed = kit.Execute(c.Count, "jo")
	w.replayed = w.executed.NextAttempt()
	w.failed, w.stale, w.large, w.unguarded = kit.Execute("fail"), kit.Execute("stale"), kit.Execute("large"), kit.Execute("unguarded")
	zombie := kit.Call(c.Count, "jo").FreezeAt(testsuite.BeforeComplete)
	w.busy = zombie.Duplicate()
	zombie.NextAttempt()
	zombie.Thaw()
	w.lost = zombie
	kit.RedisDown()
	w.unavailable = kit.Execute(c.Count, "jo")
	kit.RedisUp()
	return w
}

// twice are two runs of an operation whose body ran both times, and the guard did not
// store the first result: Redis was down when it came, or all the time.
func twice(t *testing.T, down testsuite.Point) (first, second *testsuite.Run) {
	t.Helper()
	kit, c := newCounter(t, interceptor.Policy{FailOpen: true})
	call := kit.Call(c.Count, "jo")
	if down == testsuite.BeforeComplete {
		first = call.FreezeAt(down)
		require.True(t, first.Frozen())
		kit.RedisDown()
		first.Thaw()
	} else {
		kit.RedisDown()
		first = call.Execute()
	}
	kit.RedisUp()
	second = first.NextAttempt()
	require.NoError(t, first.Err())
	require.NoError(t, second.Err())
	require.EqualValues(t, 2, c.runs.Load())
	return first, second
}

// A body that ran counts, whatever became of its result.
func TestExecutedOnceCountsBodies(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]testsuite.Point{"memo failed": testsuite.BeforeComplete, "fail open": testsuite.BeforeBody} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := twice(t, down)
			requireFails(t, tried(func(f *fakeT) { testsuite.RequireExecutedOnce(f, first, second) }), "2 of 2 deliveries")
			requirePasses(t, tried(func(f *fakeT) { testsuite.RequireExecutedOnce(f, first) }))
		})
	}
}

// Every assertion passes where it should, and fails with a text that says what the run
// was instead.
func TestAssertions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name   string
		assert func(testsuite.T, *testsuite.Run)
		good   *testsuite.Run
		bad    *testsuite.Run
		says   []string
	}{
		{"executed", testsuite.RequireExecuted, w.executed, w.replayed, []string{"executed", "replayed", "did not run"}},
		{"replayed", testsuite.RequireReplayed, w.replayed, w.executed, []string{"replayed", "begun", "ran"}},
		{"replayed, unguarded", testsuite.RequireReplayed, w.replayed, w.unguarded, []string{"replayed"}},
		{"busy", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireBusy(t, r) }, w.busy, w.failed, []string{"busy", "no"}},
		{"busy, no error", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireBusy(t, r) }, w.busy, w.executed, []string{"busy", "a result"}},
		{"lease lost", testsuite.RequireLeaseLost, w.lost, w.executed, []string{"lease lost", "completed"}},
		{"unavailable", testsuite.RequireUnavailable, w.unavailable, w.executed, []string{"unavailable"}},
		{"stale", testsuite.RequireStale, w.stale, w.failed, []string{"stale", "with: no"}},
		{"memo", testsuite.RequireMemoStored, w.executed, w.failed, []string{"the record is absent"}},
		{"memo, too large", testsuite.RequireMemoStored, w.executed, w.large, []string{"too large", "limit is 10"}},
		{"no memo", testsuite.RequireNoMemo, w.failed, w.executed, []string{"no memo", "bytes"}},
		{"no memo, too large", testsuite.RequireNoMemo, w.large, w.replayed, []string{"no memo"}},
		{"state", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireState(t, r, primitives.Done) }, w.executed, w.failed,
			[]string{"state done: the record is absent"}},
		{"failure", func(t testsuite.T, r *testsuite.Run) { _ = testsuite.RequireFailure(t, r, interceptor.TypeLeaseLost) }, w.lost, w.busy,
			[]string{interceptor.TypeLeaseLost, interceptor.TypeBusy}},
		{"once", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireExecutedOnce(t, r, w.replayed) }, w.executed, w.replayed,
			[]string{"0 of 2 deliveries"}},
		{"once, twice", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireExecutedOnce(t, w.executed, r) }, w.replayed, w.executed,
			[]string{"2 of 2 deliveries"}},
		{"once, failed", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireExecutedOnce(t, w.executed, r) }, w.replayed, w.failed,
			[]string{"a delivery has failed"}},
		{"tokens", func(t testsuite.T, r *testsuite.Run) { testsuite.RequireTokensIncrease(t, r) }, w.executed, w.busy, []string{"was granted none"}},
		{"tokens, equal", func(t testsuite.T, r *testsuite.Run) {
			if r == w.executed {
				testsuite.RequireTokensIncrease(t, r, r)
			}
		}, w.failed, w.executed, []string{"is not above"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			requirePasses(t, tried(func(f *fakeT) { c.assert(f, c.good) }))
			requireFails(t, tried(func(f *fakeT) { c.assert(f, c.bad) }), c.says...)
		})
	}
	requireFails(t, tried(func(f *fakeT) { testsuite.RequireExecutedOnce(f) }), "no runs")
}

func TestNoUnfencedWrite(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	raw := func(ctx context.Context, o order) error {
		_, err := s.pool.Exec(ctx, "UPDATE accounts SET status = 'raw' WHERE id = $1", o.Account)
		return err
	}
	s.kit.Guard(interceptor.For("fenced", policy()), interceptor.For("raw", policy()))
	s.kit.Register(settled(s), registerAs("fenced"))
	s.kit.Register(raw, registerAs("raw"))
	requirePasses(t, tried(func(f *fakeT) { testsuite.RequireNoUnfencedWrite(f, s.kit.Execute("fenced", order{Account: 1})) }))
	requireFails(t, tried(func(f *fakeT) { testsuite.RequireNoUnfencedWrite(f, s.kit.Execute("raw", order{Account: 2})) }),
		"UPDATE accounts SET status = 'raw'", "assert_test.go:")
}

// What a kit is asked for and cannot do fails its test.
func TestKitFails(t *testing.T) {
	t.Parallel()
	for says, do := range map[string]func(f *fakeT){
		"Guards": func(f *fakeT) { testsuite.New(f, testsuite.Options{}).Execute("x") },
		"already": func(f *fakeT) {
			k := testsuite.New(f, testsuite.Options{Guards: []interceptor.Guard{interceptor.For("x", interceptor.Policy{})}})
			k.Execute("x")
			k.Guard(interceptor.For("y", interceptor.Policy{}))
		},
		"nobody holds": func(f *fakeT) { testsuite.New(f, testsuite.Options{}).ExpireLease("r") },
	} {
		requireFails(t, tried(do), says)
	}
	kit, c := newCounter(t, interceptor.Policy{})
	require.ErrorContains(t, kit.Execute("unknown").Err(), "no activity is registered")
	require.NoError(t, kit.Execute(c.Count, "jo").Err())
}
