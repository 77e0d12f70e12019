package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

type payment struct {
	ID        string
	Amount    int
	Card      string
	CreatedAt time.Time
}

// N09: what must be equal beside a key is the user's choice. The default compares all of
// the input, so that a volatile field needs a word.
func TestWhatIsComparedBesideAKey(t *testing.T) {
	t.Parallel()
	byID := interceptor.KeyFrom(func(p payment) any { return p.ID })
	policy := func(c interceptor.CompareFunc) interceptor.Policy {
		return interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: byID, Compare: c}
	}
	amount := interceptor.CompareFrom(func(p payment) any { return p.Amount })
	guards := map[string]interceptor.CompareFunc{"whole": {}, "amount": amount, "nothing": interceptor.CompareNothing(),
		"empty": interceptor.CompareFrom(func(payment) any { return nil }), "all": interceptor.CompareFromArgs(func(args []any) any { return args[0].(payment).Amount })}
	var list []interceptor.Guard
	for name, c := range guards {
		list = append(list, interceptor.For(name, policy(c)))
	}
	e := newEnv(t, list...)
	var runs counted
	e.worker(func(w worker.Registry) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context, name string, p payment) (out any, err error) {
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
			err = workflow.ExecuteLocalActivity(ctx, name, p).Get(ctx, &out)
			return out, err
		}, workflow.RegisterOptions{Name: "pay-locally"})
		for name := range guards {
			w.RegisterActivityWithOptions(func(ctx context.Context, p payment) (string, error) {
				runs.ran(ctx)
				return "paid " + p.Card, nil
			}, registerAs(name))
		}
	})
	first := payment{"P1", 100, "4111", time.Unix(1, 0)}
	volatile := payment{"P1", 100, "4222", time.Unix(2, 0)}
	dearer := payment{"P1", 200, "4111", time.Unix(1, 0)}
	for name, c := range map[string]struct{ volatile, dearer bool }{ // whether it is a mismatch
		"whole": {true, true}, "amount": {false, true}, "nothing": {false, false}, "empty": {false, false}, "all": {false, true},
	} {
		for _, local := range []bool{false, true} {
			ask := func(in payment) (out any, err error) {
				if !local {
					return e.run(call(name, in))
				}
				run, err := e.execute(client.StartWorkflowOptions{}, "pay-locally", name, in)
				require.NoError(t, err)
				err = run.Get(e.ctx(), &out)
				return out, err
			}
			in := first
			if local {
				in, volatile.ID, dearer.ID = payment{"P2", 100, "4111", time.Unix(1, 0)}, "P2", "P2"
			} else {
				volatile.ID, dearer.ID = "P1", "P1"
			}
			before := runs.runs()
			_, err := ask(in)
			require.NoError(t, err)
			for other, mismatch := range map[*payment]bool{&volatile: c.volatile, &dearer: c.dearer} {
				out, err := ask(*other)
				if !mismatch {
					require.NoError(t, err, "%s %+v", name, other)
					require.Equal(t, "paid 4111", out)
					continue
				}
				require.ErrorContains(t, err, interceptor.TypeMismatch, name)
				require.ErrorContains(t, err, "Policy.Compare")
				require.ErrorContains(t, err, "shape may have changed between releases")
				require.NotContains(t, err.Error(), "4222")
			}
			require.Equal(t, before+1, runs.runs(), name)
		}
	}
}

// What is compared may change while records are kept: other kinds are not compared.
func TestWhatIsComparedMayChange(t *testing.T) {
	t.Parallel()
	policy := interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: interceptor.KeyFrom(func(p payment) any { return p.ID })}
	old := newEnv(t, interceptor.For("pay", policy))
	policy.Compare = interceptor.CompareFrom(func(p payment) any { return p.Amount })
	changed := newEnv(t, interceptor.For("pay", policy))
	changed.opts.Store.Prefix = old.opts.Store.Prefix
	var runs counted
	pay := named("pay", func(ctx context.Context, p payment) (int, error) { return runs.ran(ctx), nil })
	old.worker(pay)
	changed.worker(pay)
	_, err := old.run(call("pay", payment{"P1", 100, "4111", time.Unix(1, 0)}))
	require.NoError(t, err)
	_, err = changed.run(call("pay", payment{"P1", 100, "4222", time.Unix(2, 0)}))
	require.NoError(t, err)
	_, err = changed.run(call("pay", payment{"P2", 100, "4222", time.Unix(2, 0)}))
	require.NoError(t, err)
	_, err = old.run(call("pay", payment{"P2", 300, "4222", time.Unix(2, 0)}))
	require.NoError(t, err, "the new record was made of another part")
	_, err = changed.run(call("pay", payment{"P2", 300, "4222", time.Unix(2, 0)}))
	require.ErrorContains(t, err, interceptor.TypeMismatch)
	require.Equal(t, 2, runs.runs())
}

// A key by WithKey is compared by the same option.
func TestWhatIsComparedBesideAKeyOfTheWorkflows(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", interceptor.Policy{Scope: interceptor.ScopeNamespace,
		Compare: interceptor.CompareFrom(func(p payment) any { return p.Amount })}))
	var runs counted
	e.worker(named("pay", func(ctx context.Context, p payment) (int, error) { return runs.ran(ctx), nil }))
	for _, card := range []string{"4111", "4222"} {
		_, err := e.run(call("pay", payment{Amount: 100, Card: card}).keyed("k"))
		require.NoError(t, err)
	}
	_, err := e.run(call("pay", payment{Amount: 200}).keyed("k"))
	require.ErrorContains(t, err, interceptor.TypeMismatch)
	require.Equal(t, 1, runs.runs())
}
