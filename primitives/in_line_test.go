package primitives

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A waiter whose place in line was never told to it asks again as a newcomer, and may
// be granted the free lease while its old place stands.
func TestAReleaseDoesNotHandTheLeaseBackToItsOwnForgottenPlace(t *testing.T) {
	behaviour(t, func(e *env) {
		ctx := e.ctx()
		_, err := e.store.TryAcquire(ctx, "r", LeaseOptions{})
		require.NoError(e, err)
		l := &Lease{tenure{store: e.store, names: e.store.names.resource("r"), resource: "r", nonce: newNonce(), ttl: time.Minute}}
		opts, err := LeaseOptions{TTL: time.Minute}.withDefaults()
		require.NoError(e, err)
		require.ErrorIs(e, l.try(ctx, opts, &place{channel: e.store.hub.channel}), ErrBusy)
		e.expire("r")
		require.NoError(e, l.try(ctx, opts, &place{channel: e.store.hub.channel}))

		require.NoError(e, l.Release(ctx))
		next, err := e.store.TryAcquire(ctx, "r", LeaseOptions{})
		require.NoError(e, err, "the lease is free, and nobody is in line")
		require.Greater(e, next.Token().Value, l.Token().Value)
	})
}
