package primitives

import (
	"time"

	"github.com/stretchr/testify/require"
)

// feature is one thing that the kit can do in Redis.
type feature struct {
	name string
	use  func()
}

// features are all things that the kit does in Redis, each on resources, keys and
// holders that contain word. Used in order, they leave every kind of key behind.
func features(e *env, word string) []feature {
	u := &user{env: e, word: word, guard: e.guard(GuardOptions{LeaseTTL: 20 * time.Second})}
	return []feature{
		{"acquire and extend", u.extended},
		{"wait and be handed the lease", u.handed},
		{"complete", u.completed},
		{"fail for good", u.failed},
		{"abort", u.aborted},
		{"suspend", u.suspended},
		{"interrupted", u.interrupted},
		{"record without a lease", u.recorded},
		{"gate", u.gated},
		{"operator", u.operated},
		{"wait for a record", u.waited},
		{"be refused, and told when to come back", u.turned},
	}
}

type user struct {
	*env
	word  string
	guard *Guard
}

func (u *user) resource(what string) string { return what + " of " + u.word }

func (u *user) lease(what string) *Lease {
	l, err := u.store.TryAcquire(u.ctx(), u.resource(what), LeaseOptions{TTL: 20 * time.Second, Holder: u.word})
	require.NoError(u, err)
	return l
}

func (u *user) op(what string) Op {
	key, err := NewKey("features", []string{what, u.word})
	require.NoError(u, err)
	fp, err := NewFingerprint(u.word)
	require.NoError(u, err)
	return Op{Key: key, Resource: u.resource(what), Fingerprint: fp, Holder: u.word,
		Execution: Execution{ID: u.word, Attempt: 1}, Name: u.word}
}

func (u *user) claim(what string) *Claim {
	start, err := u.guard.Begin(u.ctx(), u.op(what))
	require.NoError(u, err)
	return start.Claim
}

func (u *user) extended() {
	l := u.lease("lease")
	require.NoError(u, l.Extend(u.ctx(), time.Minute))
}

func (u *user) handed() {
	first := u.lease("queue")
	got := u.waiter("queue")
	require.NoError(u, first.Release(u.ctx()))
	l := <-got
	require.Greater(u, l.Token().Value, first.Token().Value)
	require.NoError(u, l.Release(u.ctx()))
	u.lease("queue") // and somebody stays in the queue
	u.queued("queue")
}

// waiter waits in the queue, and sends the lease that it gets.
func (u *user) waiter(what string) <-chan *Lease {
	got := make(chan *Lease, 1)
	go func() {
		l, err := u.store.Acquire(u.ctx(), u.resource(what), LeaseOptions{TTL: 20 * time.Second, Holder: u.word})
		if err == nil {
			got <- l
		}
		close(got)
	}()
	eventually(u, "somebody waits", func() bool { return u.waiters(u.resource(what)) == 1 })
	return got
}

// queued leaves a waiter in the queue whose process is gone.
func (u *user) queued(what string) {
	opts := LeaseOptions{TTL: 20 * time.Second, Holder: u.word}
	dead := u.store.newLease(u.resource(what), opts)
	err := dead.try(u.ctx(), opts, &place{channel: u.store.names.wake(newNonce())})
	require.ErrorIs(u, err, ErrBusy)
}

func (u *user) turned() {
	u.lease("turn")
	op := u.op("turn")
	op.Turn = Turn{Term: time.Second, Within: time.Hour}
	_, err := u.guard.Begin(u.ctx(), op)
	var busy *BusyError
	require.ErrorAs(u, err, &busy)
	require.Positive(u, busy.Turn)
}

func (u *user) completed() {
	require.NoError(u, u.claim("done").Complete(u.ctx(), []byte(u.word)))
	start, err := u.guard.Begin(u.ctx(), u.op("done"))
	require.NoError(u, err)
	require.Equal(u, Replayed, start.Outcome)
}

func (u *user) failed() {
	require.NoError(u, u.claim("failed").Fail(u.ctx(), []byte(u.word)))
	_, err := u.store.Result(u.ctx(), u.op("failed"))
	require.ErrorIs(u, err, ErrFailed)
}

func (u *user) aborted() { require.NoError(u, u.claim("aborted").Abort(u.ctx())) }

func (u *user) suspended() { require.NoError(u, u.claim("suspended").Suspend(u.ctx(), time.Minute)) }

func (u *user) interrupted() {
	u.claim("interrupted")
	u.expire(u.resource("interrupted"))
}

func (u *user) recorded() {
	for _, what := range []string{"recorded", "stays"} {
		start, err := u.store.TryBeginOrReclaim(u.ctx(), u.op(what), RecordOptions{})
		require.NoError(u, err)
		if what == "recorded" {
			require.NoError(u, start.Claim.Complete(u.ctx(), []byte(u.word)))
		}
	}
}

func (u *user) gated() {
	gate, err := NewGate(u.store, GateOptions{})
	require.NoError(u, err)
	t := u.lease("gate").Token()
	require.NoError(u, gate.SetIfFresh(u.ctx(), t, u.word, []byte(u.word), 0))
	require.NoError(u, gate.Advance(u.ctx(), t))
	_, _, err = gate.Get(u.ctx(), u.resource("gate"), u.word)
	require.NoError(u, err)
}

func (u *user) operated() {
	u.lease("operator")
	info, err := u.store.Inspect(u.ctx(), u.resource("operator"))
	require.NoError(u, err)
	freed, err := u.store.Free(u.ctx(), info)
	require.NoError(u, err)
	_, err = u.store.Raise(u.ctx(), u.resource("raised"), freed+1)
	require.NoError(u, err)
	rec, err := u.store.Status(u.ctx(), u.op("interrupted"))
	require.NoError(u, err)
	require.NoError(u, u.store.Resolve(u.ctx(), rec, []byte(u.word), 0))
	require.NoError(u, u.store.Clear(u.ctx(), u.op("done")))
}

func (u *user) waited() {
	guard := u.env.guard(GuardOptions{LeaseTTL: 10 * time.Minute, Wait: 10 * time.Minute})
	first := u.claim("record")
	got := make(chan Start, 1)
	go func() {
		start, _ := guard.Begin(u.ctx(), u.op("record"))
		got <- start
	}()
	eventually(u, "somebody waits", func() bool { return u.waiters(u.resource("record")) == 1 })
	require.NoError(u, first.Complete(u.ctx(), []byte(u.word)))
	require.Equal(u, Replayed, (<-got).Outcome)
	u.claim("unfinished") // and somebody stays who waits for a record
	op := u.op("unfinished")
	_, err := guard.claim(op).try(u.ctx(), op, &place{channel: u.store.names.wake(newNonce())})
	require.ErrorIs(u, err, ErrBusy)
}

// waiters is how many stand in the queue of a resource.
func (e *env) waiters(resource string) int {
	e.Helper()
	info, err := e.store.Inspect(e.ctx(), resource)
	require.NoError(e, err)
	return info.Waiters
}

// hold takes a lease that the test needs.
func (e *env) hold(resource string) *Lease {
	e.Helper()
	l, err := e.store.TryAcquire(e.ctx(), resource, LeaseOptions{TTL: 10 * time.Minute, Holder: "holder of " + resource})
	require.NoError(e, err)
	return l
}
