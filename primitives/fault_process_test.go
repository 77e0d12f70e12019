//go:build unix

package primitives

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// A worker is frozen for longer than its lease; another does the work; the first wakes
// up and goes on as if nothing had happened. Its write is refused with both tokens, its
// result is not stored: B12. The control, which does not look at tokens, loses the
// other's update.
func TestAFrozenWorkerIsFencedWhenItWakesUp(t *testing.T) {
	t.Parallel()
	for role, fenced := range map[string]bool{"fenced writer": true, "unfenced writer": false} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			o := order{Role: role, Payload: newNonce(), Resource: "account", TTL: 3 * time.Second}
			op, err := o.op()
			require.NoError(t, err)
			zombie := e.spawn(o)
			first := zombie.next()
			require.Equal(t, Begun, first.Outcome)
			require.NoError(t, zombie.Freeze())

			res, err := e.guard(GuardOptions{Wait: patience}).Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
				token, err := fence.FromContext(ctx)
				require.NoError(t, err)
				return []byte("50"), writeBalance(e.store, token, "50", fenced)
			})
			require.NoError(t, err)
			require.Equal(t, Reclaimed, res.Outcome)
			require.Greater(t, res.Token.Value, first.Token)

			zombie.proceed()
			require.NoError(t, zombie.Thaw())
			last := zombie.next()
			require.True(t, last.Refused, "its complete: %q", last.Err)
			memo, err := e.store.Result(e.ctx(), op)
			require.NoError(t, err)
			require.Equal(t, "50", string(memo), "the memo is the successor's")
			balance, _, err := e.gate().Get(e.ctx(), "account", "balance")
			require.NoError(t, err)
			if !fenced {
				require.Equal(t, "70", string(balance), "the control: the update is lost")
				return
			}
			require.Equal(t, "50", string(balance))
			require.Equal(t, &fence.StaleError{Resource: "account", Token: first.Token, Current: res.Token.Value}, last.Stale)
		})
	}
}

// A worker is killed in the middle of the body: somebody else waits for its lease to
// end and reclaims the operation, without anybody's help (C05).
func TestAKilledWorkerIsReclaimedWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	o := order{Role: "fenced writer", Payload: newNonce(), Resource: "account", TTL: 3 * time.Second, Execution: Execution{ID: "first", Attempt: 1}}
	op, err := o.op()
	require.NoError(t, err)
	worker := e.spawn(o)
	first := worker.next()
	require.NoError(t, worker.Kill())

	op.Execution = Execution{ID: "another", Attempt: 7}
	res, err := e.guard(GuardOptions{Wait: patience}).Do(e.ctx(), op, (&counted{}).body)
	require.NoError(t, err)
	require.Equal(t, Reclaimed, res.Outcome)
	require.Equal(t, 1, res.Takeovers)
	require.Greater(t, res.Token.Value, first.Token)
}

// The next attempt of the same execution does not wait for a lease of an hour; others
// are busy until then.
func TestAKilledWorkerIsReplacedAtOnceByTheNextAttempt(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	o := order{Role: "fenced writer", Payload: newNonce(), Resource: "account", TTL: time.Hour, Execution: Execution{ID: "one", Attempt: 1}}
	op, err := o.op()
	require.NoError(t, err)
	worker := e.spawn(o)
	first := worker.next()
	require.NoError(t, worker.Kill())

	other := op
	other.Execution.ID = "another"
	_, err = e.guard(GuardOptions{}).Do(e.ctx(), other, (&counted{}).body)
	require.ErrorIs(t, err, ErrBusy)
	op.Execution.Attempt = 2
	res, err := e.guard(GuardOptions{}).Do(e.ctx(), op, (&counted{}).body)
	require.NoError(t, err)
	require.Equal(t, TakenOver, res.Outcome)
	require.Greater(t, res.Token.Value, first.Token)
}

// Fifty callers in five processes ask for the same thing at once: one runs it, all get
// the same bytes (C11).
func TestFiftyCallersInFiveProcessesRunItOnce(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const processes, callers = 5, 10
	o := order{Role: "callers", Payload: newNonce(), Resource: "account", TTL: 20 * time.Second, Callers: callers}
	var all []*child
	for range processes {
		c := e.spawn(o)
		c.next() // it is ready
		all = append(all, c)
	}
	for _, c := range all {
		c.proceed()
	}
	outcomes, memos := map[Outcome]int{}, map[string]int{}
	for _, c := range all {
		for range callers {
			r := c.next()
			require.Empty(t, r.Err)
			outcomes[r.Outcome]++
			memos[r.Memo]++
		}
	}
	require.Equal(t, map[Outcome]int{Begun: 1, Replayed: processes*callers - 1}, outcomes)
	require.Len(t, memos, 1)
}
