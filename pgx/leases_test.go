package pgxfence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

var _ primitives.EpochStore = (*pgxfence.EpochStore)(nil)

const ledgerLine = "account/1"

// leases are real ones, on a Redis that the test may break.
func leases(t *testing.T, opts primitives.Options) (*devstack.Redis, *primitives.Guard) {
	t.Helper()
	r := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	opts.Timeout = 30 * time.Second // a loaded machine is not what is tested
	store, err := primitives.New(r.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), opts)
	require.NoError(t, err)
	guard, err := primitives.NewGuard(store, primitives.GuardOptions{})
	require.NoError(t, err)
	return r, guard
}

// granted is a grant of the resource to a holder that may be a zombie later on.
func granted(t *testing.T, g *primitives.Guard) (context.Context, *primitives.Claim) {
	t.Helper()
	start, err := g.Begin(t.Context(), primitives.Op{Key: anyKey(t), Resource: ledgerLine})
	require.NoError(t, err)
	return fence.NewContext(t.Context(), start.Claim.Token()), start.Claim
}

func anyKey(t *testing.T) primitives.Key {
	t.Helper()
	key, err := primitives.NewKey(t.Name(), time.Now().UnixNano())
	require.NoError(t, err)
	return key
}

// B04, F09, F20: Redis forgets everything while a holder is at work. The next grant
// writes at once, and the old holder is refused by the row.
func TestARowTakesTheNextTokenAfterRedisForgot(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*devstack.Redis) error{
		"flush":   func(r *devstack.Redis) error { return r.Client().FlushAll(context.Background()).Err() },
		"restart": func(r *devstack.Redis) error { return r.Restart(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			r, guard := leases(t, primitives.Options{})
			zombie, claim := granted(t, guard)
			require.NoError(t, accounts.Update(zombie, b.pool, set(1, 41)))
			require.NoError(t, forget(r))
			next, successor := granted(t, guard)
			require.NoError(t, accounts.Update(next, b.pool, set(1, 50)))

			var stale *fence.StaleError
			require.ErrorAs(t, accounts.Update(zombie, b.pool, set(1, 70)), &stale)
			require.Equal(t, successor.Token().Value, stale.Current)
			require.Equal(t, claim.Token().Value, stale.Token)
			require.Equal(t, is(50, int64(successor.Token().Value)), b.account(1))
		})
	}
}

// B04: the row carries a token that Redis could not have known. The body is refused once,
// which raises the floor, and the next call passes: never an endless "stale".
func TestARefusalByARowRaisesTheNextToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, guard := leases(t, primitives.Options{})
	ahead := fence.Value(1) << 52
	b.exec("UPDATE accounts SET fence_token = $1 WHERE id = 1", int64(ahead))
	write := func() error {
		_, err := guard.Do(t.Context(), primitives.Op{Key: anyKey(t), Resource: ledgerLine},
			func(ctx context.Context) ([]byte, error) { return nil, accounts.Update(ctx, b.pool, set(1, 5)) })
		return err
	}
	require.ErrorIs(t, write(), fence.ErrStale)
	require.NoError(t, write())
}

// The epochs in Postgres order the tokens of a Redis that starts anew, whatever its
// clock says; a Postgres that is away grants nothing.
func TestEpochsInPostgresMakeTokensStrict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	epochs := pgxfence.NewEpochStore(b.pool)
	r, guard := leases(t, primitives.Options{Epochs: epochs})
	_, first := granted(t, guard)
	require.NoError(t, r.Restart(t.Context()))
	_, second := granted(t, guard)
	require.EqualValues(t, []int64{1, 2}, []int64{first.Token().Value.Epoch(), second.Token().Value.Epoch()})

	require.NoError(t, r.Restart(t.Context()))
	b.pool.Close()
	_, err := guard.Begin(t.Context(), primitives.Op{Key: anyKey(t), Resource: ledgerLine})
	require.True(t, errors.Is(err, primitives.ErrUnavailable), "%v", err)
}
