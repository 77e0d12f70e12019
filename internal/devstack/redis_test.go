package devstack_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

func TestRedisAnswers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, protocol := range []int{2, 3} {
		rdb := devstack.RedisForTest(t).Client(func(o *redis.Options) { o.Protocol = protocol })
		require.NoError(t, rdb.Set(ctx, "devstack:k", "v", time.Minute).Err())
		require.Equal(t, "v", rdb.Get(ctx, "devstack:k").Val())
	}
}

func TestRedisConf(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	r := ownRedis(t, "maxmemory 7mb", "maxmemory-policy allkeys-lru", "requirepass open-sesame",
		"user app on >secret ~fk:* +@all")
	rdb := r.Client()
	require.Equal(t, "7340032", rdb.ConfigGet(ctx, "maxmemory").Val()["maxmemory"])

	require.NoError(t, r.Config(ctx, "maxmemory-policy", "noeviction"))
	require.Equal(t, "noeviction", rdb.ConfigGet(ctx, "maxmemory-policy").Val()["maxmemory-policy"])

	app := r.Client(func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	require.NoError(t, app.Set(ctx, "fk:1", "v", 0).Err())
	require.ErrorContains(t, app.Set(ctx, "other", "v", 0).Err(), "NOPERM")
}

func TestRedisRefusesBadConf(t *testing.T) {
	t.Parallel()
	ownRedis(t) // skips where there is no server
	_, err := devstack.StartRedis(testContext(t), devstack.RedisConfig{Conf: []string{"no-such-directive 1"}})
	require.ErrorContains(t, err, "no-such-directive", "the server's own words are in the error")
}

func TestRedisFreezeAndThaw(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	r := ownRedis(t)
	rdb := r.Client(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 500*time.Millisecond, -1 })
	eventually(t, func() bool { return rdb.Ping(ctx).Err() == nil }, "it is connected")

	require.NoError(t, r.Freeze())
	require.ErrorIs(t, rdb.Incr(ctx, "n").Err(), os.ErrDeadlineExceeded)

	require.NoError(t, r.Thaw())
	eventually(t, func() bool { return rdb.Get(ctx, "n").Val() == "1" }, "what was sent meanwhile is executed")
}

func TestRedisFrozenCanBeStopped(t *testing.T) {
	t.Parallel()
	r := ownRedis(t)
	require.NoError(t, r.Freeze())
	require.NoError(t, r.Stop())
	require.NoError(t, r.Stop(), "twice is fine")
}

func TestRedisKillAndRestart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		conf []string
		want string
	}{
		{"without persistence", nil, ""},
		{"with AOF", []string{"appendonly yes"}, "v"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			r := ownRedis(t, tt.conf...)
			rdb, addr := r.Client(), r.Addr()
			require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())

			require.NoError(t, r.Kill())
			require.Error(t, rdb.Ping(ctx).Err())
			require.ErrorIs(t, r.Freeze(), os.ErrProcessDone)

			require.NoError(t, r.Restart(ctx))
			require.Equal(t, addr, r.Addr())
			require.Equal(t, tt.want, rdb.Get(ctx, "k").Val())
		})
	}
}

func TestRedisRestartsWhileRunning(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	r := ownRedis(t)
	for range 3 {
		require.NoError(t, r.Restart(ctx))
		require.NoError(t, r.Client().Ping(ctx).Err())
	}
}

func TestRedisFromURL(t *testing.T) {
	server := ownRedis(t, "requirepass pw")
	t.Setenv("REDIS_URL", "redis://:pw@"+server.Addr()+"/3")
	r := devstack.RedisForTest(t)
	require.Equal(t, server.Addr(), r.Addr())
	require.True(t, r.Real())
	require.Equal(t, 3, r.Options().DB)
	require.NoError(t, r.Client().Ping(testContext(t)).Err())
	for _, err := range []error{
		r.Kill(), r.Freeze(), r.Thaw(), r.Restart(t.Context()), r.Config(t.Context(), "maxmemory", "1mb"),
	} {
		require.ErrorIs(t, err, errors.ErrUnsupported, "it is not ours to break")
	}

	own := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	require.NotEqual(t, server.Addr(), own.Addr())
}

func TestRedisURLThatDoesNotAnswer(t *testing.T) {
	server := ownRedis(t)
	require.NoError(t, server.Kill())
	for _, url := range []string{"redis://" + server.Addr(), "not a URL"} {
		t.Setenv("REDIS_URL", url)
		_, err := devstack.StartRedis(testContext(t), devstack.RedisConfig{})
		require.ErrorContains(t, err, "REDIS_URL")
	}
}

func TestStandInWithoutServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDIS_URL", "")
	t.Setenv("FENCEKIT_REQUIRE_REAL", "")
	ctx := testContext(t)
	r := devstack.RedisForTest(t)
	require.False(t, r.Real())
	rdb := r.Client()
	require.NoError(t, rdb.Set(ctx, "k", "v", 30*time.Millisecond).Err())
	eventually(t, func() bool { return rdb.Exists(ctx, "k").Val() == 0 }, "TTLs run down")
	require.ErrorIs(t, r.Kill(), errors.ErrUnsupported)

	_, err := devstack.StartRedis(ctx, devstack.RedisConfig{Own: true})
	require.ErrorIs(t, err, devstack.ErrNoRedis)
}

func TestNothingStandsInWhenRealIsRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDIS_URL", "")
	t.Setenv("FENCEKIT_REQUIRE_REAL", "1")
	_, err := devstack.StartRedis(testContext(t), devstack.RedisConfig{})
	require.ErrorIs(t, err, devstack.ErrNoRedis)
	require.ErrorContains(t, err, "apt-get install redis-server")
}

func TestForTestSkipsOrFailsWithoutServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for real, want := range map[string]string{"": "skip", "1": "fatal"} {
		t.Setenv("FENCEKIT_REQUIRE_REAL", real)
		fake := &fakeTB{}
		fake.run(func() { devstack.RedisForTest(fake, devstack.RedisConfig{Own: true}) })
		require.Equal(t, want, fake.outcome)
	}
	fake := &fakeTB{}
	fake.run(func() { devstack.RedisForTest(fake, devstack.RedisConfig{}, devstack.RedisConfig{}) })
	require.Equal(t, "fatal", fake.outcome)
}

func TestStartHeedsContext(t *testing.T) {
	t.Parallel()
	ownRedis(t) // skips where there is no server
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := devstack.StartRedis(ctx, devstack.RedisConfig{Own: true})
	if err != nil { // a server that is quicker than the first look is fine
		require.ErrorIs(t, err, context.Canceled)
	}
}

// The Temporal SDK links some whatever one does: its test environment is in the same
// package as its client.
func TestNoTestLibraryIsImported(t *testing.T) {
	t.Parallel()
	imports := importsOfOurs(t)
	require.Contains(t, imports, "github.com/redis/go-redis/v9")
	for _, name := range imports {
		require.False(t, name == "testing" || strings.Contains(name, "testify"), name)
	}
}
