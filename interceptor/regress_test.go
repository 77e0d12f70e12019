package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// An error of the Seal hook passes as it is, also one that the kit itself might have
// returned.
func TestSealErrorsPassAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]error{
		"a lost lease":         fence.ErrLeaseLost,
		"wrapped":              fmt.Errorf("sealing: %w", fence.ErrLeaseLost),
		"an unavailable store": primitives.ErrUnavailable,
		"busy":                 &primitives.BusyError{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := longFixed
			policy.Seal = func(context.Context) error { return hook }
			e := newEnv(t, interceptor.For("sign", policy))
			w, seen := e.attend()
			var runs counted
			e.worker(named("sign", func(ctx context.Context) error { runs.ran(ctx); return nil }), seen)
			_, err := e.run(call("sign").once())
			require.Error(t, err)
			require.Len(t, w.all(), 1)
			require.True(t, w.all()[0].err == hook, "%v is not the same error", w.all()[0].err) //nolint:errorlint // the same value
			require.Zero(t, runs.runs())
		})
	}
}

// mutable is an input that a body changes.
type mutable struct {
	Ref    string
	Amount int
}

// onePointer is a workflow with one local activity, whose attempts share an argument.
func onePointer(ctx workflow.Context) (out string, err error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: forever, ScheduleToCloseTimeout: forever, RetryPolicy: &temporal.RetryPolicy{InitialInterval: soon}})
	err = workflow.ExecuteLocalActivity(ctx, "normalise", &mutable{Ref: "A1"}).Get(ctx, &out)
	return out, err
}

// A local activity whose body changes its input retries the same operation, and is no
// mismatch with itself.
func TestALocalActivityThatChangesItsInput(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]interceptor.KeyFunc{
		"whole input": {}, "a part": interceptor.KeyFrom(func(m *mutable) any { return m.Ref }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("normalise", interceptor.Policy{LeaseTTL: forever, Key: key}))
			var runs counted
			amounts := make(chan int, 9)
			e.worker(func(w worker.Registry) {
				w.RegisterWorkflow(onePointer)
				named("normalise", func(ctx context.Context, in *mutable) (string, error) {
					amounts <- in.Amount
					in.Amount += 7
					if runs.ran(ctx) == 1 {
						return "", errors.New("once more")
					}
					return "done", nil
				})(w)
			})
			run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), onePointer)
			require.NoError(t, err)
			var out string
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, "done", out)
			require.Equal(t, []int{0, 7}, []int{<-amounts, <-amounts}, "or the test shows nothing")
			require.Equal(t, 2, runs.runs())
			require.Equal(t, runs.keys[0], runs.keys[1])
		})
	}
}

// C08: the ledger knows the key and not the input. While Redis remembers that, other
// input is a mismatch; then the ledger's word is all there is.
func TestOtherInputThanTheLedgers(t *testing.T) {
	t.Parallel()
	type order struct {
		Ref    string
		Amount int
	}
	var have atomic.Bool
	policy := long
	policy.Key = interceptor.KeyFrom(func(o order) any { return o.Ref })
	policy.Ledger = func(context.Context, string) (any, bool, error) { return "from the ledger", have.Load(), nil }
	e := newEnv(t, interceptor.For("pay", policy))
	seen := e.watch()
	var runs counted
	e.worker(named("pay", func(ctx context.Context, _ order) (string, error) { runs.ran(ctx); return "paid", nil }))
	pay := func(amount int) (any, error) { return e.run(call("pay", order{"A1", amount}).once()) }
	out, err := pay(100)
	require.NoError(t, err)
	require.Equal(t, "paid", out)
	have.Store(true)
	out, err = pay(100)
	require.NoError(t, err)
	require.Equal(t, "from the ledger", out)
	_, err = pay(200)
	require.Equal(t, interceptor.TypeMismatch, failure(t, err).Type())
	require.True(t, failure(t, err).NonRetryable())
	require.Len(t, seen.kind(primitives.EventRefused), 1)

	require.NoError(t, e.rdb.Del(e.ctx(), e.keys()...).Err())
	out, err = pay(200)
	require.NoError(t, err)
	require.Equal(t, "from the ledger", out)
	require.Equal(t, 1, runs.runs())
}

// An at-most-once body that a stopping worker has cut short may have had its effect.
func TestAtMostOnceHoldsWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	policy := long
	policy.AtMostOnce = true
	e := newEnv(t, interceptor.For("work", policy))
	s := newStage(e, "work")
	first := e.worker(named("work", s.untilStopped), func(o *worker.Options) { o.WorkerStopTimeout = soon })
	e.start(staged("work", "x", forever))
	r := s.next()
	first.Stop()
	require.Error(t, r.ends(t))
	r.give("for nobody")
	eventually(t, "the lease to be free", func() bool {
		l, err := e.store().Inspect(e.ctx(), r.attempt.Token.Resource)
		require.NoError(t, err)
		return !l.Held
	})
	e.worker(s.register)
	_, err := e.run(call("work", "x").once())
	require.Equal(t, interceptor.TypeOutcomeUnknown, failure(t, err).Type())
	s.over()
}

// A body whose result cannot be encoded has had its effect. Control: without AtMostOnce it
// runs again.
func TestAtMostOnceHoldsForAResultThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	policy := longFixed
	policy.AtMostOnce = true
	e := newEnv(t, interceptor.For("once", policy), interceptor.For("again", longFixed))
	var once, again counted
	of := func(runs *counted) any {
		return func(ctx context.Context) (any, error) { runs.ran(ctx); return make(chan int), nil }
	}
	e.worker(and(named("once", of(&once)), named("again", of(&again))))
	_, err := e.run(call("once").attempts(1))
	require.ErrorContains(t, err, "unable to encode")
	_, err = e.run(call("once").attempts(3))
	require.Equal(t, interceptor.TypeOutcomeUnknown, failure(t, err).Type())
	require.Equal(t, 1, once.runs())
	_, err = e.run(call("again").attempts(3))
	require.Error(t, err)
	require.Equal(t, 3, again.runs())
}

// C07: what one caller's retry policy calls final is not memoised: another caller may
// well retry it.
func TestAFailureFinalForOneCallerOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("poll", memoising(longFixed)))
	var runs counted
	e.worker(and(named("poll", func(ctx context.Context) (string, error) {
		if runs.ran(ctx) == 1 {
			return "", temporal.NewApplicationError("not yet", "NotYet")
		}
		return "there", nil
	})))
	p := call("poll")
	p.Options.RetryPolicy = &temporal.RetryPolicy{NonRetryableErrorTypes: []string{"NotYet"}}
	_, err := e.run(p)
	require.Equal(t, "NotYet", failure(t, err).Type())
	out, err := e.run(call("poll").once())
	require.NoError(t, err)
	require.Equal(t, "there", out)
}

// A13: the texts of other people's errors may show the input, also where they wrap an
// error of the kit's: no line of the kit has them.
func TestNoLineOfTheKitShowsAnErrorsText(t *testing.T) {
	t.Parallel()
	const mail = "jo@example.test"
	about := func(err error) error { return fmt.Errorf("customer %s: %w", mail, err) }
	for name, theirs := range map[string]error{
		"plain":             errors.New("no customer " + mail),
		"final":             temporal.NewNonRetryableApplicationError(mail, "Declined "+mail, nil, mail),
		"stale":             about(&fence.StaleError{Resource: mail}),
		"lost":              about(fence.ErrLeaseLost),
		"unavailable":       about(primitives.ErrUnavailable),
		"mismatch":          about(primitives.ErrMismatch),
		"of a key":          temporal.NewApplicationError(mail, interceptor.TypeKeyError),
		"deadline exceeded": about(context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSeal, inLedger := longFixed, longFixed
			inSeal.Seal = func(context.Context) error { return theirs }
			inLedger.Ledger = func(context.Context, string) (any, bool, error) { return nil, false, theirs }
			e := newEnv(t, interceptor.For("body", memoising(longFixed)), interceptor.For("panic", longFixed),
				interceptor.For("seal", inSeal), interceptor.For("ledger", inLedger))
			e.worker(and(named("body", func(context.Context) error { return theirs }),
				named("panic", func(context.Context) error { panic(theirs) }),
				named("seal", func(context.Context) error { return nil }),
				named("ledger", func(context.Context) error { return nil })))
			for _, activity := range []string{"body", "body", "panic", "seal", "ledger"} {
				_, err := e.run(call(activity).once())
				require.ErrorContains(t, err, mail, "or the test shows nothing")
			}
			ours := 0
			for _, line := range e.logs.with("fencekit:") {
				if _, text, _ := strings.Cut(line, " "); strings.HasPrefix(text, "fencekit:") { // else the SDK's own
					require.NotContains(t, line, mail)
					ours++
				}
			}
			require.GreaterOrEqual(t, ours, 5)
		})
	}
}

// A local call, which is not advised on, does not use up the warning for regular ones.
func TestALocalCallFirstLeavesTheAdvice(t *testing.T) {
	t.Parallel()
	policy := longFixed
	policy.LeaseTTL = 2 * forever
	e := newEnv(t, interceptor.For("work", policy))
	e.worker(and(named("work", func(context.Context) error { return nil })))
	p := call("work")
	p.Options.ScheduleToCloseTimeout = forever
	advised := func() int { return len(e.logs.with("does not fit its options")) }
	counts := []int{}
	for _, p := range []plan{p.local(), p, p} {
		_, err := e.run(p)
		require.NoError(t, err)
		counts = append(counts, advised())
	}
	require.True(t, slices.Equal([]int{0, 1, 1}, counts), "%v", counts)
}
