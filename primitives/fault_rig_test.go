package primitives

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// rig is an env whose store has a twin behind a proxy: the tests set up and look
// with the one, and break what the other sends.
type rig struct {
	*env
	proxy *devstack.Proxy
	far   *Store
	link  *redis.Client // of far
	limit context.Context
	lossy bool // replies are lost at random
}

func (r *rig) ctx() context.Context { return r.limit }

// faultyClients are the clients that a fault must not matter to.
var faultyClients = []struct {
	name string
	edit func(*redis.Options)
}{
	{"go-redis defaults", func(o *redis.Options) { o.ContextTimeoutEnabled = false }},
	{"context timeouts, no retries", func(o *redis.Options) { o.MaxRetries = -1 }},
}

// newRig is a rig on the shared server, with all scripts loaded there, so that
// what a call sends does not depend on who called before.
func newRig(t *testing.T, edit func(*redis.Options), opts Options) *rig {
	t.Helper()
	server, err := sharedRedis()
	require.NoError(t, err)
	return newRigOn(t, server, edit, opts)
}

func newRigOn(t *testing.T, server *devstack.Redis, edit func(*redis.Options), opts Options) *rig {
	t.Helper()
	rdb := redis.NewClient(clientOptions(server.Addr(), nil))
	t.Cleanup(func() { _ = rdb.Close() })
	e := newEnv(t, rdb, server.Real())
	for _, s := range everyScript(t) {
		require.NoError(t, rdb.ScriptLoad(e.ctx(), s.src).Err())
	}
	proxy := devstack.ProxyForTest(t, server.Addr())
	opts.Prefix = e.store.opts.Prefix
	if opts.Timeout == 0 {
		opts.Timeout = patience
	}
	link := redis.NewClient(clientOptions(proxy.Addr(), edit))
	t.Cleanup(func() { _ = link.Close() })
	far, err := New(link, opts)
	require.NoError(t, err)
	limit, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return &rig{env: e, proxy: proxy, far: far, link: link, limit: limit}
}

// farGuard is a guard on the far store.
func (r *rig) farGuard(opts GuardOptions) *Guard {
	r.Helper()
	g, err := NewGuard(r.far, opts)
	require.NoError(r, err)
	return g
}

// everyScript is each script that exists as a file.
func everyScript(t testing.TB) []script {
	t.Helper()
	files, err := fs.Glob(luaFiles, "lua/*.lua")
	require.NoError(t, err)
	var all []script
	for _, file := range files {
		s, err := loadScript(luaFiles, strings.TrimSuffix(strings.TrimPrefix(file, "lua/"), ".lua"))
		require.NoError(t, err)
		all = append(all, s)
	}
	return all
}

// running picks the runs of some scripts, or of any script.
func running(scripts ...script) func(devstack.Command) bool {
	return func(c devstack.Command) bool {
		if c.Name != "EVALSHA" && c.Name != "EVAL" {
			return false
		}
		for _, s := range scripts {
			if c.Args[0] == s.sha || c.Args[0] == s.src {
				return true
			}
		}
		return len(scripts) == 0
	}
}

// within fails the test if what took longer than a generous bound.
func within(t testing.TB, bound time.Duration, what func()) {
	t.Helper()
	start := time.Now()
	what()
	require.Less(t, time.Since(start), bound)
}
