package primitives

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// keysPerCall is how many keys a guarded call leaves until their times are over: the
// record with the memo, for Retention, and the last token, for TokenRetention.
const keysPerCall = 2

// Five thousand operations with a key each leave nothing behind once their
// retentions are over, and have no key without an expiry meanwhile: G04. The token
// that is forgotten with the rest is followed by a higher one all the same: B05.
func TestFinishedOperationsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	const workers, each = 50, 100
	_, e := ownRedis(t)
	e.store.opts.TokenRetention = 3 * time.Second
	g := e.guard(GuardOptions{Retention: 2 * time.Second, LeaseTTL: 20 * time.Second})
	op := Op{Key: e.key(), Resource: "account"}
	before, err := g.Do(e.ctx(), op, (&counted{}).body)
	require.NoError(t, err)
	var failed atomic.Value
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range each {
				if _, err := g.Do(e.ctx(), e.op(), (&counted{memo: "m"}).body); err != nil {
					failed.Store(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		case <-time.After(100 * time.Millisecond):
			e.everyKeyExpires()
		}
	}
	require.Nil(t, failed.Load())
	eventually(t, "all is gone", func() bool { return e.size() == 0 })
	after, err := g.Do(e.ctx(), op, (&counted{}).body)
	require.NoError(t, err)
	require.Equal(t, Begun, after.Outcome, "the memo is forgotten")
	require.Greater(t, after.Token.Value, before.Token.Value)
}

// A guarded call keeps the stated number of keys, each with an expiry, and a lease
// keeps the token and, for a minute, a tombstone.
func TestKeysPerCallAreCounted(t *testing.T) {
	t.Parallel()
	_, e := ownRedis(t)
	_, err := e.guard(GuardOptions{}).Do(e.ctx(), e.op(), (&counted{}).body)
	require.NoError(t, err)
	require.EqualValues(t, keysPerCall, e.size())
	e.everyKeyExpires()
	e.grant("account")
	require.EqualValues(t, keysPerCall+2, e.size())
	require.NoError(t, e.gate().SetIfFresh(e.ctx(), fence.Token{Resource: "account", Value: 1}, "k", nil, 0))
	require.EqualValues(t, keysPerCall+4, e.size())
	e.everyKeyExpires()
}
