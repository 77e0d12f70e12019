package devstack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// member is a line of CLUSTER NODES.
type member struct {
	id        string
	replicaOf string   // the primary's id; empty for a primary
	slots     [][2]int // ranges, both ends included
}

func (m member) serves(slot int) bool {
	for _, r := range m.slots {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

// view is the cluster as r sees it.
func (c *Cluster) view(ctx context.Context, r *Redis) ([]member, error) {
	text, err := r.control().ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("devstack: cluster node %s: %w", r.Addr(), err)
	}
	var members []member
	for line := range strings.Lines(text) {
		m, err := parseMember(line)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

// parseMember reads "id addr flags primary ping pong epoch link slot...", where a
// slot is "7", "7-9", or "[7->-id]" for one on the move.
func parseMember(line string) (member, error) {
	f := strings.Fields(line)
	if len(f) < 8 {
		return member{}, fmt.Errorf("devstack: line of CLUSTER NODES: %q", line)
	}
	m := member{id: f[0]}
	if f[3] != "-" {
		m.replicaOf = f[3]
	}
	for _, s := range f[8:] {
		if strings.HasPrefix(s, "[") {
			continue
		}
		low, high, isRange := strings.Cut(s, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err := errors.Join(err1, err2); err != nil {
			return member{}, fmt.Errorf("devstack: slots %q of CLUSTER NODES: %w", s, err)
		}
		m.slots = append(m.slots, [2]int{first, last})
	}
	return m, nil
}

// Slot is the hash slot of key.
func (c *Cluster) Slot(ctx context.Context, key string) (int, error) {
	r, err := c.anyAnswering()
	if err != nil {
		return 0, err
	}
	slot, err := r.control().ClusterKeySlot(ctx, key).Result()
	return int(slot), err
}

func (c *Cluster) anyAnswering() (*Redis, error) {
	for _, r := range c.nodes {
		if r.node.answering() {
			return r, nil
		}
	}
	return nil, errors.New("devstack: no cluster node is running")
}

// PrimaryOfKey is the node that serves key. See [Cluster.PrimaryOfSlot].
func (c *Cluster) PrimaryOfKey(ctx context.Context, key string) (*Redis, error) {
	slot, err := c.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.PrimaryOfSlot(ctx, slot)
}

// PrimaryOfSlot is the node that serves slot by the word of every node that
// answers. It is an error while they disagree, as during a failover.
func (c *Cluster) PrimaryOfSlot(ctx context.Context, slot int) (*Redis, error) {
	owner := ""
	for _, r := range c.nodes {
		if !r.node.answering() {
			continue
		}
		view, err := c.view(ctx, r)
		if err != nil {
			return nil, err
		}
		id := ownerIn(view, slot)
		if id == "" || owner != "" && id != owner {
			return nil, fmt.Errorf("devstack: the nodes disagree on slot %d: %q and %q", slot, owner, id)
		}
		owner = id
	}
	for r, id := range c.ids {
		if id == owner {
			return r, nil
		}
	}
	return nil, fmt.Errorf("devstack: slot %d is served by the unknown node %q", slot, owner)
}

func ownerIn(view []member, slot int) string {
	for _, m := range view {
		if m.serves(slot) {
			return m.id
		}
	}
	return ""
}

// ReplicaOf is the replica of primary, by primary's own word.
func (c *Cluster) ReplicaOf(ctx context.Context, primary *Redis) (*Redis, error) {
	view, err := c.view(ctx, primary)
	if err != nil {
		return nil, err
	}
	for _, m := range view {
		for r, id := range c.ids {
			if m.replicaOf == c.ids[primary] && m.id == id {
				return r, nil
			}
		}
	}
	return nil, fmt.Errorf("devstack: %s has no replica", primary.Addr())
}

// AwaitFailover returns the new primary of slot once all nodes that answer agree
// on one that is not old, and call the cluster ok: for after old was killed or
// frozen.
func (c *Cluster) AwaitFailover(ctx context.Context, slot int, old *Redis) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	var primary *Redis
	err := waitFor(ctx, "another primary is agreed on", func() (err error) {
		primary, err = c.PrimaryOfSlot(ctx, slot)
		if err != nil {
			return err
		}
		if primary == old {
			return fmt.Errorf("%s serves slot %d still", old.Addr(), slot)
		}
		return c.stateOK(ctx)
	})
	return primary, err
}

// stateOK succeeds when every node that answers calls the cluster ok.
func (c *Cluster) stateOK(ctx context.Context) error {
	for _, r := range c.nodes {
		if !r.node.answering() {
			continue
		}
		if err := okBy(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// okBy succeeds when r calls the cluster ok.
func okBy(ctx context.Context, r *Redis) error {
	info, err := r.control().ClusterInfo(ctx).Result()
	if err == nil && !strings.Contains(info, "cluster_state:ok") {
		err = fmt.Errorf("%s does not say ok: %q", r.Addr(), info)
	}
	return err
}

// Failover has primary's replica take over although the primary is well, and
// returns the new primary when all nodes agree and the old one follows it. No acknowledged write is lost:
// the primary waits for its replica.
func (c *Cluster) Failover(ctx context.Context, primary *Redis) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	replica, err := c.ReplicaOf(ctx, primary)
	if err != nil {
		return nil, err
	}
	slot, err := c.someSlotOf(ctx, primary)
	if err != nil {
		return nil, err
	}
	if err := replica.control().ClusterFailover(ctx).Err(); err != nil {
		return nil, fmt.Errorf("devstack: CLUSTER FAILOVER on %s: %w", replica.Addr(), err)
	}
	promoted, err := c.AwaitFailover(ctx, slot, primary)
	if err != nil {
		return nil, err
	}
	return promoted, waitFor(ctx, "the old primary follows the new one", func() error {
		if _, err := c.ReplicaOf(ctx, promoted); err != nil {
			return err
		}
		return followerOf(ctx, primary, promoted)
	})
}

func (c *Cluster) someSlotOf(ctx context.Context, primary *Redis) (int, error) {
	view, err := c.view(ctx, primary)
	if err != nil {
		return 0, err
	}
	for _, m := range view {
		if m.id == c.ids[primary] && len(m.slots) > 0 {
			return m.slots[0][0], nil
		}
	}
	return 0, fmt.Errorf("devstack: %s serves no slot", primary.Addr())
}
