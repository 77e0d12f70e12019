package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// Config says what a sample needs. Redis is always there.
type Config struct {
	Temporal bool
	Postgres bool

	// UI serves Temporal's web interface too, if the server is started here.
	UI bool

	// OwnDatabase makes a database that is dropped by Close. Default: the one that
	// DATABASE_URL names.
	OwnDatabase bool
}

// Stack is a running set of servers, with clients.
type Stack struct {
	Redis    *redis.Client
	Postgres *pgxpool.Pool // nil unless asked for

	temporal *devstack.Temporal
	env      []string
	started  bool // at least one server is ours
	closers  []func()
}

// Start connects to the servers that the environment names and starts the others.
func Start(ctx context.Context, cfg Config) (_ *Stack, err error) {
	s := &Stack{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.startRedis(ctx); err != nil {
		return nil, err
	}
	if cfg.Postgres {
		if err := s.startPostgres(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Temporal {
		if err := s.startTemporal(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Connect is Start for a program that comes second: what the environment does not name
// is where docker-compose.yml has it, and nothing is started.
func Connect(ctx context.Context, cfg Config) (*Stack, error) {
	for _, address := range [][2]string{
		{"TEMPORAL_ADDRESS", "127.0.0.1:7233"},
		{"REDIS_URL", "redis://127.0.0.1:6379"},
		{"DATABASE_URL", "postgres://postgres:postgres@127.0.0.1:5432/postgres"},
	} {
		if os.Getenv(address[0]) == "" {
			if err := os.Setenv(address[0], address[1]); err != nil {
				return nil, err
			}
		}
	}
	s, err := Start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w\nstart the sample's worker first and set the variables that it prints, or run make up", err)
	}
	return s, nil
}

func (s *Stack) startRedis(ctx context.Context) error {
	r, err := devstack.StartRedis(ctx, devstack.RedisConfig{})
	if err != nil {
		return err
	}
	s.onClose(r.Stop)
	options := r.Options()
	// Without it go-redis goes on waiting for a reply when the context has ended.
	options.ContextTimeoutEnabled = true
	s.Redis = redis.NewClient(options)
	s.onClose(s.Redis.Close)
	s.named("REDIS_URL", fmt.Sprintf("redis://%s/%d", r.Addr(), options.DB))
	return nil
}

func (s *Stack) startPostgres(ctx context.Context, cfg Config) error {
	p, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return err
	}
	s.onClose(p.Stop)
	database := ""
	if cfg.OwnDatabase {
		if database, err = p.CreateDatabase(ctx, ""); err != nil {
			return err
		}
		s.onClose(func() error { return p.DropDatabase(context.Background(), database) })
	}
	url := p.URL(database)
	if s.Postgres, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	s.onClose(func() error { s.Postgres.Close(); return nil })
	s.named("DATABASE_URL", url)
	if cfg.OwnDatabase {
		s.set("DATABASE_URL", url)
	}
	return nil
}

func (s *Stack) startTemporal(ctx context.Context, cfg Config) error {
	t, err := devstack.StartTemporal(ctx, devstack.TemporalConfig{UI: cfg.UI})
	if err != nil {
		return err
	}
	s.onClose(t.Stop)
	s.temporal = t
	s.named("TEMPORAL_ADDRESS", t.Addr())
	return nil
}

// Dial returns a client of the Temporal server, which Close closes.
func (s *Stack) Dial(edits ...func(*client.Options)) (client.Client, error) {
	if s.temporal == nil {
		return nil, errors.New("stack: this sample has asked for no Temporal server")
	}
	return s.temporal.Client(edits...)
}

// UIURL is where Temporal's web interface is, or "".
func (s *Stack) UIURL() string { return s.temporal.UIURL() }

// Env names the servers to another process, as NAME=value.
func (s *Stack) Env() []string { return slices.Clone(s.env) }

// Close closes the clients and stops the servers that Start has started.
func (s *Stack) Close() {
	for _, stop := range slices.Backward(s.closers) {
		stop()
	}
	s.closers = nil
}

// named notes how others reach a server: as the environment says, if it does.
func (s *Stack) named(variable, value string) {
	if given := os.Getenv(variable); given != "" {
		value = given
	} else {
		s.started = true
	}
	s.set(variable, value)
}

func (s *Stack) set(variable, value string) {
	s.env = slices.DeleteFunc(s.env, func(e string) bool { return len(e) > len(variable) && e[:len(variable)+1] == variable+"=" })
	s.env = append(s.env, variable+"="+value)
}

// onClose stops things in the reverse order of their start. Whoever goes has no use
// for the error.
func (s *Stack) onClose(stop func() error) {
	s.closers = append(s.closers, func() { _ = stop() })
}

// Announce tells on standard error how another terminal reaches what was started here.
func (s *Stack) Announce() {
	if !s.started {
		return
	}
	fmt.Fprintln(os.Stderr, "Servers are up. In another terminal:")
	for _, e := range s.env {
		fmt.Fprintf(os.Stderr, "  export %s\n", e)
	}
}

// Main runs a program until it returns, or is interrupted, which ends its context.
func Main(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
