package interceptor_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

var errNoTemporal = errors.New("temporal is away")

// away is a client whose reports do not arrive.
type away struct{ client.Client }

func (away) CompleteActivityWithOptions(context.Context, client.CompleteActivityOptions) error {
	return errNoTemporal
}

// asked starts a call of "ask" and returns it and its text.
func (p *promising) asked(e *env, kit *interceptor.Interceptor, arg string) (client.WorkflowRun, []byte) {
	e.Helper()
	run := e.start(call("ask", arg).attempts(1))
	text := await(e, p.texts, "the text of Pending")
	e.suspended(kit)
	return run, text
}

// The first result counts: a repeat with another one, or with a failure, reports what was
// stored, so that Temporal and replays never differ.
func TestTheFirstResultFromElsewhereCounts(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]struct {
		result  any
		failure error
	}{
		"another result": {"two", nil},
		"a failure":      {nil, temporal.NewNonRetryableApplicationError("no", "No", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("ask", long))
			p, kit, _ := newPromising(e)
			run, text := p.asked(e, kit, "x")
			require.ErrorIs(t, kit.Complete(e.ctx(), away{e.client}, text, "one", nil), errNoTemporal)
			require.NoError(t, kit.Complete(e.ctx(), e.client, text, second.result, second.failure))
			var out string
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, "one", out)
			replayed, err := e.run(call("ask", "x").once())
			require.NoError(t, err)
			require.Equal(t, "one", replayed)
			require.Equal(t, 1, p.runs())
		})
	}
}

// Under MemoiseFailures a non-retryable failure from elsewhere is stored like one of the
// body, and counts like a result. Control: a retryable one is not.
func TestAFinalFailureFromElsewhereIsMemoised(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("ask", memoising(long)))
	p, kit, _ := newPromising(e)
	run, text := p.asked(e, kit, "x")
	declined := temporal.NewNonRetryableApplicationError("declined", "Declined", nil, "card")
	require.ErrorIs(t, kit.Complete(e.ctx(), away{e.client}, text, nil, declined), errNoTemporal)
	require.NoError(t, kit.Complete(e.ctx(), e.client, text, "too late", nil))
	for _, err := range []error{run.Get(e.ctx(), nil), lastly(e.run(call("ask", "x").once()))} {
		f := failure(t, err)
		var card string
		require.NoError(t, f.Details(&card))
		require.Equal(t, []any{"Declined", "card", true}, []any{f.Type(), card, f.NonRetryable()})
	}
	require.Equal(t, 1, p.runs())

	run, text = p.asked(e, kit, "y")
	require.NoError(t, kit.Complete(e.ctx(), e.client, text, nil, temporal.NewApplicationError("not yet", "NotYet")))
	require.Equal(t, "NotYet", failure(t, run.Get(e.ctx(), nil)).Type())
	run, text = p.asked(e, kit, "y")
	require.NoError(t, kit.Complete(e.ctx(), e.client, text, "late", nil))
	require.NoError(t, run.Get(e.ctx(), nil))
	require.Equal(t, 3, p.runs())
}

func lastly(_ any, err error) error { return err }

// A body may hold other leases while it hands its own claim over: that of the activity is
// the one that counts.
func TestPendingInsideAnotherGuard(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("ask", long))
	kit, texts := e.interceptor(), make(chan []byte, 9)
	var runs counted
	inner, err := primitives.NewGuard(kit.Store(), primitives.GuardOptions{})
	require.NoError(t, err)
	key, err := primitives.NewKey("account", "42")
	require.NoError(t, err)
	e.workerWith(kit, named("ask", func(ctx context.Context, _ string) (string, error) {
		runs.ran(ctx)
		_, err := inner.Do(ctx, primitives.Op{Key: key, Resource: "account/42"}, func(ctx context.Context) ([]byte, error) {
			text, err := interceptor.Pending(ctx)
			texts <- text
			return nil, err
		})
		if err != nil {
			return "", err
		}
		return "", activity.ErrResultPending
	}))
	run := e.start(call("ask", "x").once())
	text := await(t, texts, "the text of Pending")
	e.suspended(kit)
	require.NoError(t, kit.Complete(e.ctx(), e.client, text, "late", nil))
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	replayed, err := e.run(call("ask", "x").once())
	require.NoError(t, err)
	require.Equal(t, []any{"late", "late", 1}, []any{out, replayed, runs.runs()})
}

// G02: what Pending really returns has the names of the golden text.
func TestPendingHasTheNamesOfItsFormat(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("ask", long))
	p, kit, _ := newPromising(e)
	run, text := p.asked(e, kit, "x")
	names := func(text []byte) (all []string, parts map[string]json.RawMessage) {
		require.NoError(t, json.Unmarshal(text, &parts))
		for name := range parts {
			all = append(all, name)
		}
		slices.Sort(all)
		return all, parts
	}
	all, parts := names(text)
	require.Equal(t, []string{"activity_type", "claim", "namespace", "task_queue", "task_token", "version", "workflow", "workflow_type"}, all)
	require.JSONEq(t, `"fencekit/pending/1"`, string(parts["version"]))
	all, _ = names(parts["claim"])
	require.Equal(t, []string{"holder", "key", "nonce", "resource", "token"}, all)
	require.NoError(t, kit.Complete(e.ctx(), e.client, text, "x", nil))
	require.NoError(t, run.Get(e.ctx(), nil))
}
