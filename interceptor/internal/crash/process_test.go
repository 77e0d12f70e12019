//go:build unix

package crash_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

// Each of two workers is frozen in the middle of a step for as long as others need to
// go on with the batch: one between its effects and its report, one between reading and
// writing. Thawed, they go on as if nothing had happened.
//
// Without the interceptor and the fences the first effect happens twice, and the second
// worker takes its batch back to where it was. With them neither does (B12, C04, E04).
func TestFaultFrozenWorkers(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]order{"guarded": guarded(), "control": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Points = map[string]string{"0/2": pointEffect, "1/2": pointRead}
			r := newRig(t, o)
			r.spawn()
			r.spawn()
			r.start(2, 5)
			ended := r.freezeAtPoints()
			r.finish()
			got, want := r.books()
			t.Logf("%+v, should be %+v; the thawed workers ended with %v", got, want, ended)
			if o.Guarded {
				require.Equal(t, want, got)
				require.Contains(t, ended[pointRead], "stale")
				return
			}
			require.GreaterOrEqual(t, got.Balance, want.Balance+Step{0, 2}.amount(), "the control: an effect twice")
			require.Positive(t, got.Lost, "the control: an update lost")
		})
	}
}

// freezeAtPoints freezes every worker that comes to a point, until its batch has gone
// on without it. It returns how the steps ended after that.
func (r *rig) freezeAtPoints() (ended map[string]string) {
	r.Helper()
	frozen := map[int]bool{}
	for range r.order.Points {
		h := r.next("at ")
		if !frozen[h.worker] {
			frozen[h.worker] = true
			require.NoError(r, r.live[h.worker].Freeze())
			r.spawn() // somebody else takes its place
		}
		require.NoError(r, r.live[h.worker].Say(h.line[len("at "):]))
	}
	for batch := range len(r.order.Points) {
		r.passed(Step{batch, 3})
	}
	for n := range frozen {
		require.NoError(r, r.live[n].Thaw())
	}
	ended = map[string]string{}
	for range r.order.Points {
		h := r.next("ended ")
		point, outcome, _ := strings.Cut(h.line[len("ended "):], " ")
		ended[point] = outcome
	}
	return ended
}

// recoveryBound is how long after a kill the interrupted steps may take to run again:
// what is left of an attempt's limit of two seconds, 100 ms until the retry, and the
// rest for a busy machine. The leases last ten minutes, so it is the takeover that
// keeps it.
const recoveryBound = 90 * time.Second

// 200 steps of ten workflows, in three worker processes that are killed and frozen in
// turns, at random moments at which they are at work. FENCEKIT_FAULT=long makes it 2,000
// steps and ten times as many faults.
func TestFaultKilledAndFrozenWorkers(t *testing.T) {
	t.Parallel()
	batches, steps, faults := 10, 20, 6
	if long() {
		batches, steps, faults = 20, 100, 60
	}
	r := newRig(t, guarded())
	kills, freezes := r.atRandom(batches, steps, faults)
	got, want := r.books()
	require.Equal(t, want, got)
	require.GreaterOrEqual(t, len(kills), 2)
	interrupted, slowest := r.recoveries(kills)
	t.Logf("%d kills interrupted %d steps, the slowest was at work again after %v; %d freezes; %d runs for %d steps, %d of them takeovers",
		len(kills), interrupted, slowest, freezes, one[int](r, "SELECT count(*) FROM runs"), batches*steps,
		one[int](r, "SELECT count(*) FROM runs WHERE outcome = 'takeover'"))
	require.Positive(t, interrupted, "no kill has met a step")
	require.Less(t, slowest, recoveryBound)
}

// The same without the kit, in small: one freeze is between a step's effect and its
// report, whatever chance does with the others. Effects happen twice.
func TestFaultKilledAndFrozenWorkersControl(t *testing.T) {
	t.Parallel()
	r := newRig(t, order{})
	_, freezes := r.atRandom(4, 10, 2)
	got, want := r.books()
	t.Logf("%+v, should be %+v; %d freezes; %d runs for 40 steps", got, want, freezes, one[int](r, "SELECT count(*) FROM runs"))
	require.GreaterOrEqual(t, got.Balance, want.Balance+Step{0, 2}.amount(), "the control: an effect twice")
}

// atRandom runs batches in three workers, with one freeze between a step's effect and
// its report, and faults at random, kills and freezes in turns. It returns when each
// worker was killed.
func (r *rig) atRandom(batches, steps, faults int) (kills map[int]time.Time, freezes int) {
	r.Helper()
	r.order.Points = map[string]string{"0/2": pointEffect}
	for range 3 {
		r.spawn()
	}
	r.start(batches, steps)
	r.freezeAtPoints()
	kills, freezes = map[int]time.Time{}, 1
	for i := 0; i < faults; {
		n, ok := r.atWork()
		if !ok {
			break
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond) // somewhere in the step
		if i%2 == 1 {
			r.freeze(n)
			freezes++
		} else if at, ok := r.kill(n); ok {
			kills[n] = at
		} else {
			continue
		}
		i++
	}
	r.finish()
	return kills, freezes
}

// atWork waits for a worker that is in the middle of a step; there is none when all
// batches are done.
func (r *rig) atWork() (worker int, ok bool) {
	r.Helper()
	var live []int
	for n := range r.live {
		live = append(live, n)
	}
	require.Eventually(r, func() bool {
		worker = one[int](r, `SELECT coalesce((SELECT worker FROM runs WHERE ended IS NULL AND worker = ANY($1)
			AND began > clock_timestamp() - interval '1 second' ORDER BY random() LIMIT 1), 0)`, live)
		return worker > 0 || r.finished()
	}, 2*time.Minute, 10*time.Millisecond)
	return worker, worker > 0
}

// kill kills a worker, starts another in its place, and returns when it was dead. It
// lets a worker live that is in no step any more: to freeze it is how to be sure.
func (r *rig) kill(n int) (at time.Time, ok bool) {
	r.Helper()
	require.NoError(r, r.live[n].Freeze())
	if !one[bool](r, "SELECT EXISTS (SELECT FROM runs WHERE worker = $1 AND ended IS NULL)", n) {
		require.NoError(r, r.live[n].Thaw())
		return at, false
	}
	require.NoError(r, r.live[n].Kill())
	at = one[time.Time](r, "SELECT clock_timestamp()")
	delete(r.live, n)
	r.spawn()
	return at, true
}

// freeze freezes a worker for longer than an attempt may take.
func (r *rig) freeze(n int) {
	r.Helper()
	require.NoError(r, r.live[n].Freeze())
	time.Sleep(attemptLimit + rand.N(attemptLimit)) // the fault itself
	require.NoError(r, r.live[n].Thaw())
}

// recoveries looks at every step that a kill has interrupted: it ran again, by takeover
// and under a higher token. It returns how many there were, and the longest time from
// the kill to that.
func (r *rig) recoveries(kills map[int]time.Time) (interrupted int, slowest time.Duration) {
	r.Helper()
	for n, at := range kills {
		rows, err := r.db.Query(r.Context(), `
			SELECT dead.token, next.token, next.outcome, next.began
			FROM runs dead CROSS JOIN LATERAL (
				SELECT * FROM runs WHERE batch = dead.batch AND step = dead.step AND id > dead.id ORDER BY id LIMIT 1) next
			WHERE dead.worker = $1 AND dead.ended IS NULL AND next.began > $2`, n, at)
		require.NoError(r, err)
		for rows.Next() {
			var dead, next int64
			var outcome string
			var began time.Time
			require.NoError(r, rows.Scan(&dead, &next, &outcome, &began))
			require.Equal(r, string(primitives.TakenOver), outcome)
			require.Greater(r, next, dead)
			interrupted, slowest = interrupted+1, max(slowest, began.Sub(at))
		}
		require.NoError(r, rows.Err())
	}
	return interrupted, slowest
}
