package primitives

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

func (e *env) inspect(resource string) LeaseInfo {
	e.Helper()
	info, err := e.store.Inspect(e.ctx(), resource)
	require.NoError(e, err)
	return info
}

func (e *env) status(op Op) Record {
	e.Helper()
	r, err := e.store.Status(e.ctx(), op)
	require.NoError(e, err)
	return r
}

func TestInspectShowsHolderTokenAndQueue(t *testing.T) {
	behaviour(t, func(e *env) {
		require.False(e, e.inspect("r").Held)
		require.Zero(e, e.inspect("r").Last)
		require.Empty(e, e.stored(), "looking leaves something behind")
		l := e.hold("r")
		e.dead("r")
		info := e.inspect("r")
		require.True(e, info.Held)
		require.Equal(e, []any{l.Token().Value, l.Token().Value, "holder of r", 1}, []any{info.Token, info.Last, info.Holder, info.Waiters})
		require.Positive(e, info.Remaining)
		require.False(e, info.Since.IsZero())
		e.expire("r")
		info = e.inspect("r")
		require.Equal(e, []any{false, fence.Value(0), l.Token().Value}, []any{info.Held, info.Token, info.Last})
	})
}

// Free takes the lease from its holder, so that it is refused everywhere, and hands it to
// the next in line with a token above the one that it returns.
func TestFreeRaisesTheTokenAndHandsOn(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		w := e.wait(e.store, "r", LeaseOptions{})
		freed, err := e.store.Free(e.ctx(), e.inspect("r"))
		require.NoError(e, err)
		require.Greater(e, freed, holder.Token().Value)
		require.ErrorIs(e, holder.Extend(e.ctx(), 0), fence.ErrLeaseLost)
		next := w.lease(e)
		require.Greater(e, next.Token().Value, freed)

		require.NoError(e, e.gate().Advance(e.ctx(), token("r", freed, "")))
		require.ErrorIs(e, e.gate().Advance(e.ctx(), holder.Token()), fence.ErrStale)
		require.NoError(e, e.gate().Advance(e.ctx(), next.Token()))
	})
}

// C03: an operator's call changes only what the operator saw.
func TestFreeOfAChangedLeaseChangesNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		first := e.hold("r")
		seen := e.inspect("r")
		require.NoError(e, first.Release(e.ctx()))
		_, err := e.store.Free(e.ctx(), seen)
		require.ErrorIs(e, err, ErrChanged)
		second := e.hold("r")
		_, err = e.store.Free(e.ctx(), seen)
		require.ErrorIs(e, err, ErrChanged)
		require.NoError(e, second.Extend(e.ctx(), 0))
		require.Equal(e, second.Token().Value, e.inspect("r").Last)
		_, err = e.store.Free(e.ctx(), LeaseInfo{})
		require.ErrorIs(e, err, ErrNotFound)
	})
}

func TestRaiseOnlyRaises(t *testing.T) {
	behaviour(t, func(e *env) {
		l := e.hold("r")
		last, err := e.store.Raise(e.ctx(), "r", 1)
		require.NoError(e, err)
		require.Equal(e, l.Token().Value, last)
		floor := l.Token().Value + 1<<45
		last, err = e.store.Raise(e.ctx(), "r", floor)
		require.NoError(e, err)
		require.Equal(e, floor, last)
		require.NoError(e, l.Release(e.ctx()))
		require.Greater(e, e.hold("r").Token().Value, floor)
	})
}

// C03: what happened between the look and the call decides.
func TestForgetAndResolveChangeOnlyWhatWasSeen(t *testing.T) {
	behaviour(t, func(e *env) {
		resolve := func(r Record) error { return e.store.Resolve(e.ctx(), r, []byte("operator"), 0) }
		forget := func(r Record) error { return e.store.Forget(e.ctx(), r) }
		for name, c := range map[string]struct {
			meanwhile       func(op Op, c *Claim)
			forget, resolve error
			after           State
		}{
			"nothing":       {func(Op, *Claim) {}, nil, nil, Done},
			"it completed":  {func(_ Op, c *Claim) { require.NoError(e, c.Complete(e.ctx(), []byte("holder"))) }, ErrChanged, ErrChanged, Done},
			"it failed":     {func(_ Op, c *Claim) { require.NoError(e, c.Fail(e.ctx(), nil)) }, ErrChanged, ErrChanged, Failed},
			"it aborted":    {func(_ Op, c *Claim) { require.NoError(e, c.Abort(e.ctx())) }, ErrNotFound, ErrChanged, Absent},
			"was reclaimed": {func(op Op, _ *Claim) { e.claim(e.guard(GuardOptions{}), op) }, ErrChanged, ErrChanged, Running},
			"was forgotten and begun": {func(op Op, _ *Claim) {
				require.NoError(e, e.store.Clear(e.ctx(), op))
				e.claim(e.guard(GuardOptions{}), op)
			}, ErrChanged, ErrChanged, Running},
		} {
			for which, change := range map[string]func(Record) error{"forget": forget, "resolve": resolve} {
				op := Op{Key: e.key(), Resource: name + which}
				c0 := e.claim(e.guard(GuardOptions{}), op)
				e.expire(op.Resource)
				seen := e.status(op)
				require.True(e, seen.Stuck())
				c.meanwhile(op, c0)
				err, want, after := change(seen), c.forget, c.after
				if which == "resolve" {
					want = c.resolve
				} else if name == "nothing" {
					after = Absent
				}
				if want == nil {
					require.NoError(e, err, "%s, %s", name, which)
				} else {
					require.ErrorIs(e, err, want, "%s, %s", name, which)
				}
				now := e.status(op)
				require.Equal(e, after, now.State, "%s, %s", name, which)
				if name != "nothing" {
					require.NotEqual(e, "operator", string(now.Memo))
				}
			}
		}
	})
}

func TestNobodyAtWorkIsDisturbed(t *testing.T) {
	behaviour(t, func(e *env) {
		op := Op{Key: e.key(), Resource: "r", Holder: "at work"}
		claim := e.claim(e.guard(GuardOptions{}), op)
		for _, err := range []error{
			e.store.Forget(e.ctx(), e.status(op)), e.store.Clear(e.ctx(), op),
			e.store.Resolve(e.ctx(), e.status(op), nil, 0),
		} {
			var busy *BusyError
			require.ErrorAs(e, err, &busy)
			require.Equal(e, "at work", busy.Holder)
			require.Positive(e, busy.Remaining)
		}
		require.NoError(e, claim.Complete(e.ctx(), []byte("memo")))
		require.ErrorIs(e, e.store.Forget(e.ctx(), Record{}), ErrNotFound)
		require.ErrorIs(e, e.store.Resolve(e.ctx(), Record{}, nil, 0), ErrNotFound)
		require.NoError(e, e.store.Clear(e.ctx(), e.op()), "an unknown operation")
	})
}

func collect[T any](t testing.TB, seq iter.Seq2[T, error]) (items []T) {
	t.Helper()
	for item, err := range seq {
		require.NoError(t, err)
		items = append(items, item)
	}
	return items
}

// G09: listings walk every primary, see everything once, and tell what is stuck.
func TestListingsSeeEveryPrimary(t *testing.T) {
	behaviour(t, func(e *env) {
		const many = 30
		for i := range many {
			e.hold(fmt.Sprint("lease ", i))
			op := Op{Key: e.key(), Resource: fmt.Sprint("stuck ", i), Holder: "crashed"}
			e.claim(e.guard(GuardOptions{}), op)
			e.expire(op.Resource)
			done := Op{Key: e.key(), Resource: fmt.Sprint("done ", i)}
			require.NoError(e, e.claim(e.guard(GuardOptions{}), done).Complete(e.ctx(), []byte("memo")))
		}
		leases := collect(e, e.store.Leases(e.ctx()))
		require.Len(e, leases, many)
		seen := map[string]bool{}
		for _, l := range leases {
			seen[l.Name()] = true
			require.True(e, l.Held)
			require.Contains(e, l.Holder, "holder of lease")
		}
		require.Len(e, seen, many)
		stuck, done := 0, 0
		for _, r := range collect(e, e.store.Records(e.ctx())) {
			if r.Stuck() {
				stuck++
				require.Equal(e, "crashed", r.Holder)
				require.True(e, r.Token.Valid())
				require.WithinDuration(e, time.Now(), r.Began, time.Hour)
				require.NoError(e, e.store.Forget(e.ctx(), r))
			} else {
				done++
				require.Equal(e, "memo", string(r.Memo))
			}
		}
		require.Equal(e, []int{many, many}, []int{stuck, done})
		require.Len(e, collect(e, e.store.Records(e.ctx())), many)
		if cluster, ok := e.rdb.(*redis.ClusterClient); ok {
			nodes := map[string]bool{}
			for _, l := range leases {
				node, err := cluster.MasterForKey(e.ctx(), l.Name())
				require.NoError(e, err)
				nodes[node.Options().Addr] = true
			}
			require.Len(e, nodes, 3)
		}
	})
}

// One key that is not ours is yielded as an error, and does not hide the others. The
// caller may stop at any item.
func TestListingsGoOnAfterACorruptKey(t *testing.T) {
	behaviour(t, func(e *env) {
		bad := e.store.names.resource("bad").lease()
		require.NoError(e, e.rdb.Set(e.ctx(), bad, "x", time.Hour).Err())
		for i := range 10 {
			e.hold(fmt.Sprint("r", i))
		}
		good, corruptions := 0, 0
		for l, err := range e.store.Leases(e.ctx()) {
			if err != nil {
				corrupt(e, err, bad)
				corruptions++
			} else if l.Held {
				good++
			}
		}
		require.Equal(e, []int{10, 1}, []int{good, corruptions})
		for range e.store.Leases(e.ctx()) {
			break
		}
	})
}
