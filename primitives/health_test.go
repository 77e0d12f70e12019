package primitives

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// Check passes wherever the suite passes, and what it leaves behind expires.
func TestCheckPasses(t *testing.T) {
	behaviour(t, func(e *env) {
		_, err := e.store.Check(e.ctx())
		require.NoError(e, err)
		require.NotEmpty(e, e.stored())
		for _, name := range e.stored() {
			require.False(e, strings.HasSuffix(name, ":lease"), "a lease is left")
			require.NotEqual(e, time.Duration(-1), e.rdb.PTTL(e.ctx(), name).Val(), name)
		}
	})
}

// F15: whatever permission is missing, Check says so and names it.
func TestCheckNamesTheMissingPermission(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	admin := server.Client()
	check := func(t *testing.T, rules string) error {
		require.NoError(t, setUser(t.Context(), admin, "limited", rules))
		require.NoError(t, admin.ScriptFlush(t.Context()).Err()) // or EVAL is not needed
		rdb := server.Client(as("limited"))
		defer rdb.Close() //nolint:errcheck // a test's
		s, err := New(rdb, Options{Prefix: "t1"})
		require.NoError(t, err)
		_, err = s.Check(t.Context())
		return err
	}
	denied := func(t *testing.T, err error, what string) {
		var refusal *DeniedError
		require.ErrorAs(t, err, &refusal)
		require.ErrorIs(t, err, ErrDenied)
		require.NotErrorIs(t, err, ErrUnavailable)
		require.Contains(t, strings.ToLower(err.Error()), what)
	}
	all := limitedKeys + " " + limitedChannels + " -@all " + workerCommands
	require.NoError(t, check(t, all))
	for _, command := range strings.Fields(workerCommands) {
		if command == "+ping" {
			continue // go-redis sends it on a silent subscription
		}
		denied(t, check(t, all+" -"+command[1:]), command[1:])
	}
	denied(t, check(t, "~other:* "+limitedChannels+" -@all "+workerCommands), "key")
	denied(t, check(t, limitedKeys+" resetchannels -@all "+workerCommands), "channel")
	denied(t, check(t, "off "+all), "wrongpass")
}

// F15: a user without rights is told at the first call, by an error that is none of the
// retryable ones, and at once.
func TestADenialIsNeitherBusyNorUnavailable(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e := newEnv(t, server.Client(), true)
	require.NoError(t, setUser(e.ctx(), server.Client(), "nobody", "~* &* -@all +ping"))
	for name, rdb := range map[string]*redis.Client{
		"no rights": server.Client(as("nobody")),
		"no user":   server.Client(as("unheard-of")),
	} {
		e.store = e.storeOn(rdb, e.store.opts)
		_, err := e.store.Acquire(e.ctx(), "r", LeaseOptions{})
		require.ErrorIs(t, err, ErrDenied, name)
		_, err = e.guard(GuardOptions{FailOpen: true, Wait: time.Minute}).Do(e.ctx(), e.op(), (&counted{}).body)
		require.ErrorIs(t, err, ErrDenied, name)
		for _, err := range e.store.Leases(e.ctx()) {
			require.ErrorIs(t, err, ErrDenied, name)
		}
		require.NotErrorIs(t, err, ErrUnavailable)
	}
	require.Empty(t, e.stored())
}

// F08: what threatens leases and memos is a warning; what may not be asked is unknown.
func TestCheckWarnsOfEvictionAndForgetfulness(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e := newEnv(t, server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), true)
	for _, c := range []struct {
		policy, aof, save     string
		eviction, persistence string
		warnings              []string
	}{
		{"noeviction", "no", "", "noeviction", "none", []string{"persistence is off"}},
		{"allkeys-lru", "no", "60 1000", "allkeys-lru", "rdb", []string{"maxmemory-policy is allkeys-lru"}},
		{"noeviction", "yes", "", "noeviction", "aof", nil},
		{"volatile-ttl", "no", "", "volatile-ttl", "none", []string{"maxmemory-policy is volatile-ttl", "persistence is off"}},
	} {
		for name, value := range map[string]string{"maxmemory-policy": c.policy, "appendonly": c.aof, "save": c.save} {
			require.NoError(t, server.Config(e.ctx(), name, value))
		}
		h, err := e.store.Check(e.ctx())
		require.NoError(t, err)
		require.Equal(t, []string{c.eviction, c.persistence}, []string{h.Eviction, h.Persistence})
		require.Len(t, h.Warnings, len(c.warnings), "%v", h.Warnings)
		for i, w := range c.warnings {
			require.Contains(t, h.Warnings[i], w)
		}
	}
}

// F08, F12: without rights to CONFIG, INFO and CLIENT the kit goes on.
func TestCheckDoesNotNeedTheConfiguration(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	rdb := asLimitedUser(t).(*redis.Client)
	for _, forbidden := range [][]any{{"config", "get", "save"}, {"info"}, {"client", "list"}} {
		require.Error(t, rdb.Do(e.ctx(), forbidden...).Err())
	}
	h, err := e.storeOn(rdb, e.store.opts).Check(e.ctx())
	require.NoError(t, err)
	require.Equal(t, Health{Eviction: unknown, Persistence: unknown}, h)
}

// wrapped is a caller's own client: F12. Nothing more is needed than the interface.
type wrapped struct{ Client }

func TestAnyClientThatHasTheMethodsWillDo(t *testing.T) {
	behaviour(t, func(e *env) {
		e.store = e.storeOn(wrapped{e.store.client}, e.store.opts)
		h, err := e.store.Check(e.ctx())
		require.NoError(e, err)
		require.Contains(e, strings.Join(h.Warnings, "\n"), "ContextTimeoutEnabled")
		l := e.hold("r")
		w := e.wait(e.store, "r", LeaseOptions{})
		require.NoError(e, l.Release(e.ctx()))
		_, stop := w.lease(e).Keep(e.ctx())
		stop()
	})
}

// Clients that are set up in other ways, without the handshake's extras, and with
// go-redis's automatic pipelines.
func TestClientsWithoutHandshakeExtrasAndWithPipelines(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	plain := onRedis(func(o *redis.Options) { o.DisableIdentity, o.Protocol = true, 2 })(t)
	auto, err := onRedis(nil)(t).(*redis.Client).AutoPipeline()
	require.NoError(t, err)
	defer auto.Close() //nolint:errcheck // a test's
	for _, client := range []Client{plain, auto} {
		_, err := e.storeOn(client, e.store.opts).Check(e.ctx())
		require.NoError(t, err)
	}
	for _, err := range e.storeOn(auto, e.store.opts).Leases(e.ctx()) {
		refused(t, err, "client", "AutoPipeliner")
	}
}

func TestCheckWarnsOfASlowClusterView(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onCluster(t), true)
	h, err := e.store.Check(e.ctx())
	require.NoError(t, err)
	require.NotContains(t, strings.Join(h.Warnings, "\n"), "ClusterStateReloadInterval")
	slow := started(t, sharedCluster).Client(func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 0 })
	defer slow.Close() //nolint:errcheck // a test's
	h, err = e.storeOn(slow, e.store.opts).Check(e.ctx())
	require.NoError(t, err)
	require.Contains(t, strings.Join(h.Warnings, "\n"), "ClusterStateReloadInterval", "%s", slow.Options().ClusterStateReloadInterval)
}

// On a cluster the user may also ask where the slots are.
func TestTheLimitedUserOnACluster(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onCluster(t), true)
	for _, node := range started(t, sharedCluster).Nodes() {
		require.NoError(t, setUser(e.ctx(), node.Client(), "limited",
			limitedKeys+" "+limitedChannels+" -@all "+workerCommands+" "+operatorCommands+" "+clusterCommands))
	}
	rdb := started(t, sharedCluster).Client(func(o *redis.ClusterOptions) {
		o.Username, o.Password, o.ContextTimeoutEnabled = "limited", "secret", true
	})
	defer rdb.Close() //nolint:errcheck // a test's
	e.store = e.storeOn(rdb, e.store.opts)
	_, err := e.store.Check(e.ctx())
	require.NoError(t, err)
	for _, f := range features(e, "cluster") {
		f.use()
	}
	require.NotEmpty(t, collect(t, e.store.Records(e.ctx())))
}
