package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisConfig says what kind of Redis is needed. The zero value takes any.
type RedisConfig struct {
	// Own asks for a server process that nobody else uses: one to configure,
	// freeze, kill and restart. REDIS_URL and the stand-in are passed over.
	// Default false; true whenever Conf is not empty.
	Own bool

	// Conf holds lines of redis.conf, such as "appendonly yes" or
	// "user app on >secret ~fk:* +@all". They come after the dev stack's own
	// (no persistence, replication without delay), so they win. Lines that set
	// port, bind, dir or logfile break the start. Default none.
	Conf []string
}

func (c RedisConfig) own() bool { return c.Own || len(c.Conf) > 0 }

// ErrNoRedis says that the machine has no Redis server to run and that no other
// kind would do. Its text names the install command.
var ErrNoRedis = errors.New("devstack: neither redis-server nor valkey-server is on PATH; " +
	"install one: apt-get install redis-server, brew install redis, or make setup")

// Redis is one running Redis server. Its methods may be called from several
// goroutines.
//
// Those that change the server (Config, Kill, Freeze, Thaw, Restart) need a
// process that StartRedis started; for any other they do nothing and return an
// error that matches [errors.ErrUnsupported].
type Redis struct {
	options *redis.Options
	node    *daemon  // nil unless it is a process of ours
	standIn *standIn // nil unless it is miniredis

	clients closers
	mu      sync.Mutex
	admin   *redis.Client // by control
}

// StartRedis starts a Redis server or finds one, in the order that the package
// documentation gives, and returns when it answers. The caller stops it with
// [Redis.Stop]. ctx bounds the start only.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	if url := os.Getenv("REDIS_URL"); url != "" && !cfg.own() {
		return connectRedis(ctx, url)
	}
	binary, err := redisBinary()
	switch {
	case err == nil:
		return startServer(ctx, binary, false, cfg.Conf)
	case cfg.own() || RequireReal():
		return nil, err
	}
	return startStandIn()
}

// RequireReal reports whether the environment forbids stand-ins and skipped
// tests: FENCEKIT_REQUIRE_REAL=1.
func RequireReal() bool { return os.Getenv("FENCEKIT_REQUIRE_REAL") == "1" }

func redisBinary() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoRedis
}

func connectRedis(ctx context.Context, url string) (*Redis, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("devstack: REDIS_URL: %w", err)
	}
	r := &Redis{options: options}
	if err := r.control().Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("devstack: REDIS_URL: %w", err), r.Stop())
	}
	return r, nil
}

// startServer starts a process that may be a Sentinel too.
func startServer(ctx context.Context, binary string, sentinel bool, conf []string) (*Redis, error) {
	n, err := startNode(ctx, binary, sentinel, conf)
	if err != nil {
		return nil, err
	}
	return &Redis{node: n, options: &redis.Options{Addr: n.addr(), Password: passwordIn(conf)}}, nil
}

// passwordIn is what the last requirepass line sets.
func passwordIn(conf []string) (password string) {
	for _, line := range conf {
		if f := strings.Fields(line); len(f) == 2 && strings.EqualFold(f[0], "requirepass") {
			password = strings.Trim(f[1], `"`)
		}
	}
	return password
}

// Addr is the server's host:port. It stays the same over a restart.
func (r *Redis) Addr() string { return r.options.Addr }

// Real reports whether this is a Redis server and not the stand-in.
func (r *Redis) Real() bool { return r.standIn == nil }

// Options returns a fresh copy of the options that reach the server, for callers
// that build a client of their own and close it themselves.
func (r *Redis) Options() *redis.Options {
	o := *r.options
	return &o
}

// Client returns a new client with go-redis's defaults, as changed by edits.
// [Redis.Stop] closes it; closing it earlier is fine.
func (r *Redis) Client(edits ...func(*redis.Options)) *redis.Client {
	options := r.Options()
	for _, edit := range edits {
		edit(options)
	}
	client := redis.NewClient(options)
	r.clients.add(client)
	return client
}

// controlTimeout bounds every command that the dev stack itself sends. It is for servers
// that hang: they are not asked if the dev stack has frozen them itself.
const controlTimeout = 15 * time.Second

// control is the dev stack's own client: no retries, short timeouts.
func (r *Redis) control() *redis.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admin == nil {
		o := r.Options()
		o.MaxRetries = -1
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = controlTimeout, controlTimeout, controlTimeout
		o.DialerRetries = 1
		o.ContextTimeoutEnabled = true
		o.DisableIdentity = true
		o.Protocol = 2
		r.admin = redis.NewClient(o)
		r.clients.add(r.admin)
	}
	return r.admin
}

// Config sets a configuration directive of the running server. A restart undoes
// it.
func (r *Redis) Config(ctx context.Context, name, value string) error {
	if r.node == nil {
		return r.notOwn("Config")
	}
	if err := r.control().ConfigSet(ctx, name, value).Err(); err != nil {
		return fmt.Errorf("devstack: CONFIG SET %s: %w", name, err)
	}
	return nil
}

// Kill ends the server at once, as kill -9 does, and returns when it is gone.
// Killing a killed server is fine.
func (r *Redis) Kill() error {
	if r.node == nil {
		return r.notOwn("Kill")
	}
	return r.node.kill()
}

// Freeze stops the server with SIGSTOP: connections stay open and nothing
// answers, as behind a network partition. [Redis.Thaw] ends it.
func (r *Redis) Freeze() error {
	if r.node == nil {
		return r.notOwn("Freeze")
	}
	return r.node.freeze()
}

// Thaw lets a frozen server go on, with everything that was sent to it meanwhile.
func (r *Redis) Thaw() error {
	if r.node == nil {
		return r.notOwn("Thaw")
	}
	return r.node.thaw()
}

// Restart kills the server, unless that has happened already, and starts it again
// on the same port with the same configuration. Its data are gone, unless
// RedisConfig.Conf switched persistence on.
func (r *Redis) Restart(ctx context.Context) error {
	if r.node == nil {
		return r.notOwn("Restart")
	}
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	return r.node.restart(ctx)
}

// Stop closes the clients, ends the server if it is ours and deletes its folder.
// Stopping twice is fine.
func (r *Redis) Stop() error {
	r.clients.closeAll()
	switch {
	case r.node != nil:
		return r.node.remove()
	case r.standIn != nil:
		r.standIn.stop()
	}
	return nil
}

func (r *Redis) notOwn(method string) error {
	return fmt.Errorf("devstack: %s: the Redis at %s is no process of this one; set RedisConfig.Own: %w",
		method, r.Addr(), errors.ErrUnsupported)
}
