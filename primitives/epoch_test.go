package primitives

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// memoryEpochs is an epoch store that outlives Redis, and fails while err is set.
type memoryEpochs struct {
	mu    sync.Mutex
	ids   map[string]int64
	calls int
	err   error
}

func (m *memoryEpochs) Epoch(_ context.Context, id string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.err != nil {
		return 0, m.err
	}
	if _, ok := m.ids[id]; !ok {
		m.ids[id] = int64(len(m.ids) + 1)
	}
	return m.ids[id], nil
}

// strictEnv is an env on a server of its own, with strict tokens unless epochs is nil.
func strictEnv(t *testing.T, server *devstack.Redis, epochs EpochStore) *env {
	t.Helper()
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	e := newEnv(t, rdb, true)
	store, err := New(rdb, Options{Prefix: "strict", Epochs: epochs, Timeout: patience})
	require.NoError(t, err)
	e.store = store
	return e
}

// A server that starts without its data and with a clock that is behind: strict tokens
// rise all the same. The control without epochs goes back (B04).
func TestStrictTokensRiseAlthoughDataAndClockAreLost(t *testing.T) {
	t.Parallel()
	server, epochs := devstack.RedisForTest(t, devstack.RedisConfig{Own: true}), &memoryEpochs{ids: map[string]int64{}}
	strict, plain := strictEnv(t, server, epochs), strictEnv(t, server, nil)
	before, control := strict.grant("strict"), plain.grant("plain")
	require.EqualValues(t, 1, before.Value.Epoch())
	require.Zero(t, control.Value.Epoch())
	require.Equal(t, 1, epochs.calls)

	require.NoError(t, server.Restart(strict.ctx()))
	strict.offClock(-3 * time.Hour)
	plain.offClock(-3 * time.Hour)
	after := strict.grant("strict")
	require.Greater(t, after.Value, before.Value)
	require.EqualValues(t, 2, after.Value.Epoch())
	require.Less(t, plain.grant("plain").Value, control.Value, "the control goes back")
	strict.grant("strict")
	require.Equal(t, 2, epochs.calls, "an id is asked for once")
}

// A split brain: a replica is promoted while the old primary still answers. Whatever the
// old one grants is lower than anything that the new one does, whatever their clocks say.
func TestAnOldPrimaryGrantsLowerStrictTokens(t *testing.T) {
	t.Parallel()
	own := devstack.RedisConfig{Own: true}
	primary, replica, epochs := devstack.RedisForTest(t, own), devstack.RedisForTest(t, own), &memoryEpochs{ids: map[string]int64{}}
	old, promoted := strictEnv(t, primary, epochs), strictEnv(t, replica, epochs)
	old.grant("account")
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	require.NoError(t, promoted.rdb.(*redis.Client).ReplicaOf(old.ctx(), host, port).Err())
	eventually(t, "the replica follows", func() bool { return promoted.rdb.DBSize(old.ctx()).Val() > 0 })
	require.NoError(t, promoted.rdb.(*redis.Client).ReplicaOf(old.ctx(), "NO", "ONE").Err())

	promoted.offClock(-3 * time.Hour)
	newer := promoted.grant("account")
	require.Less(t, old.grant("account").Value, newer.Value)
	old.offClock(time.Hour)
	require.Less(t, old.grant("account").Value, newer.Value)
}

// While the epoch store fails nothing is granted, in no way; what was granted before can
// be ended. Then it goes on.
func TestNothingIsGrantedWithoutAnEpoch(t *testing.T) {
	t.Parallel()
	server, epochs := devstack.RedisForTest(t, devstack.RedisConfig{Own: true}), &memoryEpochs{ids: map[string]int64{}, err: errors.New("postgres is away")}
	e := strictEnv(t, server, epochs)
	body := &counted{}
	_, err := e.store.TryAcquire(e.ctx(), "account", LeaseOptions{})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, epochs.err)
	_, err = e.guard(GuardOptions{}).Do(e.ctx(), e.op(), body.body)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Zero(t, body.runs.Load())
	for _, name := range e.stored() {
		require.Contains(t, name, "}:released:", "nothing is left behind but tombstones")
	}
	for _, wrong := range []int64{0, -1, 8192} {
		bad := strictEnv(t, server, constantEpoch(wrong))
		_, err := bad.store.TryAcquire(e.ctx(), "account", LeaseOptions{})
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, fmt.Sprint(wrong))
	}

	epochs.err = nil
	held, err := e.store.TryAcquire(e.ctx(), "account", LeaseOptions{})
	require.NoError(t, err)
	info := e.inspect("account")
	require.NoError(t, held.Release(e.ctx()))
	require.True(t, info.Token.Valid())
}

type constantEpoch int64

func (c constantEpoch) Epoch(context.Context, string) (int64, error) { return int64(c), nil }

// A holder that does not know its server's epoch hands nothing on, and takes nothing
// away: who waits looks again and has the epoch registered.
func TestAHandOnNeedsAnEpochToo(t *testing.T) {
	t.Parallel()
	server, epochs := devstack.RedisForTest(t, devstack.RedisConfig{Own: true}), &memoryEpochs{ids: map[string]int64{}}
	e := strictEnv(t, server, epochs)
	ignorant := strictEnv(t, server, epochs) // it has granted nothing here
	holder := e.hold("account")
	w := e.wait(e.store, "account", LeaseOptions{})
	require.NoError(t, ignorant.store.newLeaseOf(holder).Release(e.ctx()))
	l := w.lease(t)
	require.Greater(t, l.Token().Value, holder.Token().Value)

	freed, err := strictEnv(t, server, epochs).store.Free(e.ctx(), e.inspect("account"))
	require.NoError(t, err)
	require.EqualValues(t, 1, freed.Epoch())
	require.Greater(t, freed, l.Token().Value)
}

// newLeaseOf is the lease of another store, as its twin in another process has it.
func (s *Store) newLeaseOf(l *Lease) *Lease {
	twin := s.newLease(l.resource, LeaseOptions{TTL: l.ttl})
	twin.nonce = l.nonce
	twin.granted(l.Token().Value, time.Now())
	return twin
}

// Epochs that are switched on later only raise tokens.
func TestSwitchingEpochsOnRaisesTokens(t *testing.T) {
	t.Parallel()
	server, epochs := devstack.RedisForTest(t, devstack.RedisConfig{Own: true}), &memoryEpochs{ids: map[string]int64{}}
	plain, strict := strictEnv(t, server, nil), strictEnv(t, server, epochs)
	var last fence.Value
	for _, e := range []*env{plain, strict, plain, strict} {
		next := e.grant("account").Value
		require.Greater(t, next, last)
		last = next
	}
}
