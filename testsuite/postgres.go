package testsuite

import (
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// fewest is how many connections the kit's pool may open at least: a frozen run keeps its
// own, one for each goroutine that was about to send something.
const fewest = 32

func (k *Kit) openPostgres() error {
	config, err := k.postgresConfig()
	if config == nil || err != nil {
		return err
	}
	config.MaxConns = max(config.MaxConns, fewest)
	config.MinConns, config.MinIdleConns = 0, 0
	own := config.Copy()
	own.ConnConfig.Tracer = nil
	watch := newTracer(k)
	if before := config.ConnConfig.Tracer; before != nil {
		config.ConnConfig.Tracer = multitracer.New(before, watch)
	} else {
		config.ConnConfig.Tracer = watch
	}
	if k.pool, err = pgxpool.NewWithConfig(k.ctx, config); err != nil {
		return err
	}
	if k.direct, err = pgxpool.NewWithConfig(k.ctx, own); err != nil {
		k.pool.Close()
		return err
	}
	k.t.Cleanup(k.closePostgres)
	return nil
}

func (k *Kit) postgresConfig() (*pgxpool.Config, error) {
	if k.opts.Postgres != nil {
		return k.opts.Postgres.Config(), nil
	}
	url := os.Getenv("DATABASE_URL")
	if !k.opts.FromEnvironment || url == "" {
		return nil, nil //nolint:nilnil // no Postgres is fine
	}
	return pgxpool.ParseConfig(url)
}

// closePostgres does not wait for ever for a connection that somebody has not given
// back.
func (k *Kit) closePostgres() {
	for _, pool := range []*pgxpool.Pool{k.pool, k.direct} {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(patience):
			k.t.Errorf("testsuite: an activity has not given back %d connections of the pool", pool.Stat().AcquiredConns())
		}
	}
}

// newTracer watches the statements of the kit's pool.
func newTracer(k *Kit) *tracer {
	t := &tracer{kit: k}
	t.fences.OnUnfenced = func(ctx context.Context, _ pgxfence.Unfenced) {
		if s := stepFrom(ctx); s != nil {
			s.Unfenced = true
		}
	}
	return t
}
