package pgxfence_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

var _ interface {
	Epoch(ctx context.Context, replicationID string) (int64, error)
} = (*pgxfence.EpochStore)(nil)

// Every new replication id gets a higher epoch than all before it, also when many
// register at a time; a known one keeps its own.
func TestEpochStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := pgxfence.NewEpochStore(b.pool)
	seen := make([]int64, 40)
	var wg sync.WaitGroup
	for i := range seen {
		wg.Go(func() {
			epoch, err := store.Epoch(b.ctx, fmt.Sprint("id-", i%10))
			require.NoError(t, err)
			seen[i] = epoch
		})
	}
	wg.Wait()
	distinct := map[int64]bool{}
	for i, epoch := range seen {
		require.Equal(t, seen[i%10], epoch, "one id, one epoch")
		require.True(t, epoch >= 1 && epoch <= 10)
		distinct[epoch] = true
	}
	require.Len(t, distinct, 10)
	next, err := store.Epoch(b.ctx, "promoted")
	require.NoError(t, err)
	require.Equal(t, int64(11), next)
	old, err := store.Epoch(b.ctx, "id-0")
	require.NoError(t, err)
	require.Equal(t, seen[0], old, "the old primary keeps its lower one")
}

// Under a higher isolation, a registration that was overtaken is tried again.
func TestEpochStoreIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		b := setup(t)
		pool := b.open(b.url, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		})
		store := pgxfence.NewEpochStore(pool)
		seen := make([]int64, 4)
		var wg sync.WaitGroup
		for i := range seen {
			wg.Go(func() {
				epoch, err := store.Epoch(b.ctx, fmt.Sprint("id-", i))
				require.NoError(t, err, level)
				seen[i] = epoch
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []int64{1, 2, 3, 4}, seen, level)
	}
}

func TestEpochStoreLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := pgxfence.NewEpochStore(b.pool)
	_, err := store.Epoch(b.ctx, "")
	require.ErrorIs(t, err, pgxfence.ErrUsage)
	b.exec("INSERT INTO fencekit.epoch VALUES ('last', 8191)")
	_, err = store.Epoch(b.ctx, "one more")
	requireState(t, err, "23514")
}

// A lost reply is answered by asking again: the id has one epoch either way.
func TestEpochStoreLostReply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	n := 0
	everyCut(t, proxy, func(string) {
		require.NoError(t, pool.Ping(b.ctx))
		n++
	}, func(cut string) {
		epoch, err := pgxfence.NewEpochStore(pool).Epoch(b.ctx, fmt.Sprint("id-", n))
		require.NoError(t, err, cut)
		require.Equal(t, int64(n), epoch, cut)
	})
}
