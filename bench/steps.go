package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
)

// memo is a result of a common size.
var memo = []byte(`{"receipt":"rc_1PZx8w2eZvKYlo2C","amount":4200,"currency":"eur"}`)

var errReplayed = errors.New("a fresh operation was answered from a memo, or the other way round")

type call = func(context.Context) error

// set is the yardstick: one round trip that writes.
func set(rdb redis.Cmdable) step {
	return step{"SET", func() (call, error) {
		key := fresh()
		return func(ctx context.Context) error { return rdb.Set(ctx, key, memo, time.Hour).Err() }, nil
	}}
}

func beginComplete(g *primitives.Guard) step {
	return step{"Begin + Complete", func() (call, error) {
		op, err := op()
		return func(ctx context.Context) error {
			start, err := g.Begin(ctx, op)
			if err != nil {
				return err
			}
			if start.Claim == nil {
				return errReplayed
			}
			return start.Claim.Complete(ctx, memo)
		}, err
	}}
}

func do(g *primitives.Guard) step {
	return step{"Guard.Do", func() (call, error) {
		op, err := op()
		return func(ctx context.Context) error { return doOnce(ctx, g, op, primitives.Begun) }, err
	}}
}

// replay asks for one operation again and again that has been done before.
func replay(g *primitives.Guard) step {
	return step{"Guard.Do, replayed", func() (call, error) {
		op, err := op()
		if err != nil {
			return nil, err
		}
		if err := doOnce(context.Background(), g, op, primitives.Begun); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return doOnce(ctx, g, op, primitives.Replayed) }, nil
	}}
}

func doOnce(ctx context.Context, g *primitives.Guard, op primitives.Op, want primitives.Outcome) error {
	res, err := g.Do(ctx, op, func(context.Context) ([]byte, error) { return memo, nil })
	if err == nil && res.Outcome != want {
		return errReplayed
	}
	return err
}

func lease(s *primitives.Store) step {
	return step{"Acquire + Release", func() (call, error) {
		resource := fresh()
		return func(ctx context.Context) error {
			l, err := s.Acquire(ctx, resource, primitives.LeaseOptions{})
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}, nil
	}}
}

func redislockLease(rdb redis.Scripter) step {
	locks := redislock.New(rdb)
	return step{"bsm/redislock Obtain + Release", func() (call, error) {
		name := fresh()
		return func(ctx context.Context) error {
			l, err := locks.Obtain(ctx, name, 30*time.Second, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}, nil
	}}
}

func redsyncLease(rdb redis.UniversalClient) step {
	locks := redsync.New(goredis.NewPool(rdb))
	return step{"redsync Lock + Unlock", func() (call, error) {
		m := locks.NewMutex(fresh(), redsync.WithExpiry(30*time.Second))
		return func(ctx context.Context) error {
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			_, err := m.UnlockContext(ctx)
			return err
		}, nil
	}}
}

var compareAndDelete = redis.NewScript(
	`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`)

// sixTrips is a guarded job as the Python fencekit does it: a command for each step.
func sixTrips(rdb redis.Cmdable) step {
	return step{"six commands, fencekit-style", func() (call, error) {
		name := fresh()
		lock, token, record := name+":lock", name+":token", name+":record"
		return func(ctx context.Context) error {
			if err := rdb.SetArgs(ctx, lock, name, redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
				return err
			}
			if err := rdb.Incr(ctx, token).Err(); err != nil {
				return err
			}
			if err := rdb.Get(ctx, record).Err(); !errors.Is(err, redis.Nil) {
				return errReplayed
			}
			if err := rdb.Set(ctx, record, "running", time.Hour).Err(); err != nil {
				return err
			}
			if err := rdb.Set(ctx, record, memo, 24*time.Hour).Err(); err != nil {
				return err
			}
			return compareAndDelete.Run(ctx, rdb, []string{lock}, name).Err()
		}, nil
	}}
}
