package testsuite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
)

// faults are what is wrong with the connection to Redis.
type faults struct {
	mu       sync.Mutex
	fault    fault
	loseFrom int // the command whose reply is lost, counted down; 0: none
}

type fault int

const (
	noFault fault = iota
	down
	readOnly
	slow
)

// atOnce is an error that the store does not try again, so that no test waits for its
// budget.
func atOnce(err error) error { return fmt.Errorf("%w (%w)", err, redis.ErrClosed) }

// pass sends a command, or what the fault makes of it.
func (f *faults) pass(cmds []redis.Cmder, renewal bool, send func() error) error {
	fault, lost := f.next(renewal)
	switch {
	case fault == down:
		return atOnce(errors.New("dial tcp: connection refused"))
	case fault == readOnly && writes(cmds):
		return atOnce(errors.New("READONLY You can't write against a read only replica"))
	case fault == slow:
		_ = send()
		return atOnce(os.ErrDeadlineExceeded)
	case lost:
		_ = send()
		return io.ErrUnexpectedEOF
	}
	return send()
}

// next is what happens to a command. Renewals are not counted: when they come is a matter
// of time.
func (f *faults) next(renewal bool) (now fault, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loseFrom > 0 && !renewal {
		f.loseFrom--
		lost = f.loseFrom == 0
	}
	return f.fault, lost
}

func writes(cmds []redis.Cmder) bool {
	for _, cmd := range cmds {
		if !reads[cmd.Name()] {
			return true
		}
	}
	return false
}

func (f *faults) set(now fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = now
}

// RedisDown makes Redis refuse connections, until [Kit.RedisUp].
func (k *Kit) RedisDown() { k.faults.set(down) }

// RedisReadOnly makes Redis refuse what writes, as a replica does, until [Kit.RedisUp].
// The guard's scripts write, so all of them are refused.
func (k *Kit) RedisReadOnly() { k.faults.set(readOnly) }

// RedisSlow makes Redis answer later than anybody waits: what is sent happens, and
// ends with a timeout. It takes no time. Until [Kit.RedisUp].
func (k *Kit) RedisSlow() { k.faults.set(slow) }

// RedisUp ends what RedisDown, RedisReadOnly and RedisSlow have begun.
func (k *Kit) RedisUp() { k.faults.set(noFault) }

// LoseReply loses the reply to the n-th Redis command from now, from 1: it happens, and
// the connection breaks. Renewals of leases are not counted: when they come is a matter
// of time.
func (k *Kit) LoseReply(n int) {
	k.faults.mu.Lock()
	defer k.faults.mu.Unlock()
	k.faults.loseFrom = n
}

// FlushRedis loses all that is stored under the kit's prefix, as FLUSHALL or a restart
// without persistence does.
func (k *Kit) FlushRedis() {
	k.t.Helper()
	k.behind(k.wipe)
}

// ExpireLease ends the lease of a resource as if its time had run out: nobody is told.
// It fails the test if nobody holds it.
func (k *Kit) ExpireLease(resource string) {
	k.t.Helper()
	k.behind(func(ctx context.Context) error {
		info, err := k.store.Inspect(ctx, resource)
		if err != nil {
			return err
		}
		if !info.Held {
			return fmt.Errorf("nobody holds the lease of %q", resource)
		}
		return k.control.Del(ctx, info.Name()).Err()
	})
}

// StealLease ends the lease of a resource and gives it to a stranger, who is returned.
func (k *Kit) StealLease(resource string) (lease *primitives.Lease) {
	k.t.Helper()
	k.ExpireLease(resource)
	k.behind(func(ctx context.Context) (err error) {
		lease, err = k.store.TryAcquire(ctx, resource, primitives.LeaseOptions{TTL: time.Minute})
		return err
	})
	return lease
}

// FreeLease takes the lease of a resource away as an operator does: the token is
// raised, and who waits is next.
func (k *Kit) FreeLease(resource string) {
	k.t.Helper()
	k.behind(func(ctx context.Context) error { return k.free(ctx, resource) })
}

func (k *Kit) free(ctx context.Context, resource string) error {
	info, err := k.store.Inspect(ctx, resource)
	if err != nil {
		return err
	}
	_, err = k.store.Free(ctx, info)
	return err
}

// behind does something in Redis behind the activities' backs.
func (k *Kit) behind(do func(context.Context) error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := do(ctx); err != nil {
		k.t.Fatalf("testsuite: %v", err)
	}
}
