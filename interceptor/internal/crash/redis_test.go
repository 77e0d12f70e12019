//go:build unix

package crash_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// Redis is killed between a step's effects and its memo, and comes back without its
// data: the attempt still succeeds, for failing it would repeat the effects. Killed once
// more, it knows nothing of the step, and a second workflow that asks for it runs the body
// again: nothing knows better but the database. With Once and a fenced update that
// changes nothing; the control, guarded but with plain writes, adds twice.
func TestFaultRedisForgetsAStep(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"fenced": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := guarded()
			o.Fenced, o.ByKey = fenced, true
			o.Points = map[string]string{"0/1": pointEffect}
			r, server := newRedisRig(t, o)
			r.spawn()
			r.start(1, 1)
			h := r.next("at " + pointEffect)
			require.NoError(t, server.Restart(t.Context()))
			require.NoError(t, r.live[h.worker].Say(pointEffect))
			r.finish()
			require.NoError(t, server.Restart(t.Context()))
			r.runs[0] = r.workflow(r.batches[0])
			r.finish()
			got, want := r.books()
			t.Logf("%+v, should be %+v", got, want)
			if fenced {
				require.Equal(t, want, got)
				return
			}
			require.GreaterOrEqual(t, got.Balance, 2*want.Balance, "the control: an effect twice")
		})
	}
}

func newRedisRig(t *testing.T, o order) (*rig, *devstack.Redis) {
	t.Helper()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	o.Redis = server.Addr()
	return newRig(t, o), server
}

// 200 steps of ten workflows in two worker processes, while Redis is killed again and
// again, stays away for a while, and comes back empty. No effect is doubled, no update
// lost, and every workflow gets to its end.
func TestFaultRedisKilled(t *testing.T) {
	t.Parallel()
	o := guarded()
	o.RenewEvery = 100 * time.Millisecond // so that a step notices in its middle, too
	r, server := newRedisRig(t, o)
	batches, steps, faults := 10, 20, 4
	if long() {
		batches, steps, faults = 20, 100, 40
	}
	r.spawn()
	r.spawn()
	r.start(batches, steps)
	kills := 0
	for range faults {
		if _, ok := r.atWork(); !ok {
			break
		}
		time.Sleep(rand.N(200 * time.Millisecond)) // somewhere in the step
		require.NoError(t, server.Kill())
		time.Sleep(rand.N(1500 * time.Millisecond)) // the fault itself
		require.NoError(t, server.Restart(t.Context()))
		kills++
	}
	r.finish()
	got, want := r.books()
	require.Equal(t, want, got)
	require.GreaterOrEqual(t, kills, 2)
	runs := one[int](r, "SELECT count(*) FROM runs")
	t.Logf("%d kills; %d runs for %d steps", kills, runs, batches*steps)
}
