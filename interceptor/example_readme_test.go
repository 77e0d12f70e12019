package interceptor_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

type Invoice struct{ ID string }

type Billing struct{ pool *pgxpool.Pool }

// What stands between the marks is the README's quick start; a test compares the two.

// README: begin
var invoices = pgxfence.Table{Name: pgx.Identifier{"invoices"}} // it has a column fence_token bigint

func (b *Billing) Settle(ctx context.Context, in Invoice) (string, error) {
	err := invoices.Update(ctx, b.pool, pgxfence.Change{ // refused if this worker has lost its lease
		Key: pgxfence.Values{"id": in.ID},
		Set: pgxfence.Values{"status": "settled"},
	})
	return "settled " + in.ID, err
}

func run(rdb *redis.Client, billing *Billing) error {
	kit, err := interceptor.New(interceptor.Options{
		Redis: rdb,
		Guards: []interceptor.Guard{interceptor.For(billing.Settle, interceptor.Policy{
			Scope:    interceptor.ScopeNamespace, // settled once, whichever workflow asks
			Key:      interceptor.KeyFrom(func(in Invoice) any { return in.ID }),
			Resource: interceptor.ResourceFrom(func(in Invoice) string { return "invoice/" + in.ID }),
			LeaseTTL: 30 * time.Second, Retention: 24 * time.Hour,
		})},
	})
	if err != nil {
		return err
	}
	c, err := client.Dial(client.Options{Plugins: []client.Plugin{kit.Plugin()}})
	if err != nil {
		return err
	}
	defer c.Close()
	w := worker.New(c, "billing", worker.Options{})
	w.RegisterActivity(billing)
	return w.Run(worker.InterruptCh())
}

// README: end

var _ = run
