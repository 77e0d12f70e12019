package devstack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterPrimaries = 3
	clusterSlots     = 16384
)

// ClusterConfig changes how [StartCluster] sets up its nodes. The zero value is
// ready to use.
type ClusterConfig struct {
	// NodeTimeout is how long a node must be silent before the others call it
	// failed, in whole milliseconds. Default 1 s.
	NodeTimeout time.Duration

	// Conf holds lines of redis.conf for every node, as in [RedisConfig].
	// Passwords are not supported. Default none.
	Conf []string
}

// Cluster is a Redis Cluster of three primaries with a replica each.
type Cluster struct {
	nodes   []*Redis
	ids     map[*Redis]string
	clients closers
}

// StartCluster starts the nodes, forms the cluster, and returns when every node
// calls it ok and every replica is in step with its primary. It needs a Redis
// server on the machine: else [ErrNoRedis]. The caller stops it with
// [Cluster.Stop]. ctx bounds the start only.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	binary, err := redisBinary()
	if err != nil {
		return nil, err
	}
	c := &Cluster{ids: map[*Redis]string{}}
	if err := c.form(ctx, binary, cfg); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// ClusterForTest is [StartCluster] for a test, as [RedisForTest] is StartRedis.
func ClusterForTest(t TB, cfg ...ClusterConfig) *Cluster {
	t.Helper()
	return startForTest(t, StartCluster, one(t, cfg))
}

func (c *Cluster) form(ctx context.Context, binary string, cfg ClusterConfig) error {
	for range 2 * clusterPrimaries {
		if err := c.startNode(ctx, binary, cfg); err != nil {
			return err
		}
	}
	if err := c.introduce(ctx); err != nil {
		return err
	}
	for i := range clusterPrimaries {
		if err := c.attachReplica(ctx, c.nodes[clusterPrimaries+i], c.nodes[i]); err != nil {
			return err
		}
	}
	return waitFor(ctx, "the cluster is ok", func() error { return c.formed(ctx) })
}

func (c *Cluster) startNode(ctx context.Context, binary string, cfg ClusterConfig) error {
	timeout := cfg.NodeTimeout
	if timeout <= 0 {
		timeout = time.Second
	}
	conf := append([]string{
		"cluster-enabled yes",
		fmt.Sprintf("cluster-node-timeout %d", max(1, timeout.Milliseconds())),
		"cluster-replica-validity-factor 0", // a replica may always stand for election
	}, cfg.Conf...)
	r, err := startServer(ctx, binary, false, conf)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, r)
	c.ids[r], err = r.control().ClusterMyID(ctx).Result()
	return err
}

// introduce gives every node an epoch of its own, so that none has to win a
// conflict later, spreads the slots over the first three and lets each meet all.
func (c *Cluster) introduce(ctx context.Context) error {
	for i, r := range c.nodes {
		if err := r.control().Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		if i < clusterPrimaries {
			first, next := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries
			if err := r.control().ClusterAddSlotsRange(ctx, first, next-1).Err(); err != nil {
				return err
			}
		}
		for _, other := range c.nodes[:i] {
			if err := r.control().ClusterMeet(ctx, localhost, strconv.Itoa(other.node.port)).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// attachReplica waits for the replica to hear of its primary.
func (c *Cluster) attachReplica(ctx context.Context, replica, primary *Redis) error {
	return waitFor(ctx, "the replica knows its primary", func() error {
		return replica.control().ClusterReplicate(ctx, c.ids[primary]).Err()
	})
}

func (c *Cluster) formed(ctx context.Context) error {
	for i, r := range c.nodes {
		if err := c.okOn(ctx, r); err != nil {
			return err
		}
		if i < clusterPrimaries {
			if err := replicasOnline(ctx, r, 1); err != nil {
				return err
			}
			continue
		}
		if err := followerOf(ctx, r, c.nodes[i-clusterPrimaries]); err != nil {
			return err
		}
	}
	return nil
}

// okOn succeeds when r sees all nodes, three of them as replicas, and all slots
// served.
func (c *Cluster) okOn(ctx context.Context, r *Redis) error {
	if err := okBy(ctx, r); err != nil {
		return err
	}
	view, err := c.view(ctx, r)
	if err != nil {
		return err
	}
	replicas := 0
	for _, m := range view {
		if m.replicaOf != "" {
			replicas++
		}
	}
	if len(view) != len(c.nodes) || replicas != clusterPrimaries {
		return fmt.Errorf("%s sees %d nodes, %d of them replicas", r.Addr(), len(view), replicas)
	}
	return nil
}

// Client returns a new cluster client with go-redis's defaults, except that it
// looks for changes every second and not every minute, as changed by edits.
// [Cluster.Stop] closes it.
func (c *Cluster) Client(edits ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	options := &redis.ClusterOptions{ClusterStateReloadInterval: time.Second}
	for _, r := range c.nodes {
		options.Addrs = append(options.Addrs, r.Addr())
	}
	for _, edit := range edits {
		edit(options)
	}
	client := redis.NewClusterClient(options)
	c.clients.add(client)
	return client
}

// Nodes are all six servers, in the order of their start: the first three begin
// as primaries, each other as the replica of the one three before it.
func (c *Cluster) Nodes() []*Redis { return c.nodes }

// Stop closes the clients, ends every node and deletes its folder.
func (c *Cluster) Stop() error {
	c.clients.closeAll()
	return stopAll(c.nodes)
}
