package devstack

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// SlotMigration is a slot on its way from one primary to another. Until
// [SlotMigration.Finish], the source serves the keys that it still has and
// answers ASK for all others, and TRYAGAIN for a command whose keys are divided.
type SlotMigration struct {
	cluster  *Cluster
	slot     int
	from, to *Redis
}

// moveBatch is how many keys one MIGRATE takes.
const moveBatch = 100

// MigrateSlot moves slot, with its keys, from one primary to another while both
// serve it, and returns when every node knows.
func (c *Cluster) MigrateSlot(ctx context.Context, slot int, from, to *Redis) error {
	m, err := c.BeginMigration(ctx, slot, from, to)
	if err != nil {
		return err
	}
	if err := m.MoveKeys(ctx); err != nil {
		return err
	}
	return m.Finish(ctx)
}

// BeginMigration marks slot as on the move and moves nothing yet: for tests of
// the time in between.
func (c *Cluster) BeginMigration(ctx context.Context, slot int, from, to *Redis) (*SlotMigration, error) {
	m := &SlotMigration{cluster: c, slot: slot, from: from, to: to}
	if err := m.setSlot(ctx, to, "importing", from); err != nil {
		return nil, err
	}
	if err := m.setSlot(ctx, from, "migrating", to); err != nil {
		return nil, err
	}
	return m, nil
}

// MoveKeys moves the keys that the slot has now. Calling it again moves those
// that were written to the source since.
func (m *SlotMigration) MoveKeys(ctx context.Context) error {
	for {
		keys, err := m.from.control().ClusterGetKeysInSlot(ctx, m.slot, moveBatch).Result()
		if err != nil {
			return fmt.Errorf("devstack: keys of slot %d: %w", m.slot, err)
		}
		if len(keys) == 0 {
			return nil
		}
		if err := m.MoveKey(ctx, keys...); err != nil {
			return err
		}
	}
}

// MoveKey moves only keys, which leaves the slot divided.
func (m *SlotMigration) MoveKey(ctx context.Context, keys ...string) error {
	args := []any{"migrate", localhost, m.to.node.port, "", 0, controlTimeout.Milliseconds(), "keys"}
	for _, key := range keys {
		args = append(args, key)
	}
	if err := m.from.control().Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("devstack: MIGRATE from %s: %w", m.from.Addr(), err)
	}
	return nil
}

// Finish gives the slot to its new primary, which must come first: the source
// would answer MOVED to a node that does not know yet. It returns when every node
// that answers knows.
func (m *SlotMigration) Finish(ctx context.Context) error {
	for _, r := range append([]*Redis{m.to, m.from}, without(without(m.cluster.nodes, m.to), m.from)...) {
		if err := m.assign(ctx, r); err != nil {
			return err
		}
	}
	return waitFor(ctx, "every node knows where the slot is", func() error {
		owner, err := m.cluster.PrimaryOfSlot(ctx, m.slot)
		if err == nil && owner != m.to {
			err = fmt.Errorf("slot %d is at %s", m.slot, owner.Addr())
		}
		return err
	})
}

// assign passes over replicas, which learn it from the others, and over nodes
// that do not answer.
func (m *SlotMigration) assign(ctx context.Context, r *Redis) error {
	if !r.node.answering() {
		return nil
	}
	if role, err := roleOf(ctx, r); err != nil || role != "master" {
		return err
	}
	return m.setSlot(ctx, r, "node", m.to)
}

// Abort takes the marks off again. Keys that have been moved must be moved back
// first, by a migration the other way.
func (m *SlotMigration) Abort(ctx context.Context) error {
	var errs []error
	for _, r := range []*Redis{m.from, m.to} {
		if err := r.control().Do(ctx, "cluster", "setslot", m.slot, "stable").Err(); err != nil {
			errs = append(errs, fmt.Errorf("devstack: SETSLOT STABLE on %s: %w", r.Addr(), err))
		}
	}
	return errors.Join(errs...)
}

func (m *SlotMigration) setSlot(ctx context.Context, on *Redis, state string, other *Redis) error {
	cmd := redis.NewStatusCmd(ctx, "cluster", "setslot", m.slot, state, m.cluster.ids[other])
	if err := on.control().Process(ctx, cmd); err != nil {
		return fmt.Errorf("devstack: SETSLOT %d %s on %s: %w", m.slot, state, on.Addr(), err)
	}
	return nil
}
