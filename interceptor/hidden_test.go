package interceptor_test

import (
	"context"
	"encoding/json"
	"math/big"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// The body of a local activity is given the workflow's own value, with fields that JSON
// does not show.
type (
	money struct {
		Currency string
		cents    int64
	}
	priced  struct{ Price money }
	untold  struct{ Anything any }
	keptOut struct {
		ID     string
		Secret string `json:"-"`
	}
	left    struct{ ID string }
	right   struct{ ID string }
	collide struct {
		left
		right
	}
	shadow struct {
		left

		ID string
	}
	beneath struct{ *money }
)

// These have a hidden part, and a marshaller that tells it.
type (
	decimal struct {
		value *big.Int
		exp   int32
	}
	uuid  [16]byte
	texts struct{ text string }
	plain struct { // nothing is hidden
		_ struct{}

		ID   string `json:"id,omitempty"`
		Note string
	}
)

func (d decimal) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.value.String() + "e" + big.NewInt(int64(d.exp)).String())
}
func (u uuid) MarshalText() ([]byte, error)      { return []byte(new(big.Int).SetBytes(u[:]).String()), nil }
func (t *texts) MarshalText() ([]byte, error)    { return []byte(t.text), nil }
func (t *texts) UnmarshalText(text []byte) error { t.text = string(text); return nil }

// passed are arguments, and calls a workflow that passes one of them to a local activity.
type passed []any

func (p passed) call(ctx workflow.Context, i int) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: forever, RetryPolicy: once("", "").Options.RetryPolicy})
	return workflow.ExecuteLocalActivity(ctx, "hold", p[i]).Get(ctx, nil)
}

// locally passes each of args to a local activity under a policy, and returns how each
// call ended and how often the body ran.
func locally(t *testing.T, policy interceptor.Policy, args passed) (errs []error, runs int64) {
	t.Helper()
	e := newEnv(t, interceptor.For("hold", policy))
	var ran atomic.Int64
	e.worker(func(w worker.Registry) {
		named("hold", func(context.Context, any) error { ran.Add(1); return nil })(w)
		w.RegisterWorkflowWithOptions(args.call, workflow.RegisterOptions{Name: "passes"})
	})
	for i := range args {
		run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "passes", i)
		require.NoError(t, err)
		errs = append(errs, run.Get(e.ctx(), nil))
	}
	return errs, ran.Load()
}

// wherever runs a test under every scope.
func wherever(t *testing.T, test func(*testing.T, interceptor.Scope)) {
	for _, scope := range []interceptor.Scope{interceptor.ScopeExecution, interceptor.ScopeRun, interceptor.ScopeWorkflow, interceptor.ScopeNamespace} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			test(t, scope)
		})
	}
}

// N11: what a local body can see and a key cannot tell apart is refused, by the name of
// its field, and without its value.
func TestAHiddenFieldOfALocalArgumentIsRefused(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		arg   any
		field string
	}{
		{"not exported", money{"EUR", 4711}, "/cents"},
		{"behind a pointer", &money{"EUR", 4711}, "/cents"},
		{"left out by a tag", keptOut{"A1", "4711"}, "/Secret"},
		{"nested", priced{money{"EUR", 4711}}, "/Price/cents"},
		{"in a slice", []money{{"EUR", 4711}}, "/cents"},
		{"in an array", [1]money{{"EUR", 4711}}, "/cents"},
		{"in a map", map[string]money{"a": {"EUR", 4711}}, "/cents"},
		{"in an interface", untold{money{"EUR", 4711}}, "/Anything/cents"},
		{"in an untyped map", map[string]any{"a": &money{"EUR", 4711}}, "/cents"},
		{"in an untyped slice", []any{1, []any{priced{money{"EUR", 4711}}}}, "/Price/cents"},
		{"embedded, by a pointer", beneath{&money{"EUR", 4711}}, "/cents"},
		{"colliding embedded", collide{left{"4711"}, right{"A1"}}, "/ID"},
		{"shadowed", shadow{left{"4711"}, "A1"}, "/ID"},
	}
	var args passed
	for _, c := range cases {
		args = append(args, c.arg)
	}
	wherever(t, func(t *testing.T, scope interceptor.Scope) {
		errs, runs := locally(t, interceptor.Policy{Scope: scope}, args)
		require.Zero(t, runs)
		for i, c := range cases {
			require.Equal(t, interceptor.TypeKeyError, kindOf(errs[i]), c.name)
			require.Contains(t, errs[i].Error(), c.field, c.name)
			require.NotContains(t, errs[i].Error(), "4711", c.name)
		}
	})
}

// N11: of two calls that differ in such a field, the second never gets the first one's
// result, also where KeyFrom has made the body the judge of what counts.
func TestKeyFromPicksBesideAHiddenField(t *testing.T) {
	t.Parallel()
	for _, scope := range []interceptor.Scope{interceptor.ScopeRun, interceptor.ScopeWorkflow, interceptor.ScopeNamespace} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			byAmount := interceptor.KeyFrom(func(v any) any { m := v.(money); return []any{m.Currency, m.cents} })
			errs, runs := locally(t, interceptor.Policy{Scope: scope, Key: byAmount},
				passed{money{"EUR", 100}, money{"EUR", 200}})
			require.Equal(t, []error{nil, nil}, errs)
			require.EqualValues(t, 2, runs)
		})
	}
}

// Control: what has a marshaller tells what it holds, and what hides nothing passes.
func TestALocalArgumentThatHidesNothing(t *testing.T) {
	t.Parallel()
	wherever(t, func(t *testing.T, scope interceptor.Scope) {
		args := passed{
			time.Unix(1e9, 7).UTC(), &time.Time{}, uuid{15: 1}, decimal{big.NewInt(1999), -2}, &decimal{big.NewInt(1), 0},
			struct{ At time.Time }{time.Unix(1e9, 0).UTC()}, struct{ D decimal }{decimal{big.NewInt(1), 1}},
			map[string]any{"d": decimal{big.NewInt(1), 1}}, big.NewInt(7), netip.MustParseAddr("192.0.2.1"),
			json.RawMessage(`{"id":1}`), &commonpb.WorkflowExecution{WorkflowId: "w"}, plain{ID: "A1", Note: "x"},
			struct{ left }{left{"A1"}}, &texts{"A1"}, time.Minute, []any{nil, "x"}, map[uuid]int{{15: 1}: 1},
		}
		errs, runs := locally(t, interceptor.Policy{Scope: scope}, args)
		for i, err := range errs {
			require.NoError(t, err, "%d: a %T", i, args[i])
		}
		require.EqualValues(t, len(args), runs)
	})
}

// Control: a regular activity's body sees what JSON shows, and nothing is hidden from
// its key.
func TestAHiddenFieldOfARegularArgumentIsNone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("hold", interceptor.Policy{Scope: interceptor.ScopeNamespace}))
	e.worker(and(named("hold", func(_ context.Context, m money) (int64, error) { return m.cents, nil })))
	for _, m := range []money{{"EUR", 100}, {"EUR", 200}} {
		_, got := e.steps(call("hold", m))
		require.Equal(t, []any{0.0}, got)
	}
	require.Empty(t, strings.Join(e.logs.with("WARN fencekit"), "\n"))
}
