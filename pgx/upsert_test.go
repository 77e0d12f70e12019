package pgxfence_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// E29: the first write, by racing tokens.
func TestUpsertFirstWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kept := accounts
	kept.NeverDeleted = true
	for _, table := range []pgxfence.Table{accounts, kept} {
		b.exec("DELETE FROM accounts; DELETE FROM fencekit.fence")
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			token := int64(4 + i%2)
			wg.Go(func() { errs[i] = table.Upsert(b.at(token), b.pool, set(1, token*10)) })
		}
		wg.Wait()
		for i, err := range errs {
			if i%2 == 1 {
				require.NoError(t, err, "token 5 always passes")
			} else if err != nil {
				requireStale(t, err, 4, 5)
			}
		}
		require.Equal(t, is(50, 5), b.account(1))
		requireStale(t, table.Upsert(b.at(4), b.pool, set(1, 40)), 4, 5)
		require.NoError(t, table.Upsert(b.at(5), b.pool, set(1, 50)))
	}
}

func TestUpsertRefusesBadCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := set(1, 1)
	c.Where = "true"
	require.ErrorIs(t, accounts.Upsert(b.at(1), b.pool, c), pgxfence.ErrUsage)
	c = set(1, 1)
	c.Set["id"] = 2
	require.ErrorIs(t, accounts.Upsert(b.at(1), b.pool, c), pgxfence.ErrUsage)
	require.NoError(t, accounts.Upsert(b.at(1), b.pool, pgxfence.Change{Key: pgxfence.Values{"id": 77}}), "nothing but the key")
	require.Equal(t, is(0, 1), b.account(77))
}

// A deleted row leaves its fence behind.
func TestDeleteLeavesItsFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := pgxfence.Change{Key: pgxfence.Values{"id": 1}}
	require.NoError(t, accounts.Update(b.at(7), b.pool, set(1, 1)))
	requireStale(t, accounts.Delete(b.at(6), b.pool, gone), 6, 7)
	require.Equal(t, is(1, 7), b.account(1))
	require.Equal(t, int64(6), get[int64](b, "SELECT token FROM fencekit.fence"), "a refused delete may seal: its token was granted")

	require.NoError(t, accounts.Delete(b.at(9), b.pool, gone))
	requireStale(t, accounts.Upsert(b.at(8), b.pool, set(1, 80)), 8, 9)
	require.ErrorIs(t, accounts.Update(b.at(8), b.pool, set(1, 80)), pgxfence.ErrNotFound)
	require.ErrorIs(t, accounts.Delete(b.at(9), b.pool, gone), pgxfence.ErrNotFound, "a repeat finds nothing")
	require.NoError(t, accounts.Upsert(b.at(9), b.pool, set(1, 90)), "its own holder may insert again")
	require.Equal(t, is(90, 9), b.account(1))
}

func TestDeleteConditionAndUsage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := pgxfence.Change{Key: pgxfence.Values{"id": 1}, Where: "balance = @b", Args: pgx.NamedArgs{"b": 5}}
	require.ErrorIs(t, accounts.Delete(b.at(1), b.pool, c), pgxfence.ErrNotApplied)
	c.Args["b"] = 0
	require.NoError(t, accounts.Delete(b.at(1), b.pool, c))
	require.ErrorIs(t, accounts.Delete(b.at(1), b.pool, set(1, 1)), pgxfence.ErrUsage)
	kept := accounts
	kept.NeverDeleted = true
	require.ErrorIs(t, kept.Delete(b.at(1), b.pool, c), pgxfence.ErrUsage)
}

// A delete that waits for the upsert of an older token deletes what that inserted:
// seal and delete have a snapshot each.
func TestDeleteSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("DELETE FROM accounts")
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	require.NoError(t, accounts.Upsert(b.at(8), tx, set(1, 80)))
	deleted := make(chan error)
	go func() { deleted <- accounts.Delete(b.at(9), b.pool, pgxfence.Change{Key: pgxfence.Values{"id": 1}}) }()
	b.waiting(1)
	require.NoError(t, tx.Commit(b.ctx))
	require.NoError(t, <-deleted)
	require.Zero(t, get[int](b, "SELECT count(*) FROM accounts"))
}

// In the caller's transaction a stale seal aborts it.
func TestUpsertStaleInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgxfence.Seal(b.at(9), b.pool))
	err := pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
		requireStale(t, accounts.Upsert(b.at(8), tx, set(1, 1)), 8, 9)
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	require.Nil(t, b.account(1).Fence)
	require.NotErrorIs(t, err, fence.ErrStale)
}

// A table that obeys seals refuses a stale holder on rows that nobody has written.
func TestSealedTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sealed := pgxfence.Table{Name: accounts.Name, Sealed: true, NeverDeleted: true}
	many := pgxfence.Changes{Key: []pgxfence.Column{{Name: "id", Values: []int64{1, 2}}}, Set: []pgxfence.Column{{Name: "balance", Values: []int64{1, 1}}}}
	require.NoError(t, sealed.Update(b.at(5), b.pool, set(1, 5)), "nothing is sealed")
	require.NoError(t, pgxfence.Seal(b.at(9), b.pool))
	for _, mode := range modes {
		conn := b.connect(mode.use)
		requireStale(t, sealed.Update(b.at(8), conn, set(1, 8)), 8, 9)
		requireStale(t, sealed.Upsert(b.at(8), conn, set(70, 8)), 8, 9)
		outcomes, err := sealed.UpdateMany(b.at(8), conn, many)
		require.NoError(t, err)
		requireStale(t, outcomes[0], 8, 9)
		requireStale(t, outcomes[1], 8, 9)
	}
	require.ErrorIs(t, sealed.Update(b.at(8), b.pool, set(99, 8)), pgxfence.ErrNotFound)
	require.Equal(t, is(5, 5), b.account(1))
	require.NoError(t, sealed.Update(b.at(9), b.pool, set(1, 9)))
	require.NoError(t, accounts.Update(b.at(8), b.pool, set(2, 8)), "without Sealed a write looks at its row alone")
}

// A seal waits for a write that is under way, so nothing stale comes after it.
func TestSealWaitsForWritesUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sealed := pgxfence.Table{Name: accounts.Name, Sealed: true}
	require.NoError(t, pgxfence.Seal(b.at(5), b.pool))
	blocker, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	_, err = blocker.Exec(b.ctx, "SELECT FROM accounts WHERE id = 1 FOR UPDATE")
	require.NoError(t, err)
	written, newer := make(chan error, 1), make(chan error, 1)
	go func() { written <- sealed.Update(b.at(5), b.pool, set(1, 5)) }()
	b.waiting(1)
	go func() { newer <- pgxfence.Seal(b.at(9), b.pool) }()
	b.waiting(2)
	require.NoError(t, blocker.Commit(b.ctx))
	require.NoError(t, <-written)
	require.NoError(t, <-newer)
	require.Equal(t, is(5, 5), b.account(1))
	requireStale(t, sealed.Update(b.at(5), b.pool, set(1, 6)), 5, 9)
}
