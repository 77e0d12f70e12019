package primitives

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// turns is a resource that somebody holds, and on which calls are refused.
type turns struct {
	*env
	guard  *Guard
	holder Op
	asked  time.Time // when the first of them was
}

const noise = 5 * time.Second // a call may take as long on a machine that stands still

func newTurns(e *env) *turns {
	e.Helper()
	t := &turns{env: e, guard: e.guard(GuardOptions{LeaseTTL: time.Hour}), holder: Op{Key: e.key(), Resource: "r"}, asked: time.Now()}
	e.claim(t.guard, t.holder)
	return t
}

// refused is the answer to a call that asks for a turn.
func (t *turns) refused(key Key, turn Turn) *BusyError {
	t.Helper()
	_, err := t.guard.Begin(t.ctx(), Op{Key: key, Resource: "r", Turn: turn})
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	return busy
}

// begins is when a turn begins, counted from the same moment for all.
func (t *turns) begins(key Key, turn Turn) time.Duration {
	t.Helper()
	return time.Since(t.asked) + t.refused(key, turn).Turn
}

// N33: whoever is refused is told to come back after the lease, and after all who were
// refused before.
func TestTurnsFollowEachOther(t *testing.T) {
	behaviour(t, func(e *env) {
		const term = 10 * time.Minute
		r := newTurns(e)
		turn := Turn{Term: term, Within: 24 * time.Hour}
		keys := []Key{e.key(), e.key(), e.key(), e.key()}
		for i, key := range keys {
			require.InDelta(e, time.Hour+time.Duration(i)*term, r.begins(key, turn), float64(noise), "caller %d", i)
		}
		for i, key := range keys {
			require.InDelta(e, time.Hour+time.Duration(i)*term, r.begins(key, turn), float64(noise), "caller %d keeps its turn", i)
		}
		require.LessOrEqual(e, e.ttl(e.store.names.resource("r").turns()), time.Hour+4*term+noise)
	})
}

// Many calls of one operation need one turn, and none at all while another call of it is at
// work: they are answered with its result.
func TestCallsOfOneOperationShareATurn(t *testing.T) {
	behaviour(t, func(e *env) {
		r := newTurns(e)
		turn := Turn{Term: 10 * time.Minute, Within: 24 * time.Hour}
		one, other := e.key(), e.key()
		for range 3 {
			require.Zero(e, r.refused(r.holder.Key, turn).Turn)
			require.InDelta(e, time.Hour, r.begins(one, turn), float64(noise))
		}
		require.InDelta(e, time.Hour+turn.Term, r.begins(other, turn), float64(noise))
	})
}

// Who does not ask has no turn, and who waits in line has a place there.
func TestWithoutATurn(t *testing.T) {
	behaviour(t, func(e *env) {
		r := newTurns(e)
		require.Zero(e, r.refused(e.key(), Turn{}).Turn)
		waits := e.guard(GuardOptions{LeaseTTL: time.Hour, Wait: 10 * time.Millisecond})
		_, err := waits.Begin(e.ctx(), Op{Key: e.key(), Resource: "r", Turn: Turn{Term: time.Second, Within: time.Hour}})
		var busy *BusyError
		require.ErrorAs(e, err, &busy)
		require.Zero(e, busy.Turn)
		require.NotContains(e, e.stored(), e.store.names.resource("r").turns())
	})
}

// A turn that would begin too late is none, and keeps nobody else waiting.
func TestATurnThatIsTooLateIsNone(t *testing.T) {
	behaviour(t, func(e *env) {
		r := newTurns(e)
		for range 3 {
			require.Equal(e, 30*time.Minute, r.refused(e.key(), Turn{Term: time.Minute, Within: 30 * time.Minute}).Turn)
		}
		require.NotContains(e, e.stored(), e.store.names.resource("r").turns())
	})
}

// Who may ask in vain comes back before the lease ends: soon at first, and never later than
// it says.
func TestAProbeBeginsBeforeTheLeaseEnds(t *testing.T) {
	behaviour(t, func(e *env) {
		r := newTurns(e)
		turn := Turn{Term: 10 * time.Minute, Within: 24 * time.Hour, Probe: 30 * time.Minute}
		require.InDelta(e, time.Second, r.begins(e.key(), turn), float64(noise))
		require.InDelta(e, time.Second+turn.Term, r.begins(e.key(), turn), float64(noise), "behind the first")
	})
}

// What is over makes room.
func TestTurnsThatAreOverAreForgotten(t *testing.T) {
	behaviour(t, func(e *env) {
		r := newTurns(e)
		turn := Turn{Term: time.Millisecond, Probe: time.Millisecond, Within: 24 * time.Hour}
		for range 3 {
			require.Positive(e, r.refused(e.key(), turn).Turn)
		}
		last := e.key()
		eventually(e, "the turns to be over", func() bool {
			require.Positive(e, r.refused(last, turn).Turn)
			left, err := e.rdb.ZCard(e.ctx(), e.store.names.resource("r").turns()).Result()
			require.NoError(e, err)
			return left == 1
		})
	})
}

// What is not ours under the name of the turns costs their order, and nobody the lease.
func TestForeignTurnsCountAsEmpty(t *testing.T) {
	behaviour(t, func(e *env) {
		r := newTurns(e)
		name := e.store.names.resource("r").turns()
		require.NoError(e, e.rdb.Set(e.ctx(), name, "x", time.Hour).Err())
		turn := Turn{Term: 10 * time.Minute, Within: 24 * time.Hour}
		for range 2 {
			require.InDelta(e, time.Hour, r.begins(e.key(), turn), float64(noise))
		}
		require.Equal(e, "x", e.rdb.Get(e.ctx(), name).Val())
	})
}

func TestTurnsThatAreRefused(t *testing.T) {
	t.Parallel()
	key, err := NewKey("turn", "x")
	require.NoError(t, err)
	for field, turn := range map[string]Turn{
		"Turn.Term":   {Within: time.Hour},
		"Turn.Within": {Term: time.Second},
		"Turn.Probe":  {Term: time.Second, Within: time.Hour, Probe: -1},
	} {
		var bad *OptionError
		require.ErrorAs(t, Op{Key: key, Turn: turn}.check(), &bad)
		require.Equal(t, field, bad.Field)
	}
}
