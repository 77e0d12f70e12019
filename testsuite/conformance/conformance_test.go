package conformance_test

import (
	"context"
	"crypto/rand"
	"runtime"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/testsuite/conformance"
)

// open makes a reference store on a prefix that no other run has had, and leaves nothing
// behind there.
func open(t testing.TB, rdb *redis.Client) conformance.Store {
	t.Helper()
	prefix := "conformance-" + rand.Text()
	t.Cleanup(func() { require.NoError(t, wipe(context.WithoutCancel(t.Context()), rdb, prefix)) })
	store, err := primitives.New(rdb, primitives.Options{Prefix: prefix})
	require.NoError(t, err)
	s, err := conformance.Primitives(store, func(ctx context.Context, key string) error { return rdb.Del(ctx, key).Err() },
		func(ctx context.Context) error { return wipe(ctx, rdb, prefix) })
	require.NoError(t, err)
	return s
}

func wipe(ctx context.Context, rdb *redis.Client, prefix string) error {
	keys := rdb.Scan(ctx, 0, prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := rdb.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func memory(t testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestPrimitivesInMemory(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t testing.TB) conformance.Store { return open(t, memory(t)) })
}

func TestPrimitivesOnRedis(t *testing.T) {
	t.Parallel()
	rdb := devstack.RedisForTest(t).Client()
	conformance.Run(t, func(t testing.TB) conformance.Store { return open(t, rdb) })
}

// A second run on one server finds nothing of the first, and neither leaves anything.
func TestRunsLeaveNothing(t *testing.T) {
	t.Parallel()
	rdb := memory(t)
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, rdb)
			st, err := s.Begin(bg, conformance.Op{Key: "k"})
			require.NoError(t, err)
			require.Equal(t, primitives.Begun, st.Outcome)
			require.NoError(t, s.Complete(bg, st.Claim, []byte("result")))
		})
		require.Empty(t, rdb.Keys(t.Context(), "conformance-*").Val())
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, c := range conformance.Cases() {
		require.False(t, names[c.Name], c.Name)
		names[c.Name] = true
	}
}

// fakeT is a test that may fail.
type fakeT struct{ failed bool }

func (f *fakeT) Helper()               {}
func (f *fakeT) Errorf(string, ...any) { f.failed = true }
func (f *fakeT) FailNow()              { runtime.Goexit() }

// failures are the cases that a store fails.
func failures(open func() conformance.Store) (names []string) {
	for _, c := range conformance.Cases() {
		f := &fakeT{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(f, open())
		}()
		<-done
		if f.failed {
			names = append(names, c.Name)
		}
	}
	return names
}

// broken is the reference with one rule broken.
type broken struct {
	conformance.Store

	complete func(conformance.Store, conformance.Claim, []byte) error
	abort    func(conformance.Store, conformance.Claim) error
	begin    func(conformance.Store, conformance.Op) (conformance.Start, error)
	acquire  func(conformance.Store, string) (conformance.Lease, error)
	extend   func(conformance.Store, conformance.Lease) error
	set      func(conformance.Store, fence.Token, string, []byte) error
}

func (b *broken) Begin(ctx context.Context, op conformance.Op) (conformance.Start, error) {
	if b.begin != nil {
		return b.begin(b.Store, op)
	}
	return b.Store.Begin(ctx, op)
}

func (b *broken) Complete(ctx context.Context, c conformance.Claim, memo []byte) error {
	if b.complete != nil {
		return b.complete(b.Store, c, memo)
	}
	return b.Store.Complete(ctx, c, memo)
}

func (b *broken) Abort(ctx context.Context, c conformance.Claim) error {
	if b.abort != nil {
		return b.abort(b.Store, c)
	}
	return b.Store.Abort(ctx, c)
}

func (b *broken) Acquire(ctx context.Context, resource string) (conformance.Lease, error) {
	if b.acquire != nil {
		return b.acquire(b.Store, resource)
	}
	return b.Store.Acquire(ctx, resource)
}

func (b *broken) Extend(ctx context.Context, l conformance.Lease) error {
	if b.extend != nil {
		return b.extend(b.Store, l)
	}
	return b.Store.Extend(ctx, unwrapped(l))
}

func (b *broken) Release(ctx context.Context, l conformance.Lease) error {
	return b.Store.Release(ctx, unwrapped(l))
}

func unwrapped(l conformance.Lease) conformance.Lease {
	if f, ok := l.(fixed); ok {
		return f.Lease
	}
	return l
}

func (b *broken) SetIfFresh(ctx context.Context, t fence.Token, key string, value []byte) error {
	if b.set != nil {
		return b.set(b.Store, t, key, value)
	}
	return b.Store.SetIfFresh(ctx, t, key, value)
}

// fixed is a lease whose token never changes.
type fixed struct{ conformance.Lease }

func (f fixed) Token() fence.Token {
	t := f.Lease.Token()
	t.Value = 1
	return t
}

var bg = context.Background()

func TestBrokenStoresFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store broken
		fails []string
	}{
		"nothing is broken": {},
		"tokens stay the same": {broken{acquire: func(s conformance.Store, r string) (conformance.Lease, error) {
			l, err := s.Acquire(bg, r)
			if err != nil {
				return nil, err
			}
			return fixed{l}, nil
		}},
			[]string{"tokens rise after release and after expiry"}},
		"everybody takes over": {broken{begin: func(s conformance.Store, op conformance.Op) (conformance.Start, error) {
			_ = s.Expire(bg, "r")
			return s.Begin(bg, op)
		}}, []string{"operations of one resource exclude each other", "an operation and a lease of its resource exclude each other"}},
		"extend knows no loss": {broken{extend: func(conformance.Store, conformance.Lease) error { return nil }},
			[]string{"an expired lease is not revived", "a lease that was taken is not extended"}},
		"memos are lost": {broken{complete: func(s conformance.Store, c conformance.Claim, _ []byte) error { return s.Complete(bg, c, nil) }},
			[]string{"a finished operation is replayed to everybody", "a finished record is replayed"}},
		"superseded results pass": {broken{complete: func(s conformance.Store, c conformance.Claim, memo []byte) error {
			_ = s.Complete(bg, c, memo)
			return nil
		}}, []string{"a superseded result is not stored"}},
		"abort does nothing": {broken{abort: func(conformance.Store, conformance.Claim) error { return nil }},
			[]string{"an aborted operation begins anew", "an aborted record begins anew"}},
		"input is not looked at": {broken{begin: func(s conformance.Store, op conformance.Op) (conformance.Start, error) {
			op.Input = ""
			return s.Begin(bg, op)
		}}, []string{"other input is a mismatch, done or running"}},
		"attempts are not told apart": {broken{begin: func(s conformance.Store, op conformance.Op) (conformance.Start, error) {
			op.Attempt = 1
			return s.Begin(bg, op)
		}}, []string{"a newer attempt takes over with a higher token"}},
		"the gate is open": {broken{set: func(s conformance.Store, t fence.Token, k string, v []byte) error {
			t.Value = 1 << 60
			t.Owner = "everybody"
			return s.SetIfFresh(bg, t, k, v)
		}}, []string{"a gate refuses an older token, and keeps the newer value", "a gate tells equal tokens of two owners apart"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := memory(t)
			failed := failures(func() conformance.Store {
				b := c.store
				b.Store = open(t, rdb)
				return &b
			})
			if len(c.fails) == 0 {
				require.Empty(t, failed)
			}
			for _, want := range c.fails {
				require.Contains(t, failed, want)
			}
		})
	}
}
