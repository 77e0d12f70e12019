package primitives

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is what fencekit needs of a Redis client. *redis.Client (also one made
// by redis.NewFailoverClient), *redis.ClusterClient and *redis.AutoPipeliner
// satisfy it. The caller keeps it, and closes it after everything that uses it.
//
// Set ContextTimeoutEnabled in the client's options. Without it go-redis ignores
// a context that ends while a command is in flight; fencekit returns in time all
// the same, but must leave a goroutine behind that waits for go-redis.
type Client interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
	Scan(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Options configure a [Store]. The zero value works.
type Options struct {
	// Prefix starts every key and channel name. Give each environment that shares
	// a Redis its own. 1 to 64 letters, digits and ". _ - : /"; default "fencekit".
	Prefix string

	// Timeout is the budget of one step of the protocol, in which transient errors
	// are retried; it does not count waiting for a busy lease. At least 10ms;
	// default 2s.
	Timeout time.Duration

	// TokenRetention is how long Redis remembers the last token of a resource after
	// its last grant. Tokens also follow the Redis clock, so this only matters when
	// that clock is set back: the next token is higher all the same while the last
	// one is remembered. At least 1s; default 1h.
	TokenRetention time.Duration

	// Epochs makes tokens strict: higher than all before them although a replica with
	// a clock that is behind was promoted, or Redis restarted without its data under
	// one. Redis's user needs the right to INFO. Each new replication id costs one call
	// of Epoch; while that fails, nothing is granted ([ErrUnavailable]). Once switched
	// on, leave it on, everywhere. Default: tokens follow the Redis clock alone.
	Epochs EpochStore
}

const (
	minTimeout        = 10 * time.Millisecond
	minTokenRetention = time.Second
)

var prefixRule = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = "fencekit"
	}
	if !prefixRule.MatchString(o.Prefix) {
		return o, &OptionError{"Prefix", `must be 1 to 64 letters, digits and ". _ - : /"; braces would move keys between cluster slots`}
	}
	var err error
	if o.Timeout, err = checkDuration("Timeout", o.Timeout, 2*time.Second, minTimeout, maxLease); err != nil {
		return o, err
	}
	o.TokenRetention, err = checkDuration("TokenRetention", o.TokenRetention, time.Hour, minTokenRetention, maxRetention)
	return o, err
}

// Store keeps leases, records and gates in one Redis. It is safe for concurrent
// use, and one for each process is right: waiters share its subscription, and
// leases that are kept alive share its renewals. It holds no connection and runs
// no goroutine while nothing waits and nothing is kept, so it needs no closing.
type Store struct {
	client  Client
	opts    Options
	names   names
	scripts *scripts
	direct  bool // the client honours a context that ends in mid-command
	epochs  *epochs
	hub     *hub
	keeper  *keeper
}

// New returns a store on client. It sends nothing: see [Store.Check] for that. It
// returns an [*OptionError] for an option that breaks its rule, and for a client
// that cannot work: nil, or a *redis.Ring, whose shards do not share a token
// sequence and forget a lease when one of them leaves the ring.
func New(client Client, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	scripts, err := embeddedScripts()
	if err != nil {
		return nil, err
	}
	direct, err := inspectClient(client)
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, opts: opts, names: newNames(opts.Prefix), scripts: scripts, direct: direct,
		epochs: &epochs{store: opts.Epochs}}
	s.hub = newHub(client, s.names.wake(newNonce()))
	s.keeper = newKeeper(s)
	return s, nil
}

// inspectClient refuses clients that cannot work, and says whether this one
// honours a context that ends in mid-command.
func inspectClient(client Client) (direct bool, err error) {
	if client == nil {
		return false, &OptionError{"client", "is nil"}
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return false, &OptionError{"client", fmt.Sprintf("is a nil %T", client)}
	}
	switch c := client.(type) {
	case oneServer:
		return c.Options().ContextTimeoutEnabled, nil
	case cluster:
		return c.Options().ContextTimeoutEnabled, nil
	case interface{ Options() *redis.RingOptions }:
		return false, &OptionError{"client", "is a *redis.Ring: when a shard leaves the ring its leases are forgotten and " +
			"its token sequences start anew; use Sentinel or Cluster"}
	}
	return false, nil
}

// The kinds of clients, also when they are wrapped.
type (
	oneServer interface {
		Options() *redis.Options
	}
	cluster interface {
		Options() *redis.ClusterOptions
		ForEachMaster(ctx context.Context, fn func(context.Context, *redis.Client) error) error
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}
)

// newNonce draws the 128 random bits by which one attempt is known.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return hex.EncodeToString(b[:])
}
