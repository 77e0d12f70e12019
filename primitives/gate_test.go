package primitives

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

func (e *env) gate() *Gate {
	e.Helper()
	g, err := NewGate(e.store, GateOptions{})
	require.NoError(e, err)
	return g
}

func token(resource string, v fence.Value, owner string) fence.Token {
	return fence.Token{Resource: resource, Value: v, Owner: owner}
}

func TestAGateLetsNoOlderTokenThrough(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.gate()
		require.NoError(e, g.SetIfFresh(e.ctx(), token("r", 41, "a"), "k", []byte("a"), 0))
		require.NoError(e, g.SetIfFresh(e.ctx(), token("r", 42, "b"), "k", []byte("b"), 0))
		for _, stale := range []fence.Token{token("r", 41, "a"), token("r", 1, "b"), token("r", 42, "c"), token("r", 42, "")} {
			var refused *fence.StaleError
			require.ErrorAs(e, g.SetIfFresh(e.ctx(), stale, "k", []byte("stale"), 0), &refused)
			require.Equal(e, []any{"r", stale.Value, fence.Value(42)}, []any{refused.Resource, refused.Token, refused.Current})
			require.ErrorIs(e, g.Advance(e.ctx(), stale), fence.ErrStale)
		}
		value, seen, err := g.Get(e.ctx(), "r", "k")
		require.NoError(e, err)
		require.Equal(e, "b", string(value))
		require.Equal(e, token("r", 42, "b"), seen)
	})
}

// The same write may be repeated: the same owner passes with an equal token.
func TestAGatePassesARepeat(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.gate()
		for _, value := range []string{"one", "two", ""} {
			require.NoError(e, g.SetIfFresh(e.ctx(), token("r", 42, "a"), "k", []byte(value), 0))
			got, _, err := g.Get(e.ctx(), "r", "k")
			require.NoError(e, err)
			require.Equal(e, value, string(got))
		}
	})
}

// Large tokens differ in their last digit: nothing rounds them.
func TestAGateComparesWholeTokens(t *testing.T) {
	behaviour(t, func(e *env) {
		const top = fence.Value(1<<63 - 1)
		g := e.gate()
		require.NoError(e, g.Advance(e.ctx(), token("r", top-1, "a")))
		require.ErrorIs(e, g.Advance(e.ctx(), token("r", top-2, "a")), fence.ErrStale)
		require.NoError(e, g.Advance(e.ctx(), token("r", top, "a")))
		require.ErrorIs(e, g.Advance(e.ctx(), token("r", top-1, "a")), fence.ErrStale)
		seen, err := g.Current(e.ctx(), "r")
		require.NoError(e, err)
		require.Equal(e, top, seen.Value)
	})
}

func TestAdvanceClosesTheGateForOlderHolders(t *testing.T) {
	behaviour(t, func(e *env) {
		g, old := e.gate(), e.hold("r")
		e.expire("r")
		require.NoError(e, g.Advance(e.ctx(), e.hold("r").Token()))
		require.ErrorIs(e, g.SetIfFresh(e.ctx(), old.Token(), "k", nil, 0), fence.ErrStale)
		_, _, err := g.Get(e.ctx(), "r", "k")
		require.ErrorIs(e, err, ErrNotFound)
	})
}

func TestAGateThatNothingPassedIsNotFound(t *testing.T) {
	behaviour(t, func(e *env) {
		_, err := e.gate().Current(e.ctx(), "r")
		require.ErrorIs(e, err, ErrNotFound)
		_, _, err = e.gate().Get(e.ctx(), "r", "k")
		require.ErrorIs(e, err, ErrNotFound)
		require.Empty(e, e.stored())
	})
}

// The fence outlives every value that it let through, or a stale holder could write the
// value again when the fence is gone.
func TestTheFenceOutlivesItsValues(t *testing.T) {
	behaviour(t, func(e *env) {
		n := e.store.names.resource("r")
		left := func(name string) time.Duration { return e.rdb.PTTL(e.ctx(), name).Val() }
		g, err := NewGate(e.store, GateOptions{Retention: time.Hour})
		require.NoError(e, err)
		for i, ttl := range []time.Duration{time.Minute, 0, 48 * time.Hour, time.Minute} {
			require.NoError(e, g.SetIfFresh(e.ctx(), token("r", 1, ""), fmt.Sprint(i), nil, ttl))
			for j := range i + 1 {
				require.Positive(e, left(n.gateValue(fmt.Sprint(j))))
				require.GreaterOrEqual(e, left(n.gate())+time.Second, left(n.gateValue(fmt.Sprint(j))))
			}
		}
		require.NoError(e, g.Advance(e.ctx(), token("r", 2, "")))
		require.Greater(e, left(n.gate()), 47*time.Hour, "an advance cut the fence")
	})
}

var foreignGates = []plant{
	{"a string", text("x")}, {"a list", listed}, {"no token", hash("token", "")}, {"a short token", hash("token", "12")},
	{"letters", hash("token", "00000000000000000ab")},
}

func TestAForeignGateIsNamedAndLetsNothingThrough(t *testing.T) {
	foreign(t, foreignGates, func(e *env, resource string, put func(string)) {
		g, n := e.gate(), e.store.names.resource(resource)
		put(n.gate())
		corrupt(e, g.SetIfFresh(e.ctx(), token(resource, 1<<60, "a"), "k", nil, 0), n.gate())
		corrupt(e, g.Advance(e.ctx(), token(resource, 1<<60, "a")), n.gate())
		_, err := g.Current(e.ctx(), resource)
		corrupt(e, err, n.gate())
		require.Zero(e, e.rdb.Exists(e.ctx(), n.gateValue("k")).Val())
	})
}

func TestAForeignGateValueIsNamed(t *testing.T) {
	behaviour(t, func(e *env) {
		g, name := e.gate(), e.store.names.resource("r").gateValue("k")
		require.NoError(e, g.Advance(e.ctx(), token("r", 1, "")))
		require.NoError(e, listed(e, name))
		_, _, err := g.Get(e.ctx(), "r", "k")
		corrupt(e, err, name)
	})
}

// Whoever writes at once in whatever order: the highest token's value stands.
func TestTheHighestTokenWinsARace(t *testing.T) {
	behaviour(t, func(e *env) {
		const many = 40
		g := e.gate()
		var wg sync.WaitGroup
		for _, i := range rand.Perm(many) {
			wg.Go(func() {
				err := g.SetIfFresh(e.ctx(), token("r", fence.Value(i+1), ""), "k", []byte(fmt.Sprint(i+1)), 0)
				if err != nil {
					require.ErrorIs(e, err, fence.ErrStale)
				}
			})
		}
		wg.Wait()
		value, seen, err := g.Get(e.ctx(), "r", "k")
		require.NoError(e, err)
		require.Equal(e, fmt.Sprint(many), string(value))
		require.EqualValues(e, many, seen.Value)
	})
}
