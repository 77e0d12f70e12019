package primitives

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// model is what the protocol says about a few operations on a few resources, in the
// simplest words. Time does not pass in it: leases and records expire as an action.
type model struct {
	leases  map[string]*run // by resource: who holds it
	records map[int]*run    // by operation: who began it
	state   map[int]State   // of its record
	memo    map[int]string  // of a finished record
	taken   map[int]int     // takeovers
	undone  map[int]fence.Value
	newest  map[string]*run // by resource: the newest grant since the last flush
	highest map[string]fence.Value
}

// run is one claim, by a guard or by a record alone.
type run struct {
	claim   *Claim
	op      int
	exec    string
	attempt int
	gone    bool // aborted, or forgotten by an operator: it stores nothing any more
	undoes  map[int]bool
	ended   bool // it notes nothing more to undo
}

func (r *run) leased() bool { return r.claim.Token().Valid() }

func newModel() *model {
	return &model{map[string]*run{}, map[int]*run{}, map[int]State{}, map[int]string{}, map[int]int{}, map[int]fence.Value{}, map[string]*run{}, map[string]fence.Value{}}
}

func (m *model) finished(op int) bool { return m.state[op] == Done || m.state[op] == Failed }

func (m *model) drop(op int) {
	delete(m.records, op)
	delete(m.state, op)
	delete(m.memo, op)
	delete(m.taken, op)
	delete(m.undone, op)
}

// giveUp ends a record without a result. What was undone once is so again.
func (m *model) giveUp(op int) {
	undone, ok := m.undone[op]
	m.drop(op)
	if ok {
		m.undo(op, undone)
	}
}

func (m *model) undo(op int, token fence.Value) {
	m.drop(op)
	m.state[op], m.undone[op] = Undone, token
}

// machine drives the store and the model with the same actions.
type machine struct {
	*model
	e     *env
	guard *Guard
	ops   []Op
	runs  []*run
	memos int
}

func (s *machine) resource(op int) string { return s.ops[op].resource() }

// answered checks a finished or foreign record's answer, which comes before all else.
func (s *machine) answered(t *rapid.T, op int, start Start, err error) bool {
	switch s.state[op] {
	case Done:
		require.NoError(t, err)
		require.Equal(t, Replayed, start.Outcome)
		require.Equal(t, s.memo[op], string(start.Memo))
	case Failed:
		var failed *FailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, s.memo[op], string(failed.Memo))
	default:
		return false
	}
	return true
}

func (s *machine) Begin(t *rapid.T) {
	i := rapid.IntRange(0, len(s.ops)-1).Draw(t, "op")
	exec := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "execution")
	n := rapid.IntRange(1, 3).Draw(t, "attempt")
	start, err := s.guard.Begin(s.e.ctx(), attempt(s.ops[i], exec, 100, n))
	if s.answered(t, i, start, err) {
		return
	}
	holder, before, resource := s.leases[s.resource(i)], s.records[i], s.resource(i)
	want := Begun
	switch {
	case before != nil && !before.leased():
		require.ErrorIs(t, err, ErrBusy, "begun without a lease")
		return
	case holder != nil && (exec == "" || exec != holder.exec || n <= holder.attempt):
		require.Equal(t, holder.claim.Token().Value, busyWith(t, err, "").Token)
		return
	case holder != nil && holder.op != i:
		require.ErrorIs(t, err, ErrKeyChanged)
		return
	case holder != nil:
		want = TakenOver
	case before != nil:
		want = Reclaimed
	}
	require.NoError(t, err)
	require.Equal(t, want, start.Outcome)
	if before != nil {
		s.taken[i]++
	}
	require.Equal(t, s.taken[i], start.Takeovers)
	require.Equal(t, s.undone[i], start.Undone)
	token := start.Claim.Token().Value
	require.Greater(t, token, s.highest[resource], "tokens of a resource only go up")
	s.highest[resource] = token
	s.own(i, &run{claim: start.Claim, op: i, exec: exec, attempt: n})
	s.leases[resource], s.newest[resource] = s.records[i], s.records[i]
}

func (s *machine) own(op int, r *run) {
	s.runs = append(s.runs, r)
	s.records[op], s.state[op] = r, Running
}

func (s *machine) PlainBegin(t *rapid.T) { s.plain(t, false) }
func (s *machine) Reclaim(t *rapid.T)    { s.plain(t, true) }

// plain begins a record without a lease, or reclaims one that is made to look old.
func (s *machine) plain(t *rapid.T, reclaim bool) {
	i := rapid.IntRange(0, len(s.ops)-1).Draw(t, "op")
	before, begin := s.records[i], s.e.store.TryBegin
	if reclaim {
		begin = s.e.store.TryBeginOrReclaim
		if before != nil {
			s.e.age(s.ops[i], time.Hour)
		}
	}
	start, err := begin(s.e.ctx(), s.ops[i], RecordOptions{})
	if s.answered(t, i, start, err) {
		return
	}
	if before != nil && (!reclaim || s.leases[s.resource(i)] == before) {
		busyWith(t, err, "")
		return
	}
	require.NoError(t, err)
	if before != nil {
		s.taken[i]++
	}
	require.Equal(t, s.taken[i], start.Takeovers)
	require.Equal(t, s.undone[i], start.Undone)
	require.False(t, start.Claim.Token().Valid())
	s.own(i, &run{claim: start.Claim, op: i})
}

func (s *machine) pick(t *rapid.T) *run {
	if len(s.runs) == 0 {
		t.Skip("nothing was begun")
	}
	return rapid.SampledFrom(s.runs).Draw(t, "claim")
}

// unlease ends the lease of r, if it has it.
func (s *machine) unlease(r *run) {
	if s.leases[s.resource(r.op)] == r {
		delete(s.leases, s.resource(r.op))
	}
}

// Undo has a claim note that it undoes another operation.
func (s *machine) Undo(t *rapid.T) {
	r := s.pick(t)
	i := rapid.IntRange(0, len(s.ops)-1).Draw(t, "op")
	key, err := r.claim.Undo(s.e.ctx(), s.ops[i])
	switch other := s.records[i]; {
	case !r.leased() || i == r.op || s.resource(i) != s.resource(r.op):
		require.ErrorIs(t, err, ErrInvalid)
	case other != nil && !other.leased() && !s.finished(i):
		require.ErrorIs(t, err, ErrBusy)
	case r.ended:
		require.ErrorIs(t, err, ErrInvalid)
	default:
		require.NoError(t, err)
		require.Equal(t, s.ops[i].Key.After(s.undone[i]), key)
		if r.undoes == nil {
			r.undoes = map[int]bool{}
		}
		r.undoes[i] = true
	}
}

func (s *machine) Complete(t *rapid.T) { s.finish(t, Done, (*Claim).Complete) }
func (s *machine) Fail(t *rapid.T)     { s.finish(t, Failed, (*Claim).Fail) }

func (s *machine) finish(t *rapid.T, state State, end func(*Claim, context.Context, []byte) error) {
	r := s.pick(t)
	s.memos++
	memo := fmt.Sprint("memo ", s.memos)
	err := end(r.claim, s.e.ctx(), []byte(memo))
	before, newest := s.records[r.op], s.newest[s.resource(r.op)]
	overtaken := newest != nil && newest.claim.Token().Value > r.claim.Token().Value
	undoes := r.undoes
	if state == Done {
		r.ended = true
	} else {
		undoes = nil
	}
	if s.state[r.op] == Undone || len(undoes) > 0 && !s.finished(r.op) && overtaken && s.leases[s.resource(r.op)] != r {
		require.ErrorIs(t, err, ErrSuperseded)
		return
	}
	if before != nil && before != r || before == nil && (r.gone || !r.leased() || overtaken) {
		require.ErrorIs(t, err, ErrSuperseded)
		require.ErrorIs(t, err, fence.ErrLeaseLost)
		return
	}
	if !s.finished(r.op) {
		for i := range undoes {
			if other := s.records[i]; other != nil && !other.leased() && !s.finished(i) {
				require.ErrorIs(t, err, ErrBusy)
				return
			}
		}
	}
	require.NoError(t, err)
	s.unlease(r)
	if s.finished(r.op) {
		return // a repeat: the first memo stands
	}
	s.records[r.op], s.state[r.op], s.memo[r.op] = r, state, memo
	for i := range undoes {
		s.undo(i, r.claim.Token().Value)
	}
}

func (s *machine) Abort(t *rapid.T) {
	r := s.pick(t)
	require.NoError(t, r.claim.Abort(s.e.ctx()))
	r.gone = true
	s.unlease(r)
	if s.records[r.op] == r && !s.finished(r.op) {
		s.giveUp(r.op)
	}
}

func (s *machine) Renew(t *rapid.T) {
	r := s.pick(t)
	err := r.claim.renew(s.e.ctx(), "extend", time.Minute)
	if s.leases[s.resource(r.op)] == r {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, fence.ErrLeaseLost)
}

func (s *machine) Suspend(t *rapid.T) {
	r := s.pick(t)
	err := r.claim.Suspend(s.e.ctx(), time.Hour)
	if s.leases[s.resource(r.op)] == r && s.records[r.op] == r && !s.finished(r.op) {
		require.NoError(t, err)
		s.state[r.op] = Pending
		return
	}
	require.ErrorIs(t, err, fence.ErrLeaseLost)
}

func (s *machine) ExpireLease(t *rapid.T) {
	resource := s.resource(rapid.IntRange(0, len(s.ops)-1).Draw(t, "op"))
	s.e.expire(resource)
	delete(s.leases, resource)
}

func (s *machine) ExpireRecord(t *rapid.T) {
	i := rapid.IntRange(0, len(s.ops)-1).Draw(t, "op")
	require.NoError(t, s.e.rdb.Del(s.e.ctx(), s.e.record(s.ops[i])).Err())
	s.drop(i)
}

// Flush loses everything, as FLUSHALL would.
func (s *machine) Flush(t *rapid.T) {
	for i, op := range s.ops {
		n := s.e.store.names.resource(op.resource())
		require.NoError(t, s.e.rdb.Del(s.e.ctx(), n.lease(), n.token(), n.record(op.Key)).Err())
		s.drop(i)
	}
	clear(s.leases)
	clear(s.newest)
}

func (s *machine) Free(t *rapid.T) {
	resource := s.resource(rapid.IntRange(0, len(s.ops)-1).Draw(t, "op"))
	info, err := s.e.store.Inspect(s.e.ctx(), resource)
	require.NoError(t, err)
	holder := s.leases[resource]
	require.Equal(t, holder != nil, info.Held)
	if holder == nil {
		return
	}
	raised, err := s.e.store.Free(s.e.ctx(), info)
	require.NoError(t, err)
	require.Greater(t, raised, s.highest[resource])
	s.highest[resource] = raised
	delete(s.leases, resource)
	// The token that it left behind belongs to nobody.
	ghost := &Claim{}
	ghost.resource = resource
	ghost.granted(raised, time.Time{})
	s.newest[resource] = &run{claim: ghost}
}

func (s *machine) Forget(t *rapid.T) {
	i := rapid.IntRange(0, len(s.ops)-1).Draw(t, "op")
	err := s.e.store.Clear(s.e.ctx(), s.ops[i])
	r := s.records[i]
	if r != nil && !s.finished(i) && (!r.leased() || s.leases[s.resource(i)] == r) {
		require.ErrorIs(t, err, ErrBusy)
		return
	}
	require.NoError(t, err)
	if r != nil {
		r.gone = true
	}
	s.giveUp(i)
}

// Check compares all that can be seen.
func (s *machine) Check(t *rapid.T) { s.compare(t) }

func (s *machine) compare(t require.TestingT) {
	for i, op := range s.ops {
		r := s.e.status(op)
		want := s.state[i]
		if want == "" {
			want = Absent
		}
		require.Equal(t, want, r.State)
		require.Equal(t, s.memo[i], string(r.Memo))
		require.Equal(t, s.undone[i], r.Undone)
		if owner := s.records[i]; owner != nil {
			require.Equal(t, owner.claim.nonce, r.nonce)
			require.Equal(t, s.taken[i], r.Takeovers)
			require.Equal(t, s.leases[op.resource()] == owner && owner.leased(), r.Lease > 0)
		}
		info, err := s.e.store.Inspect(s.e.ctx(), op.resource())
		require.NoError(t, err)
		if holder := s.leases[op.resource()]; holder != nil {
			require.Equal(t, holder.claim.nonce, info.nonce, "one holder at most")
		}
		require.Equal(t, s.leases[op.resource()] != nil, info.Held)
	}
}

// The store answers as the model does, whatever happens in whatever order.
func TestStoreFollowsTheModel(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			rdb := b.client(t)
			rapid.Check(t, func(rt *rapid.T) {
				e := newEnv(t, rdb, b.real)
				s := &machine{model: newModel(), e: e, guard: e.guard(GuardOptions{LeaseTTL: time.Hour})}
				for range 3 {
					op := e.op()
					op.Resource = "shared"
					s.ops = append(s.ops, op)
				}
				s.ops[2].Resource = "apart"
				rt.Repeat(rapid.StateMachineActions(s))
			})
		})
	}
}

// A store that does what the model does not know of is found out.
func TestTheModelCanFail(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	s := &machine{model: newModel(), e: e, guard: e.guard(GuardOptions{}), ops: []Op{e.op()}}
	s.compare(t)
	e.claim(s.guard, s.ops[0])
	require.Panics(t, func() { s.compare(alarm{}) })
}

// alarm is a test that panics when it fails.
type alarm struct{}

func (alarm) Errorf(format string, args ...any) {}
func (alarm) FailNow()                          { panic("failed") }
