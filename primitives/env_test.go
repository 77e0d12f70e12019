package primitives

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// env is what a behaviour test gets: a store with a prefix of its own, on one of the
// backends, and the client behind it to look at what is stored.
type env struct {
	*testing.T
	store *Store
	rdb   redis.UniversalClient
	real  bool // a Redis server, not miniredis
}

// backend is a kind of Redis that the behaviour suite runs on. Its client is made
// once and shared; tests keep apart by their prefixes.
type backend struct {
	name   string
	real   bool
	client func(testing.TB) redis.UniversalClient
}

var backends = []backend{
	{"miniredis", false, onMiniredis},
	{"redis", true, onRedis(nil)},
	{"redis resp2", true, onRedis(func(o *redis.Options) { o.Protocol = 2 })},
	{"redis without context timeouts", true, onRedis(func(o *redis.Options) { o.ContextTimeoutEnabled = false })},
}

// behaviour runs a test on every backend.
func behaviour(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(newEnv(t, b.client(t), b.real))
		})
	}
}

var prefixes atomic.Int64

func newEnv(t *testing.T, rdb redis.UniversalClient, realServer bool) *env {
	t.Helper()
	prefix := fmt.Sprintf("t%d-%d", os.Getpid(), prefixes.Add(1))
	store, err := New(rdb, Options{Prefix: prefix})
	require.NoError(t, err)
	return &env{T: t, store: store, rdb: rdb, real: realServer}
}

// realEnv is an env on the shared Redis server.
func realEnv(t *testing.T) *env {
	t.Helper()
	return newEnv(t, onRedis(nil)(t), true)
}

// sharedRedis is one server for all tests that do not break it.
var sharedRedis = sync.OnceValues(func() (*devstack.Redis, error) {
	return devstack.StartRedis(context.Background(), devstack.RedisConfig{})
})

func onRedis(edit func(*redis.Options)) func(testing.TB) redis.UniversalClient {
	return func(t testing.TB) redis.UniversalClient {
		t.Helper()
		r, err := sharedRedis()
		require.NoError(t, err)
		rdb := redis.NewClient(clientOptions(r.Addr(), edit))
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
}

func clientOptions(addr string, edit func(*redis.Options)) *redis.Options {
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
	if edit != nil {
		edit(o)
	}
	return o
}

func onMiniredis(t testing.TB) redis.UniversalClient {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(clientOptions(m.Addr(), nil))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childEnv); ok {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, "child process:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if r, err := sharedRedis(); err == nil {
		_ = r.Stop()
	}
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left when all tests are over:", err)
		code = 1
	}
	os.Exit(code)
}

// leaked finds goroutines that outlive the tests. What waits for go-redis to give up
// on a server that hangs ends by itself, but late.
func leaked() (err error) {
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

func (e *env) ctx() context.Context { return e.Context() }

// guard returns a guard on the store of e.
func (e *env) guard(opts GuardOptions) *Guard {
	e.Helper()
	g, err := NewGuard(e.store, opts)
	require.NoError(e, err)
	return g
}

// key is a key that no other call has made.
func (e *env) key() Key {
	e.Helper()
	k, err := NewKey("test", newNonce())
	require.NoError(e, err)
	return k
}

func (e *env) op() Op { return Op{Key: e.key()} }

// expire ends a lease as its TTL would, without waiting for it.
func (e *env) expire(resource string) {
	e.Helper()
	require.NoError(e, e.rdb.Del(e.ctx(), e.store.names.resource(resource).lease()).Err())
}

// counted is a body that counts its runs and returns memo.
type counted struct {
	runs atomic.Int64
	memo string
}

func (c *counted) body(context.Context) ([]byte, error) {
	c.runs.Add(1)
	return []byte(c.memo), nil
}

// eventually waits for something that no signal announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 2*time.Millisecond, what)
}
