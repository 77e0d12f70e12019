//go:build unix

package crash_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// exited waits until the worker has ended itself between its effect and its memo.
func (r *rig) exited(c *devstack.Child) {
	r.Helper()
	var exit *exec.ExitError
	require.ErrorAs(r, c.Wait(r.patience()), &exit)
	require.Equal(r, 137, exit.ExitCode())
}

// attempts are the runs of a step, in order.
func (r *rig) attempts(s Step) (outcomes []string, tokens []int64) {
	r.Helper()
	rows, err := r.db.Query(r.Context(), "SELECT outcome, token FROM runs WHERE batch = $1 AND step = $2 ORDER BY id", s.Batch, s.Number)
	require.NoError(r, err)
	for rows.Next() {
		var outcome string
		var token int64
		require.NoError(r, rows.Scan(&outcome, &token))
		outcomes, tokens = append(outcomes, outcome), append(tokens, token)
	}
	require.NoError(r, rows.Err())
	return outcomes, tokens
}

// C05: a worker ends between its effects and its memo. Temporal's next attempt takes over
// long before the lease is over, under a higher token: its fenced write applies, and
// its effect is found in the ledger.
func TestExitBetweenEffectAndMemo(t *testing.T) {
	t.Parallel()
	o := guarded()
	o.Points = map[string]string{"0/2": pointExit}
	r := newRig(t, o)
	first := r.spawn()
	r.start(1, 3)
	r.exited(first)
	crashed := one[time.Time](r, "SELECT clock_timestamp()")
	r.spawn()
	r.finish()
	got, want := r.books()
	require.Equal(t, want, got)
	outcomes, tokens := r.attempts(Step{0, 2})
	require.Equal(t, []string{string(primitives.Begun), string(primitives.TakenOver)}, outcomes[:2])
	require.Greater(t, tokens[1], tokens[0])
	again := one[time.Time](r, "SELECT began FROM runs WHERE step = 2 ORDER BY id OFFSET 1 LIMIT 1")
	t.Logf("at work again %v after the crash", again.Sub(crashed))
	require.Less(t, again.Sub(crashed), recoveryBound)
}

// C05: for another workflow that asks for the same business key, the crashed worker is
// at work until its lease ends by itself; then it reclaims the step, without anybody's
// help. The workflow of the crashed worker is terminated, so that it cannot.
func TestExitIsReclaimedByAnotherWorkflow(t *testing.T) {
	t.Parallel()
	o := guarded()
	o.LeaseTTL, o.ByKey = 5*time.Second, true
	o.Points = map[string]string{"0/1": pointExit}
	r := newRig(t, o)
	first := r.spawn()
	r.start(1, 1)
	r.exited(first)
	require.NoError(t, r.client.TerminateWorkflow(t.Context(), r.runs[0].GetID(), r.runs[0].GetRunID(), "its worker has crashed"))
	r.spawn()
	r.runs = []client.WorkflowRun{r.workflow(r.batches[0])}
	refusals := r.watchFailures(r.runs[0])
	r.finish()
	got, want := r.books()
	require.Equal(t, want, got)
	require.Equal(t, []string{interceptor.TypeBusy}, *refusals)
	outcomes, tokens := r.attempts(Step{0, 1})
	require.Equal(t, []string{string(primitives.Begun), string(primitives.Reclaimed)}, outcomes)
	require.Greater(t, tokens[1], tokens[0])
}

// watchFailures collects the types of the failures of a workflow's pending activity,
// each once, until it has one.
func (r *rig) watchFailures(run client.WorkflowRun) *[]string {
	r.Helper()
	var seen []string
	require.Eventually(r, func() bool {
		d, err := r.client.DescribeWorkflow(r.Context(), run.GetID(), run.GetRunID())
		require.NoError(r, err)
		for _, a := range d.RawResponse.GetPendingActivities() {
			if f := a.GetLastFailure().GetApplicationFailureInfo(); f != nil {
				seen = append(seen, f.GetType())
			}
		}
		return len(seen) > 0
	}, time.Minute, 20*time.Millisecond)
	return &seen
}
