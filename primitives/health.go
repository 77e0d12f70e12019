package primitives

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Health is what [Store.Check] found out.
type Health struct {
	// Eviction is Redis's maxmemory-policy, or "unknown" if it may not be asked.
	Eviction string
	// Persistence is "aof", "rdb" or "none", or "unknown" if it may not be asked.
	Persistence string
	// Warnings say, in sentences, what works but will hurt one day.
	Warnings []string
}

const unknown = "unknown"

// Check tries everything that the kit does in Redis once, on a scratch resource, but
// for listing, which operators do and workers need not; and looks at the configuration. Call it when a process starts. Errors are those of any
// other call: [ErrDenied] names the missing permission. Rights to CONFIG are not
// needed: what may not be asked is "unknown".
func (s *Store) Check(ctx context.Context) (Health, error) {
	if err := s.rehearse(ctx); err != nil {
		return Health{}, err
	}
	var h Health
	h.Eviction = s.config(ctx, "maxmemory-policy")
	h.Persistence = s.persistence(ctx)
	if h.Eviction != unknown && h.Eviction != "noeviction" {
		h.warn("maxmemory-policy is %s: under memory pressure Redis drops leases and memos; use noeviction", h.Eviction)
	}
	if h.Persistence == "none" {
		h.warn("persistence is off: a restart forgets leases and memos; switch on appendonly")
	}
	if !s.direct {
		h.warn("the client does not say that it honours ContextTimeoutEnabled: a call that ends in mid-command leaves a goroutine behind until go-redis times out")
	}
	if c, ok := s.client.(cluster); ok && c.Options().ClusterStateReloadInterval > 3*time.Second {
		h.warn("ClusterStateReloadInterval is %s: that is how long a failover may go unseen; use 1s", c.Options().ClusterStateReloadInterval)
	}
	return h, nil
}

func (h *Health) warn(format string, args ...any) {
	h.Warnings = append(h.Warnings, fmt.Sprintf(format, args...))
}

// rehearse takes each step once and leaves nothing but keys that expire.
func (s *Store) rehearse(ctx context.Context) error {
	scratch := "fencekit check " + newNonce()
	for _, step := range []func(context.Context, string) error{
		s.hear, s.rehearseRecord, s.rehearseLease,
	} {
		if err := step(ctx, scratch); err != nil {
			return err
		}
	}
	return nil
}

const rehearsalTTL = 10 * time.Second

func (s *Store) rehearseRecord(ctx context.Context, scratch string) error {
	key, err := NewKey("fencekit-check", scratch)
	if err != nil {
		return err
	}
	guard, err := NewGuard(s, GuardOptions{LeaseTTL: rehearsalTTL, Retention: rehearsalTTL, StrictMemo: true})
	if err != nil {
		return err
	}
	op := Op{Key: key, Resource: scratch}
	if _, err := guard.Do(ctx, op, func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
		return err
	}
	return s.Clear(ctx, op)
}

// rehearseLease takes a lease, has somebody join its queue, and hands it on.
func (s *Store) rehearseLease(ctx context.Context, scratch string) error {
	opts := LeaseOptions{TTL: rehearsalTTL}
	held, err := s.TryAcquire(ctx, scratch, opts)
	if err != nil {
		return err
	}
	next := s.newLease(scratch, opts)
	defer next.giveUp(detached(ctx))
	err = next.try(ctx, opts, &place{channel: s.names.wake(newNonce())})
	if err != nil && !errors.Is(err, ErrBusy) {
		return err
	}
	if err := s.rehearseGate(ctx, held.Token()); err != nil {
		return err
	}
	if err := held.Extend(ctx, 0); err != nil {
		return err
	}
	if _, err := s.Inspect(ctx, scratch); err != nil {
		return err
	}
	return held.Release(ctx)
}

func (s *Store) rehearseGate(ctx context.Context, t fence.Token) error {
	gate, err := NewGate(s, GateOptions{Retention: rehearsalTTL})
	if err != nil {
		return err
	}
	if err := gate.SetIfFresh(ctx, t, "check", nil, 0); err != nil {
		return err
	}
	_, _, err = gate.Get(ctx, t.Resource, "check")
	return err
}

// hear subscribes once, as waiters do.
func (s *Store) hear(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	sub := s.client.Subscribe(ctx, s.names.wake(newNonce()))
	defer sub.Close() //nolint:errcheck // it was for trying only
	if _, err := sub.Receive(ctx); err != nil {
		failure, _ := classify("subscribe", []string{s.names.base}, err)
		return failure
	}
	return nil
}

// configured is a client that can be asked for its configuration.
type configured interface {
	ConfigGet(ctx context.Context, parameter string) *redis.MapStringStringCmd
}

// config is one setting of the first primary, or unknown.
func (s *Store) config(ctx context.Context, name string) string {
	nodes, err := s.primaries(ctx)
	if err != nil || len(nodes) == 0 {
		return unknown
	}
	node, ok := nodes[0].(configured)
	if !ok {
		return unknown
	}
	values, err := node.ConfigGet(ctx, name).Result()
	if value, ok := values[name]; ok && err == nil {
		return value
	}
	return unknown
}

func (s *Store) persistence(ctx context.Context) string {
	aof, rdb := s.config(ctx, "appendonly"), s.config(ctx, "save")
	switch {
	case aof == "yes":
		return "aof"
	case aof == unknown || rdb == unknown:
		return unknown
	case rdb != "":
		return "rdb"
	}
	return "none"
}
