package primitives

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The rights of a user who can do everything that the kit does, under the prefixes
// that the tests use. DESIGN.md lists them.
const (
	limitedKeys     = "~t*:v1:*"
	limitedChannels = "&t*:v1:wake:*"
	// What workers need; the first line is what they send, the second what scripts do.
	workerCommands = "+eval +evalsha +subscribe +ping " +
		"+time +get +set +del +exists +pttl +pexpire +hset +hdel +hget +hmget +zadd +zrem +zrange +zrank +zcard +publish"
	operatorCommands = "+scan" // listing; it shows the names of all keys
	clusterCommands  = "+cluster|slots +command"
)

var limitedUser = sync.OnceValue(func() error {
	r, err := sharedRedis()
	if err != nil {
		return err
	}
	rdb := redis.NewClient(clientOptions(r.Addr(), nil))
	defer rdb.Close() //nolint:errcheck // a test's
	return setUser(context.Background(), rdb, "limited", limitedKeys+" "+limitedChannels+" -@all "+workerCommands+" "+operatorCommands)
})

func setUser(ctx context.Context, rdb *redis.Client, name, rules string) error {
	return rdb.ACLSetUser(ctx, name, append([]string{"reset", "on", ">secret"}, strings.Fields(rules)...)...).Err()
}

func as(name string) func(*redis.Options) {
	return func(o *redis.Options) { o.Username, o.Password = name, "secret" }
}

func asLimitedUser(t testing.TB) redis.UniversalClient {
	t.Helper()
	if r := started(t, sharedRedis); !r.Real() {
		t.Skip("the stand-in has no ACL")
	}
	require.NoError(t, limitedUser())
	return onRedis(as("limited"))(t)
}
