//go:build unix

package crash_test

import (
	"os/exec"
	"slices"
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

// attempts are a worker's runs of a step, in order. A machine that is late has several:
// an attempt may end before its run does.
func (r *rig) attempts(s Step, worker int) (outcomes []string, tokens []int64) {
	r.Helper()
	rows, err := r.db.Query(r.Context(), "SELECT outcome, token FROM runs WHERE batch = $1 AND step = $2 AND worker = $3 ORDER BY id",
		s.Batch, s.Number, worker)
	require.NoError(r, err)
	for rows.Next() {
		var outcome string
		var token int64
		require.NoError(r, rows.Scan(&outcome, &token))
		outcomes, tokens = append(outcomes, outcome), append(tokens, token)
	}
	require.NoError(r, rows.Err())
	require.NotEmpty(r, outcomes, "worker %d has not run the step", worker)
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
	_, dead := r.attempts(Step{0, 2}, 1)
	outcomes, tokens := r.attempts(Step{0, 2}, 2)
	require.Equal(t, string(primitives.TakenOver), outcomes[0])
	require.Greater(t, tokens[0], slices.Max(dead))
	again := one[time.Time](r, "SELECT min(began) FROM runs WHERE step = 2 AND worker = 2")
	t.Logf("at work again %v after the crash", again.Sub(crashed))
	require.Less(t, again.Sub(crashed), recoveryBound)
}

// C05: for another workflow that asks for the same business key, the crashed worker is
// at work until its lease ends by itself; then it reclaims the step, without anybody's
// help. The workflow of the crashed worker is terminated, so that it cannot.
func TestExitIsReclaimedByAnotherWorkflow(t *testing.T) {
	t.Parallel()
	o := guarded()
	o.LeaseTTL, o.ByKey = 30*time.Second, true // long enough to be met by the other workflow
	o.Points = map[string]string{"0/1": pointExit}
	r := newRig(t, o)
	first := r.spawn()
	r.start(1, 1)
	r.exited(first)
	require.NoError(t, r.client.TerminateWorkflow(t.Context(), r.runs[0].GetID(), r.runs[0].GetRunID(), "its worker has crashed"))
	r.spawn()
	r.runs = []client.WorkflowRun{r.workflow(r.batches[0])}
	r.refused(r.runs[0], interceptor.TypeBusy)
	r.finish()
	got, want := r.books()
	require.Equal(t, want, got)
	_, dead := r.attempts(Step{0, 1}, 1)
	outcomes, tokens := r.attempts(Step{0, 1}, 2)
	require.Equal(t, string(primitives.Reclaimed), outcomes[0])
	require.Greater(t, tokens[0], slices.Max(dead))
}

// refused waits until an attempt of the workflow's activity has failed with a type.
func (r *rig) refused(run client.WorkflowRun, kind string) {
	r.Helper()
	require.Eventually(r, func() bool {
		d, err := r.client.DescribeWorkflow(r.Context(), run.GetID(), run.GetRunID())
		require.NoError(r, err)
		for _, a := range d.RawResponse.GetPendingActivities() {
			if a.GetLastFailure().GetApplicationFailureInfo().GetType() == kind {
				return true
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond)
}
