package primitives

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Keep renews the lease until stop is called or it is lost. A claim without a lease
// is not renewed: its context ends with ctx or stop only. The context that it
// returns carries the token, and ends
//   - when ctx does,
//   - when stop is called, with [context.Canceled] as its cause,
//   - when the lease is lost or given up, with a cause that matches
//     [fence.ErrLeaseLost]: as soon as Redis says so, in answer to a renewal or to any
//     other call on the lease, and at [Lease.Deadline] even while Redis does not answer.
//
// All leases of a [Store] are renewed together, with one pipelined round trip for
// all that are due (one for each primary of a cluster). Transient errors
// are retried until the deadline.
func (t *tenure) Keep(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	if !t.Token().Valid() { // a record without a lease: there is nothing to keep
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(fence.NewContext(ctx, t.Token()))
	t.mu.Lock()
	k := &kept{tenure: t, cancel: cancel, due: t.sent.Add(t.renewEvery())}
	t.mu.Unlock()
	k.timer = time.AfterFunc(time.Hour, k.expire)
	t.store.keeper.add(k)
	k.timer.Reset(time.Until(t.Deadline()))
	if over := t.over(); over != nil { // also if it ended while we were at it
		t.store.keeper.end(t, over)
	}
	return ctx, func() {
		t.store.keeper.remove(k)
		k.timer.Stop()
		cancel(context.Canceled)
	}
}

// over is why the tenure is over for good, or nil.
func (t *tenure) over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *tenure) renewEvery() time.Duration {
	if t.every > 0 {
		return t.every
	}
	return t.ttl / 3
}

// lostCause is the loss of a lease by which ctx ended, or nil.
func lostCause(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, fence.ErrLeaseLost) {
		return cause
	}
	return nil
}

// kept is one tenure that is kept alive.
type kept struct {
	*tenure
	cancel context.CancelCauseFunc
	timer  *time.Timer // fires at the deadline

	due time.Time // of the next renewal; owned by the keeper
}

// expire ends the holder's context at the deadline. A renewal that came in since
// the timer was set has moved the deadline.
func (k *kept) expire() {
	if left := time.Until(k.Deadline()); left > 0 {
		k.timer.Reset(left)
		return
	}
	k.end(&LostError{Resource: k.resource, Token: k.Token().Value, Step: "deadline"})
}

// apply takes the outcome of one renewal and says when the next is due, if the lease
// is not lost.
func (k *kept) apply(r reply, err error, sent time.Time) (due time.Time, lost bool) {
	if err == nil {
		err = k.renewedBy(r, "renew", sent, k.ttl)
	}
	switch {
	case err == nil:
		return sent.Add(k.renewEvery()), false
	case errors.Is(err, fence.ErrLeaseLost):
		return due, true
	}
	return time.Now().Add(k.retryEvery()), false
}

// retryEvery is the time between attempts while Redis does not answer.
func (k *kept) retryEvery() time.Duration { return min(k.renewEvery()/4, 250*time.Millisecond) }

// keeper renews all kept tenures of a store. A timer drives it, and nothing runs
// until the first is due: most work ends before that, and must not pay for it.
type keeper struct {
	store *Store
	timer *time.Timer

	mu   sync.Mutex
	all  map[*kept]struct{}
	next time.Time // when the timer fires; zero if it is stopped
}

func newKeeper(s *Store) *keeper {
	k := &keeper{store: s, all: map[*kept]struct{}{}}
	k.timer = time.AfterFunc(time.Hour, k.fire)
	k.timer.Stop()
	return k
}

func (k *keeper) add(t *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[t] = struct{}{}
	k.fireBy(t.due)
}

func (k *keeper) remove(t *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, t)
	if len(k.all) == 0 {
		k.timer.Stop()
		k.next = time.Time{}
	}
}

// end stops renewing what is kept of t, and ends its contexts.
func (k *keeper) end(t *tenure, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for kept := range k.all {
		if kept.tenure == t {
			delete(k.all, kept)
			kept.cancel(cause)
		}
	}
}

// fireBy has the timer fire at due at the latest.
func (k *keeper) fireBy(due time.Time) {
	if k.next.IsZero() || due.Before(k.next) {
		k.next = due
		k.timer.Reset(time.Until(due))
	}
}

// fire never waits for Redis: a renewal that hangs must not delay the others.
func (k *keeper) fire() {
	for _, group := range k.byPrimary(k.takeDue(time.Now())) {
		go k.renew(group)
	}
}

// takeDue collects what is due, together with what will be within an eighth of its
// interval, so that leases fall into step and share round trips. What it takes is
// tried again in a while, unless an answer says otherwise before.
func (k *keeper) takeDue(now time.Time) (batch []*kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := false
	for t := range k.all {
		due = due || !t.due.After(now)
	}
	k.next = time.Time{}
	for t := range k.all {
		if due && !t.due.Add(-t.renewEvery()/8).After(now) {
			batch = append(batch, t)
			t.due = now.Add(t.renewEvery())
		}
		k.fireBy(t.due)
	}
	return batch
}

// byPrimary groups a batch by the node that answers for it, so that a frozen node
// does not keep the leases of the others from being renewed.
func (k *keeper) byPrimary(batch []*kept) map[*redis.Client][]*kept {
	groups := map[*redis.Client][]*kept{}
	nodes, isCluster := k.store.client.(cluster)
	for _, t := range batch {
		var node *redis.Client
		if isCluster {
			node = primaryOf(nodes, t)
		}
		groups[node] = append(groups[node], t)
	}
	return groups
}

// primaryOf is nil for a tenure whose node is not known, a group of its own: renewing
// it will tell why.
func primaryOf(nodes cluster, t *kept) (node *redis.Client) {
	defer func() { _ = recover() }() // of the client
	node, _ = nodes.MasterForKey(context.Background(), t.names.lease())
	return node
}

// renew renews one group in one round trip, and once more, with the text of the
// script, what the server did not know by its digest.
func (k *keeper) renew(group []*kept) {
	ctx, cancel := context.WithTimeout(context.Background(), k.store.opts.Timeout)
	defer cancel()
	sent := time.Now()
	unknown := k.pipeline(ctx, group, sent, func(p redis.Pipeliner, c call) *redis.Cmd {
		return p.EvalSha(ctx, c.script.sha, c.keys, c.args...)
	})
	if len(unknown) > 0 {
		k.pipeline(ctx, unknown, time.Now(), func(p redis.Pipeliner, c call) *redis.Cmd {
			return p.Eval(ctx, c.script.src, c.keys, c.args...)
		})
	}
}

func (k *keeper) pipeline(ctx context.Context, group []*kept, sent time.Time,
	add func(redis.Pipeliner, call) *redis.Cmd,
) (unknown []*kept) {
	cmds, failure := k.send(ctx, group, add)
	for i, t := range group {
		value, err := any(nil), failure
		if failure == nil {
			value, err = cmds[i].Result()
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, t)
			continue
		}
		var r reply
		if err == nil {
			r, err = decode("renew", value)
		}
		if due, lost := t.apply(r, err, sent); !lost {
			k.settle(t, due)
		}
	}
	return unknown
}

// send sends one pipeline. Its error is that of the client, not that of a command: each
// of those is looked at.
func (k *keeper) send(ctx context.Context, group []*kept, add func(redis.Pipeliner, call) *redis.Cmd) (cmds []*redis.Cmd, err error) {
	defer func() { err = panicked(recover(), err) }()
	cmds = make([]*redis.Cmd, len(group))
	_, _ = k.store.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range group {
			cmds[i] = add(p, t.renewal(t.ttl))
		}
		return nil
	})
	return cmds, nil
}

// settle sets when t is due again.
func (k *keeper) settle(t *kept, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.due = due
	if _, ok := k.all[t]; ok {
		k.fireBy(due)
	}
}
