package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
)

// handover is what it costs to pass a lease on once.
type handover struct {
	took     time.Duration
	commands float64       // that clients have sent
	cpu      time.Duration // of the server
}

// turn takes the lease and gives it back.
type turn func(ctx context.Context, hold time.Duration) error

// inLine is a turn in the queue of a resource.
func inLine(s *primitives.Store, resource string) turn {
	return func(ctx context.Context, hold time.Duration) error {
		l, err := s.Acquire(ctx, resource, primitives.LeaseOptions{})
		if err != nil {
			return err
		}
		time.Sleep(hold)
		return l.Release(ctx)
	}
}

// byPolling is a turn of a lock that one asks for again and again.
func byPolling(rdb *redis.Client, name string, every time.Duration) turn {
	return func(ctx context.Context, hold time.Duration) error {
		owner := fresh()
		for {
			err := rdb.SetArgs(ctx, name, owner, redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err()
			if err == nil {
				break
			}
			if !errors.Is(err, redis.Nil) {
				return err
			}
			time.Sleep(every)
		}
		time.Sleep(hold)
		return compareAndDelete.Run(ctx, rdb, []string{name}, owner).Err()
	}
}

// drain has many callers want one lease at once, and measures until the last of them
// has had it.
func (s *server) drain(ctx context.Context, callers int, hold time.Duration, take turn) (handover, error) {
	if err := s.rdb.ConfigResetStat(ctx).Err(); err != nil {
		return handover{}, err
	}
	cpu, err := s.cpu(ctx)
	if err != nil {
		return handover{}, err
	}
	errs := make([]error, callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range callers {
		wg.Go(func() { errs[i] = take(ctx, hold) })
	}
	wg.Wait()
	h := handover{took: time.Since(start)/time.Duration(callers) - hold}
	if err := errors.Join(errs...); err != nil {
		return h, err
	}
	after, err := s.cpu(ctx)
	if err != nil {
		return h, err
	}
	h.cpu = (after - cpu) / time.Duration(callers)
	sent, err := s.sent(ctx)
	h.commands = float64(sent) / float64(callers)
	return h, err
}

// sent is how many commands clients have sent since the last reset. Scripts count as
// one each. A SET counts if it is not from a script of ours, which ask for the time.
func (s *server) sent(ctx context.Context) (n int, err error) {
	info, err := s.rdb.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	stats := info["Commandstats"]
	names := []string{"eval", "evalsha", "subscribe", "unsubscribe"}
	if _, ours := stats["cmdstat_time"]; !ours {
		names = append(names, "set")
	}
	for _, name := range names {
		var calls int
		if text, ok := stats["cmdstat_"+name]; ok {
			if _, err := fmt.Sscanf(text, "calls=%d,", &calls); err != nil {
				return 0, err
			}
		}
		n += calls
	}
	return n, nil
}

// cpu is the processor time that the server has used.
func (s *server) cpu(ctx context.Context) (time.Duration, error) { return redisCPU(ctx, s.rdb) }

func redisCPU(ctx context.Context, rdb *redis.Client) (time.Duration, error) {
	text, err := rdb.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var total float64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			total += seconds
		}
	}
	return time.Duration(total * float64(time.Second)), nil
}
