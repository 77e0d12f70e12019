//go:build unix

package crash_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/fencekit/fencekit-go/interceptor"
)

// N16: a worker is frozen while it polls. The attempt that its socket takes is given up, and
// the workflow has the batch done by another worker. Thawed, the first worker finds the
// attempt. It shares no operation with the other worker's activities, only the resource:
// begun now, its token would be the highest, and its write would take the batch back.
func TestFaultAttemptInAFrozenSocket(t *testing.T) {
	t.Parallel()
	o := guarded()
	o.OwnQueue = true
	r := newRig(t, o)
	first := r.spawn()
	r.polls(1)
	require.NoError(t, first.Freeze())
	r.start(1, 3)
	r.spawn()
	r.finish()
	before, want := r.books()
	require.Equal(t, want, before)
	require.NoError(t, first.Thaw())
	var last heard
	for last.worker != 1 {
		last = r.next("refused ", "completed ")
	}
	got, _ := r.books()
	require.Equal(t, want, got)
	require.Zero(t, one[int](r, "SELECT count(*) FROM runs WHERE worker = 1"))
	require.True(t, strings.HasSuffix(last.line, interceptor.ErrGivenUp.Error()), "%s", last.line)
}

// polls waits until the server has a poll of a worker.
func (r *rig) polls(worker int) {
	r.Helper()
	require.Eventually(r, func() bool {
		d, err := r.client.DescribeTaskQueue(r.Context(), hostQueue(r.order.Queue, worker), enums.TASK_QUEUE_TYPE_ACTIVITY)
		return err == nil && len(d.GetPollers()) > 0
	}, 2*time.Minute, 20*time.Millisecond)
}
