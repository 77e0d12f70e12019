package testsuite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/testsuite"
)

// What is left of a dead attempt sends nothing any more: not to Redis, not to Postgres,
// not to anybody else.
func TestTheDeadDoNotAct(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	dead, tries := make(chan struct{}), make(chan []error, 1)
	haunted := func(ctx context.Context, o order) error {
		ctx = context.WithoutCancel(ctx)
		go func() {
			<-dead
			_, exec := s.pool.Exec(ctx, "UPDATE accounts SET status = 'haunted'")
			tries <- []error{exec, s.pay(ctx, "key"), s.kit.Redis().Set(ctx, s.kit.Prefix()+":haunted", "yes", 0).Err()}
		}()
		return settled(s)(ctx, o)
	}
	s.kit.Guard(interceptor.For("settle", policy()))
	s.kit.Register(haunted, registerAs("settle"))
	run := s.kit.Call("settle", order{Account: 1}).CrashAt(testsuite.BeforeComplete)
	require.ErrorIs(t, run.Err(), testsuite.ErrCrashed)
	close(dead)
	for _, err := range <-tries {
		require.Error(t, err)
	}
	w, err := s.state(t.Context())
	require.NoError(t, err)
	require.Equal(t, "settled", w.(world).Status)
	require.Zero(t, w.(world).Paid)
	require.Zero(t, s.kit.Redis().Exists(t.Context(), s.kit.Prefix()+":haunted").Val())
}

// A run that is frozen when its test ends does not outlive it.
func TestFrozenRunEndsWithItsTest(t *testing.T) {
	t.Parallel()
	db := database(t)
	for n := 1; n <= 3; n++ {
		var run *testsuite.Run
		f := tried(func(f *fakeT) {
			s := newShop(f, db)
			s.kit.Guard(interceptor.For("settle", policy()))
			s.kit.Register(settled(s), registerAs("settle"))
			run = s.kit.Call("settle", order{Account: 1}).FreezeAt(testsuite.BeforeStep(n))
			require.True(t, run.Frozen())
		})
		requirePasses(t, f)
		<-run.Done()
		require.ErrorIs(t, run.Err(), testsuite.ErrCrashed)
		require.Len(t, run.Steps(), n)
	}
}

// A crash at a point that is not there is none.
func TestPointThatIsNotThere(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{})
	testsuite.RequireExecuted(t, kit.Call(c.Count, "jo").CrashAt(testsuite.BeforeStep(9)))
	run := kit.Call(c.Count, "jo").FreezeAt(testsuite.AfterEffect(1))
	require.False(t, run.Frozen())
	testsuite.RequireExecuted(t, run)
}

func TestLocalActivity(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{})
	run := kit.Call(c.Count, "jo").Local().Execute()
	testsuite.RequireExecuted(t, run)
	again := run.NextAttempt()
	testsuite.RequireReplayed(t, again)
	var out string
	require.NoError(t, again.Result(&out))
	require.Equal(t, "hello jo", out)
}

// What the proof is asked and cannot answer fails, and says why.
func TestProofsThatCannotBe(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{})
	kit.Register(func(context.Context) error { return nil }, registerAs("unguarded"))
	always := func(context.Context) error { return nil }
	for says, p := range map[string]testsuite.Proof{
		"Proof.Activity is missing": {},
		"Proof.State":               {Activity: c.Count},
		"it is not guarded":         {Activity: "unguarded", Invariant: always},
		"Proof.Reset: no":           {Activity: c.Count, Input: "jo", Invariant: always, Reset: func(context.Context) error { return errors.New("no") }},
		"the invariant is broken": {Activity: c.Count, Input: "jo", Invariant: func(context.Context) error {
			return errors.New("it never holds")
		}},
	} {
		for _, prove := range []func(testsuite.T, *testsuite.Kit, testsuite.Proof) testsuite.Report{testsuite.ProveFenced, testsuite.ProveIdempotent} {
			requireFails(t, tried(func(f *fakeT) { prove(f, kit, p) }), says)
		}
	}
}

// Steps that are allowed are no findings.
func TestAllow(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	logged := func(ctx context.Context, o order) error {
		if _, err := s.pool.Exec(ctx, "UPDATE marks SET v = 'seen'"); err != nil {
			return err
		}
		return settled(s)(ctx, o)
	}
	s.kit.Guard(interceptor.For("settle", policy()))
	s.kit.Register(logged, registerAs("settle"))
	p := testsuite.Proof{Activity: "settle", Input: order{Account: 1}, Reset: s.reset, State: s.state}
	requireFails(t, tried(func(f *fakeT) { testsuite.ProveFenced(f, s.kit, p) }), "UPDATE marks", "unfenced write", "dead_test.go:")
	p.Allow = func(s testsuite.Step) bool { return s.Text == "UPDATE marks SET v = 'seen'" }
	testsuite.ProveFenced(t, s.kit, p)
}
