package primitives

import (
	"context"
	"errors"
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

// backend is a kind of Redis that the behaviour suite runs on. Tests keep apart by
// their prefixes.
type backend struct {
	name   string
	real   bool
	client func(testing.TB) redis.UniversalClient
	// user is the client that the store gets, if it is not the one to look with.
	user func(testing.TB) redis.UniversalClient
}

var backends = []backend{
	{name: "miniredis", client: onMiniredis},
	{name: "redis", real: true, client: onRedis(nil)},
	{name: "redis resp2", real: true, client: onRedis(func(o *redis.Options) { o.Protocol = 2 })},
	{name: "redis without context timeouts", real: true, client: onRedis(func(o *redis.Options) { o.ContextTimeoutEnabled = false })},
	{name: "redis as a limited user", real: true, client: onRedis(nil), user: asLimitedUser},
	{name: "sentinel", real: true, client: onSentinel},
	{name: "cluster", real: true, client: onCluster},
}

// behaviour runs a test on every backend.
func behaviour(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, b.client(t), b.real)
			if b.user != nil {
				e.store = e.storeOn(b.user(t), e.store.opts)
			}
			test(e)
		})
	}
}

// timed is behaviour for a test in which time must pass, on one server and a cluster.
func timed(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	for name, client := range map[string]func(testing.TB) redis.UniversalClient{"redis": onRedis(nil), "cluster": onCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newEnv(t, client(t), true))
		})
	}
}

var prefixes atomic.Int64

// patience is the budget of what a test does not expect to fail: a machine may stall for
// seconds. It is far less than the leases that a call would wait for in vain.
const patience = 30 * time.Second

func newEnv(t *testing.T, rdb redis.UniversalClient, realServer bool) *env {
	t.Helper()
	prefix := fmt.Sprintf("t%d-%d", os.Getpid(), prefixes.Add(1))
	store, err := New(rdb, Options{Prefix: prefix, Timeout: patience})
	require.NoError(t, err)
	return &env{T: t, store: store, rdb: rdb, real: realServer}
}

// realEnv is an env on the shared Redis server.
func realEnv(t *testing.T) *env {
	t.Helper()
	return newEnv(t, onRedis(nil)(t), true)
}

// The servers for all tests that do not break them.
var (
	sharedRedis = devstack.Shared(func(ctx context.Context) (*devstack.Redis, error) {
		return devstack.StartRedis(ctx, devstack.RedisConfig{})
	})
	sharedSentinel = devstack.Shared(func(ctx context.Context) (*devstack.Sentinel, error) {
		return devstack.StartSentinel(ctx, devstack.SentinelConfig{DownAfter: 30 * time.Second})
	})
	sharedCluster = devstack.Shared(startCluster)
)

// startCluster starts one that fails over by no accident of a loaded machine. It forms
// with short timeouts, because a lost handshake is repeated after one.
func startCluster(ctx context.Context) (*devstack.Cluster, error) {
	c, err := devstack.StartCluster(ctx, devstack.ClusterConfig{})
	if err != nil {
		return nil, err
	}
	return c, tolerate(ctx, c, time.Minute)
}

// tolerate is for how long nodes of c may be silent without being replaced.
func tolerate(ctx context.Context, c *devstack.Cluster, silence time.Duration) (err error) {
	for _, node := range c.Nodes() {
		err = errors.Join(err, node.Config(ctx, "cluster-node-timeout", fmt.Sprint(silence.Milliseconds())))
	}
	return err
}

// started skips a test for whose topology the machine has no Redis server.
func started[S any](t testing.TB, get func() (S, error)) S {
	t.Helper()
	s, err := get()
	if errors.Is(err, devstack.ErrNoRedis) && !devstack.RequireReal() {
		t.Skip(err)
	}
	require.NoError(t, err)
	return s
}

func onRedis(edit func(*redis.Options)) func(testing.TB) redis.UniversalClient {
	return func(t testing.TB) redis.UniversalClient {
		t.Helper()
		rdb := redis.NewClient(clientOptions(started(t, sharedRedis).Addr(), edit))
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
}

// redisAddr is where the shared Redis server is, for a proxy to stand before it.
func redisAddr(t testing.TB) string {
	t.Helper()
	r, err := sharedRedis()
	require.NoError(t, err)
	return r.Addr()
}

func onSentinel(t testing.TB) redis.UniversalClient {
	t.Helper()
	rdb := started(t, sharedSentinel).Client(func(o *redis.FailoverOptions) { o.ContextTimeoutEnabled, o.ReadTimeout = true, patience })
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func onCluster(t testing.TB) redis.UniversalClient {
	t.Helper()
	rdb := started(t, sharedCluster).Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled, o.ReadTimeout = true, patience })
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// clientOptions are for a client that repeats nothing because the machine has stalled.
func clientOptions(addr string, edit func(*redis.Options)) *redis.Options {
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: patience}
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

// TestMain also looks for goroutines that the tests have left behind.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childEnv); ok {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, "child process:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	_ = devstack.StopShared()
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

// storeOn is another store, as of another process.
func (e *env) storeOn(client Client, opts Options) *Store {
	e.Helper()
	s, err := New(client, opts)
	require.NoError(e, err)
	return s
}

// other is a store of another process on the same Redis and prefix.
func (e *env) other() *Store {
	e.Helper()
	s := e.storeOn(e.store.client, e.store.opts)
	s.scripts = e.store.scripts
	return s
}

// nodes are the primaries.
func (e *env) nodes() (all []*redis.Client) {
	e.Helper()
	cluster, ok := e.rdb.(*redis.ClusterClient)
	if !ok {
		return []*redis.Client{e.rdb.(*redis.Client)}
	}
	var mu sync.Mutex
	require.NoError(e, cluster.ForEachMaster(e.ctx(), func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, node)
		return nil
	}))
	return all
}

// stored are the names of all keys under the prefix, on every primary.
func (e *env) stored() (names []string) {
	e.Helper()
	for _, node := range e.nodes() {
		pages := node.Scan(e.ctx(), 0, e.store.opts.Prefix+":*", 1000).Iterator()
		for pages.Next(e.ctx()) {
			names = append(names, pages.Val())
		}
		require.NoError(e, pages.Err())
	}
	return names
}

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
	require.Eventually(t, ok, 2*patience, 2*time.Millisecond, what)
}

var errStop = errors.New("stop")
