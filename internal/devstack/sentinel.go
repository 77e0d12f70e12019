package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinelName is what the sentinels call the primary that they watch.
const sentinelName = "fencekit"

const (
	replicaCount  = 2
	sentinelCount = 3
	quorum        = 2
)

// SentinelConfig changes how [StartSentinel] sets up its servers. The zero value
// is ready to use.
type SentinelConfig struct {
	// DownAfter is how long a server must be silent before a sentinel calls it
	// down, in whole milliseconds. Default 1 s, which a loaded test machine
	// does not reach by accident.
	DownAfter time.Duration

	// Conf holds lines of redis.conf for primary and replicas, as in
	// [RedisConfig]. Passwords are not supported. Default none.
	Conf []string
}

// Sentinel is one primary with two replicas, watched by three sentinels.
type Sentinel struct {
	data      []*Redis
	sentinels []*Redis
	clients   closers
}

// StartSentinel starts the topology and returns when the replicas are online and
// every sentinel knows all servers and the other sentinels. It needs a Redis
// server on the machine: else [ErrNoRedis]. The caller stops it with
// [Sentinel.Stop]. ctx bounds the start only.
func StartSentinel(ctx context.Context, cfg SentinelConfig) (*Sentinel, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	binary, err := redisBinary()
	if err != nil {
		return nil, err
	}
	s := &Sentinel{}
	if err := s.form(ctx, binary, cfg); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// SentinelForTest is [StartSentinel] for a test, as [RedisForTest] is StartRedis.
func SentinelForTest(t TB, cfg ...SentinelConfig) *Sentinel {
	t.Helper()
	return startForTest(t, StartSentinel, one(t, cfg))
}

// form starts the sentinels last: what they find in their first look at the
// primary they know at once, the rest up to ten seconds later.
func (s *Sentinel) form(ctx context.Context, binary string, cfg SentinelConfig) error {
	if err := s.startData(ctx, binary, cfg.Conf); err != nil {
		return err
	}
	primary := s.data[0]
	if err := waitFor(ctx, "the replicas are online", func() error {
		return replicasOnline(ctx, primary, replicaCount)
	}); err != nil {
		return err
	}
	for range sentinelCount {
		r, err := startServer(ctx, binary, true, sentinelConf(primary, cfg.DownAfter))
		if err != nil {
			return err
		}
		s.sentinels = append(s.sentinels, r)
		hurry(ctx, r)
	}
	return waitFor(ctx, "the sentinels know each other", func() error { return s.formed(ctx) })
}

func (s *Sentinel) startData(ctx context.Context, binary string, conf []string) error {
	for i := range 1 + replicaCount {
		lines := conf
		if i > 0 {
			lines = append([]string{fmt.Sprintf("replicaof %s %d", localhost, s.data[0].node.port)}, conf...)
		}
		r, err := startServer(ctx, binary, false, lines)
		if err != nil {
			return err
		}
		s.data = append(s.data, r)
	}
	return nil
}

func sentinelConf(primary *Redis, downAfter time.Duration) []string {
	if downAfter <= 0 {
		downAfter = time.Second
	}
	return []string{
		fmt.Sprintf("sentinel monitor %s %s %d %d", sentinelName, localhost, primary.node.port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", sentinelName, max(1, downAfter.Milliseconds())),
		fmt.Sprintf("sentinel failover-timeout %s 2000", sentinelName),
	}
}

// hurry shortens the ten seconds between a sentinel's looks at the servers, the
// two between its greetings to the other sentinels, and the thirty for which it
// trusts nothing after it has itself been frozen or starved for two seconds.
// Redis before 7 refuses, and forms and fails over more slowly.
func hurry(ctx context.Context, sentinel *Redis) {
	_ = sentinel.control().Do(ctx, "sentinel", "debug",
		"info-period", 200, "publish-period", 200, "tilt-period", 2000).Err()
}

// formed compares what every sentinel knows with what there is.
func (s *Sentinel) formed(ctx context.Context) error {
	for _, r := range s.sentinels {
		state, err := sentinelState(ctx, r)
		if err != nil {
			return err
		}
		want := map[string]int{"num-slaves": replicaCount, "num-other-sentinels": sentinelCount - 1}
		for field, n := range want {
			if state[field] != strconv.Itoa(n) {
				return fmt.Errorf("sentinel %s has %s %s of %d", r.Addr(), field, state[field], n)
			}
		}
		if state["flags"] != "master" {
			return fmt.Errorf("sentinel %s flags the primary as %s", r.Addr(), state["flags"])
		}
	}
	return nil
}

func sentinelState(ctx context.Context, r *Redis) (map[string]string, error) {
	cmd := redis.NewMapStringStringCmd(ctx, "sentinel", "master", sentinelName)
	err := r.control().Process(ctx, cmd)
	return cmd.Val(), err
}

// Client returns a new failover client with go-redis's defaults, as changed by
// edits. [Sentinel.Stop] closes it.
func (s *Sentinel) Client(edits ...func(*redis.FailoverOptions)) *redis.Client {
	options := &redis.FailoverOptions{MasterName: sentinelName}
	for _, r := range s.sentinels {
		options.SentinelAddrs = append(options.SentinelAddrs, r.Addr())
	}
	for _, edit := range edits {
		edit(options)
	}
	client := redis.NewFailoverClient(options)
	s.clients.add(client)
	return client
}

// Nodes are the primary and the replicas, in the order of their start: which of
// them is the primary changes with every failover.
func (s *Sentinel) Nodes() []*Redis { return s.data }

// Sentinels are the sentinel servers, to freeze or kill.
func (s *Sentinel) Sentinels() []*Redis { return s.sentinels }

// Primary is the server that every answering sentinel calls the primary and that
// calls itself so. It is an error while they disagree, as during a failover.
func (s *Sentinel) Primary(ctx context.Context) (*Redis, error) {
	var primary *Redis
	for _, r := range s.sentinels {
		if !r.node.answering() {
			continue
		}
		named, err := s.namedBy(ctx, r)
		if err != nil {
			return nil, err
		}
		if primary != nil && named != primary {
			return nil, fmt.Errorf("devstack: the sentinels name %s and %s", primary.Addr(), named.Addr())
		}
		primary = named
	}
	if primary == nil {
		return nil, errors.New("devstack: no sentinel is running")
	}
	role, err := roleOf(ctx, primary)
	if err == nil && role != "master" {
		err = fmt.Errorf("devstack: %s is named the primary and is a %s still", primary.Addr(), role)
	}
	return primary, err
}

func (s *Sentinel) namedBy(ctx context.Context, sentinel *Redis) (*Redis, error) {
	state, err := sentinelState(ctx, sentinel)
	if err != nil {
		return nil, fmt.Errorf("devstack: sentinel %s: %w", sentinel.Addr(), err)
	}
	addr := net.JoinHostPort(state["ip"], state["port"])
	for _, r := range s.data {
		if r.Addr() == addr {
			return r, nil
		}
	}
	return nil, fmt.Errorf("devstack: sentinel %s names the unknown %s", sentinel.Addr(), addr)
}

// Replicas are the servers other than the primary.
func (s *Sentinel) Replicas(ctx context.Context) ([]*Redis, error) {
	primary, err := s.Primary(ctx)
	if err != nil {
		return nil, err
	}
	return without(s.data, primary), nil
}

// Failover has the sentinels promote a replica although the primary is well, and
// returns the new primary when all agree on it and the old one follows it. Like
// every Redis failover it loses the writes that the replica has not seen.
func (s *Sentinel) Failover(ctx context.Context) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	old, err := s.Primary(ctx)
	if err != nil {
		return nil, err
	}
	if err := waitFor(ctx, "a sentinel starts the failover", func() error {
		return s.sentinels[0].control().Do(ctx, "sentinel", "failover", sentinelName).Err()
	}); err != nil {
		return nil, err
	}
	primary, err := s.AwaitFailover(ctx, old)
	if err != nil {
		return nil, err
	}
	return primary, waitFor(ctx, "the old primary follows the new one", func() error {
		return followerOf(ctx, old, primary)
	})
}

// AwaitFailover returns the new primary once the sentinels agree on one that is
// not old: for after old was killed or frozen.
func (s *Sentinel) AwaitFailover(ctx context.Context, old *Redis) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	var primary *Redis
	err := waitFor(ctx, "another primary is agreed on", func() (err error) {
		if primary, err = s.Primary(ctx); err == nil && primary == old {
			err = fmt.Errorf("%s is the primary still", old.Addr())
		}
		return err
	})
	return primary, err
}

// Stop closes the clients, ends every server and deletes its folder.
func (s *Sentinel) Stop() error {
	s.clients.closeAll()
	return stopAll(append(append([]*Redis{}, s.sentinels...), s.data...))
}
