package testsuite_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

// Where Proof.Reset leaves the ledger, Once finds what an earlier run has done under a
// business key: the proof says so.
func TestLedgerThatIsNotReset(t *testing.T) {
	t.Parallel()
	db := database(t)
	s := newShop(t, db)
	deposit := func(ctx context.Context, o order) error {
		_, err := pgxfence.Once(ctx, s.pool, pgxfence.Effect{Key: o.ID, Name: "deposit"}, func(tx pgx.Tx) (bool, error) {
			_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", o.Amount, o.Account)
			return true, err
		})
		return err
	}
	s.kit.Guard(interceptor.For("deposit", policy()))
	s.kit.Register(deposit, registerAs("deposit"))
	proof := testsuite.Proof{Activity: "deposit", Input: order{Account: 1, Amount: 10, ID: "a"}, State: s.state,
		Reset: func(ctx context.Context) error {
			_, err := db.Exec(ctx, "UPDATE accounts SET balance = 0")
			return err
		}}
	prove := func(f *fakeT) { testsuite.ProveFenced(f, s.kit, proof) }
	requireFails(t, tried(prove), "the state is", "cause: the ledger is not reset") // the second run finds it
	requireFails(t, tried(prove), "is done already", "cause: the ledger is not reset")
	requireFails(t, tried(func(f *fakeT) { testsuite.ProveIdempotent(f, s.kit, proof) }), "cause: the ledger is not reset")
	proof.Reset = s.reset
	requirePasses(t, tried(prove))
}
