package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// promising is an activity whose result comes from elsewhere.
type promising struct {
	counted

	texts chan []byte
}

func (p *promising) body(ctx context.Context, _ string) (string, error) {
	p.ran(ctx)
	text, err := interceptor.Pending(ctx)
	if err != nil {
		return "", err
	}
	p.texts <- text
	return "", activity.ErrResultPending
}

func newPromising(e *env) (*promising, *interceptor.Interceptor, *witness) {
	e.Helper()
	p, kit := &promising{texts: make(chan []byte, 10)}, (*interceptor.Interceptor)(nil)
	w, seen := e.attend()
	kit = e.interceptor()
	e.workerWith(kit, and(named("ask", p.body)), seen)
	return p, kit, w
}

// suspended waits until the record says that the result comes from elsewhere.
func (e *env) suspended(kit *interceptor.Interceptor) {
	e.Helper()
	eventually(e, "pending", func() bool {
		for r, err := range kit.Store().Records(e.ctx()) {
			if err == nil && r.State == primitives.Pending {
				return true
			}
		}
		return false
	})
}

// D03: the marker passes unwrapped, others find the operation busy, and whoever asks
// later gets the late result, never an empty one.
func TestAResultFromElsewhere(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"plain": false, "through a codec that binds": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("ask", long))
			if sealed {
				e.dial(newSealing(true).converter())
			}
			p, kit, w := newPromising(e)
			run := e.start(call("ask", "x"))
			text := <-p.texts
			e.suspended(kit)
			eventually(t, "the body's answer", func() bool { return len(w.all()) > 0 }) // it passes on after Redis knows
			require.True(t, w.all()[0].err == activity.ErrResultPending)                //nolint:errorlint // the SDK compares like this
			_, err := e.run(call("ask", "x").once())
			require.Equal(t, interceptor.TypeBusy, failure(t, err).Type())

			require.NoError(t, kit.Complete(e.ctx(), e.client, text, "late", nil))
			var out string
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, "late", out)
			replayed, err := e.run(call("ask", "x"))
			require.NoError(t, err)
			require.Equal(t, "late", replayed)
			require.Equal(t, 1, p.runs())

			err = kit.Complete(e.ctx(), e.client, text, "late", nil)
			require.Error(t, err, "Temporal has it already")
			require.NotErrorIs(t, err, fence.ErrLeaseLost, "the record is still ours")
			replayed, err = e.run(call("ask", "x"))
			require.NoError(t, err)
			require.Equal(t, "late", replayed)
		})
	}
}

// D03: a failure from elsewhere is the attempt's; the next attempt asks again at once.
func TestAFailureFromElsewhere(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("ask", long))
	p, kit, _ := newPromising(e)
	run := e.start(call("ask", "x").attempts(2))
	first := <-p.texts
	e.suspended(kit)
	require.NoError(t, kit.Complete(e.ctx(), e.client, first, nil, temporal.NewApplicationError("no answer", "NoAnswer")))
	second := <-p.texts
	e.suspended(kit)
	require.NoError(t, kit.Complete(e.ctx(), e.client, second, "late", nil))
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "late", out)
	require.Equal(t, 2, p.runs())
}

// D03: once a newer attempt has begun, the older one's result is too late, and is
// neither stored nor reported.
func TestAResultFromElsewhereThatIsTooLate(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("ask", long))
	p, kit, _ := newPromising(e)
	ask := call("ask", "x").attempts(10)
	ask.Options.StartToCloseTimeout = 5 * time.Second
	run := e.start(ask)
	first, second := <-p.texts, <-p.texts
	require.ErrorIs(t, kit.Complete(e.ctx(), e.client, first, "first", nil), fence.ErrLeaseLost)
	e.suspended(kit)
	err := kit.Complete(e.ctx(), e.client, second, "second", nil)
	for err != nil { // a third attempt on a busy machine
		require.ErrorIs(t, err, fence.ErrLeaseLost)
		second = <-p.texts
		err = kit.Complete(e.ctx(), e.client, second, "second", nil)
	}
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "second", out)
}

func TestPendingAndCompleteRefuse(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("ask", long))
	p, kit, _ := newPromising(e)
	_, err := interceptor.Pending(e.ctx())
	require.ErrorIs(t, err, primitives.ErrInvalid, "outside of an activity")
	_, err = e.run(call("ask", "x").local().once())
	require.ErrorContains(t, err, "local activity")

	run := e.start(call("ask", "y"))
	text := <-p.texts
	e.suspended(kit)
	require.ErrorIs(t, kit.Complete(e.ctx(), e.client, []byte("{"), "x", nil), primitives.ErrInvalid)
	other := newEnv(t, interceptor.For("other", long))
	other.opts.Store.Prefix = e.opts.Store.Prefix
	require.ErrorContains(t, other.interceptor().Complete(e.ctx(), e.client, text, "x", nil), `activity "ask"`)
	require.NoError(t, kit.Complete(e.ctx(), e.client, text, "x", nil), "nothing was lost by that")
	require.NoError(t, run.Get(e.ctx(), nil))
}
