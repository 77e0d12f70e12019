package testsuite

import (
	"context"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
)

func (k *Kit) openRedis() error {
	opts, err := k.redisOptions()
	if err != nil {
		return err
	}
	watched, own := *opts, *opts
	k.rdb, k.control = redis.NewClient(&watched), redis.NewClient(&own)
	k.rdb.AddHook(hook{k})
	k.control.AddHook(ticking{k})
	k.t.Cleanup(k.closeRedis)
	k.store, err = primitives.New(k.control, primitives.Options{Prefix: k.prefix, Timeout: defaultTimeout})
	return err
}

// redisOptions are those of the caller's Redis, of the environment's, or of one in
// memory.
func (k *Kit) redisOptions() (*redis.Options, error) {
	url := ""
	if k.opts.FromEnvironment {
		url = os.Getenv("REDIS_URL")
	}
	var opts redis.Options
	switch {
	case k.opts.Redis != nil:
		opts = *k.opts.Redis.Options()
	case url != "":
		parsed, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		opts = *parsed
	default:
		m, err := startMemory()
		if err != nil {
			return nil, err
		}
		k.memory = m
		k.t.Cleanup(m.server.Close)
		opts.Addr = m.server.Addr()
	}
	opts.ContextTimeoutEnabled = true
	opts.ReadTimeout, opts.WriteTimeout = defaultTimeout, defaultTimeout
	return &opts, nil
}

func (k *Kit) closeRedis() {
	if k.memory == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := k.wipe(ctx); err != nil {
			k.t.Errorf("testsuite: keys under %s are left in Redis: %v", k.prefix, err)
		}
	}
	_ = k.rdb.Close()
	_ = k.control.Close()
}

// wipe deletes what is the kit's, and nothing else.
func (k *Kit) wipe(ctx context.Context) error {
	keys := k.control.Scan(ctx, 0, k.prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := k.control.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// AdvanceClock moves the clock of Redis forward, and with it all TTLs: leases run out,
// memos are forgotten. It needs Redis in memory; on a real one it skips the test.
func (k *Kit) AdvanceClock(d time.Duration) { k.shiftClock(d) }

// RegressClock sets the clock of Redis back, as a failover to a node whose clock is
// behind does. It needs Redis in memory; on a real one it skips the test.
func (k *Kit) RegressClock(d time.Duration) { k.shiftClock(-d) }

func (k *Kit) shiftClock(d time.Duration) {
	k.t.Helper()
	if k.memory == nil {
		k.t.Skipf("testsuite: the clock of a real Redis cannot be moved")
		return
	}
	k.memory.shift(d)
}
