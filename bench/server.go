package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// server is a Redis process of our own, and the one client that everything beside
// everything else is measured on.
type server struct {
	redis *devstack.Redis
	rdb   *redis.Client
	trips atomic.Int64  // requests that the client has written; a pipeline is one
	rtt   time.Duration // added to each of them, as by a network
}

func startServer(ctx context.Context, rtt time.Duration) (*server, error) {
	r, err := devstack.StartRedis(ctx, devstack.RedisConfig{Own: true})
	if err != nil {
		return nil, err
	}
	s := &server{redis: r, rtt: rtt}
	s.rdb = s.client(func(o *redis.Options) { o.Dialer = s.dial })
	return s, s.rdb.Ping(ctx).Err()
}

// client is a client with the options that fencekit asks for, and enough
// connections for every goroutine that we start.
func (s *server) client(edit func(*redis.Options)) *redis.Client {
	return s.redis.Client(func(o *redis.Options) {
		o.ContextTimeoutEnabled = true
		o.PoolSize = 256
		if edit != nil {
			edit(o)
		}
	})
}

// dial counts what is written: go-redis flushes once for each round trip.
func (s *server) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	return countedConn{conn, s}, err
}

type countedConn struct {
	net.Conn
	server *server
}

func (c countedConn) Write(b []byte) (int, error) {
	c.server.trips.Add(1)
	if c.server.rtt > 0 {
		time.Sleep(c.server.rtt)
	}
	return c.Conn.Write(b)
}

// clear empties the server between rounds, so that none pays for the keys of
// those before it.
func (s *server) clear(ctx context.Context) error { return s.rdb.FlushAll(ctx).Err() }

// guard is a store on client, and a guard on that, with default options.
func guard(client primitives.Client) (*primitives.Store, *primitives.Guard, error) {
	store, err := primitives.New(client, primitives.Options{})
	if err != nil {
		return nil, nil, err
	}
	g, err := primitives.NewGuard(store, primitives.GuardOptions{})
	return store, g, err
}

var sequence atomic.Int64

// fresh is a name that nobody has used.
func fresh() string { return fmt.Sprintf("bench-%d", sequence.Add(1)) }

// op is an operation that nobody has begun.
func op() (primitives.Op, error) {
	key, err := primitives.NewKey("bench", fresh())
	return primitives.Op{Key: key}, err
}
