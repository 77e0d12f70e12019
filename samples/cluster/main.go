// Command cluster shows the client that a Redis Cluster needs, and what a failover
// costs with it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

// quiet keeps the client's own complaints about the dead node out of the story.
type quiet struct{}

// Printf prints nothing.
func (quiet) Printf(context.Context, string, ...any) {}

func main() {
	redis.SetLogger(quiet{})
	stack.Main(func(ctx context.Context) error { return run(ctx, os.Stdout) })
}

// newClient is a client for a cluster, set up right.
func newClient(addrs []string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs,
		// The default is a minute, for which the client would not see a failover that
		// the cluster has long finished.
		ClusterStateReloadInterval: time.Second,
		// Without it the client goes on waiting for a reply when the context has ended.
		ContextTimeoutEnabled: true,
	})
}

const resource = "shop/1"

func run(ctx context.Context, out io.Writer) error {
	c, err := devstack.StartCluster(ctx, devstack.ClusterConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = c.Stop() }()
	var addrs []string
	for _, node := range c.Nodes() {
		addrs = append(addrs, node.Addr())
	}
	rdb := newClient(addrs)
	defer rdb.Close()
	store, err := primitives.New(rdb, primitives.Options{Prefix: "cluster"})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a cluster of %d: %s\n", len(addrs), strings.Join(addrs, " "))
	before, err := grant(ctx, store)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "granted, token %s\n", before)
	if err := breakIt(ctx, c, store); err != nil {
		return err
	}
	fmt.Fprintln(out, "the primary that holds the lease is killed")
	began := time.Now()
	after, err := grantWhenUp(ctx, store)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "granted again after %s, token %s\n", time.Since(began).Round(100*time.Millisecond), after)
	if after <= before {
		return fmt.Errorf("token %s is not above %s", after, before)
	}
	return nil
}

// grant takes the lease and gives it back.
func grant(ctx context.Context, store *primitives.Store) (fence.Value, error) {
	lease, err := store.Acquire(ctx, resource, primitives.LeaseOptions{TTL: 5 * time.Second})
	if err != nil {
		return 0, err
	}
	return lease.Token().Value, lease.Release(ctx)
}

// grantWhenUp repeats what is worth a retry. A guarded activity leaves that to Temporal.
func grantWhenUp(ctx context.Context, store *primitives.Store) (fence.Value, error) {
	for {
		token, err := grant(ctx, store)
		if !errors.Is(err, primitives.ErrUnavailable) && !errors.Is(err, fence.ErrLeaseLost) {
			return token, err
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// breakIt kills the node that the resource's names live on.
func breakIt(ctx context.Context, c *devstack.Cluster, store *primitives.Store) error {
	info, err := store.Inspect(ctx, resource)
	if err != nil {
		return err
	}
	primary, err := c.PrimaryOfKey(ctx, info.Name())
	if err != nil {
		return err
	}
	return primary.Kill()
}
