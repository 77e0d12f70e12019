package primitives

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// ahead gives the lease of a resource a token from a clock far ahead of this one, and
// evicts what Redis remembers of the last token.
func (e *env) ahead(resource string) fence.Value {
	e.Helper()
	n, token := e.store.names.resource(resource), fence.Value(1)<<55
	require.NoError(e, e.rdb.HSet(e.ctx(), n.lease(), "token", padded(token)).Err())
	require.NoError(e, e.rdb.Del(e.ctx(), n.token()).Err())
	return token
}

// B04: who takes a lease from its holder gets a token above the holder's, also when
// Redis has forgotten the last token and its clock is behind: the lease remembers.
func TestTheTokenOfALeaseIsAFloorForTheNext(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		e.claim(g, attempt(op, "execution", 1, 1))
		old := e.ahead(op.resource())
		taken := e.claim(g, attempt(op, "execution", 2, 1))
		require.Greater(e, taken.Token().Value, old, "takeover")

		holder := e.hold("r")
		w := e.wait(e.store, "r", LeaseOptions{})
		old = e.ahead("r")
		require.NoError(e, holder.Release(e.ctx()))
		require.Greater(e, w.lease(e).Token().Value, old, "hand-on")

		e.hold("s")
		old = e.ahead("s")
		freed, err := e.store.Free(e.ctx(), e.inspect("s"))
		require.NoError(e, err)
		require.Greater(e, freed, old, "an operator")
	})
}

// A holder that wakes up after an operator has settled its outcome is not told that its
// own result was stored.
func TestAResolvedOutcomeIsNotTheHolders(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{AtMostOnce: true}), e.op()
		zombie := e.claim(g, op)
		e.expire(op.resource())
		require.NoError(e, e.store.Resolve(e.ctx(), e.status(op), []byte("operator"), 0))
		require.ErrorIs(e, zombie.Complete(e.ctx(), []byte("zombie")), ErrSuperseded)
		memo, err := e.store.Result(e.ctx(), op)
		require.NoError(e, err)
		require.Equal(e, "operator", string(memo))
	})
}
