package pgxfence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// EpochStore hands out the epochs of strict tokens: every Redis replication id that
// it has not seen before gets a higher epoch than all before it. It has the method
// that primitives.EpochStore asks for. Use [NewEpochStore].
type EpochStore struct{ db Querier }

// NewEpochStore keeps the epochs in the table fencekit.epoch of db, on a pool or a
// connection: in a transaction that is rolled back, an epoch would be given twice.
// The caller closes db.
func NewEpochStore(db Querier) *EpochStore { return &EpochStore{db: db} }

// Epoch returns the epoch of a Redis replication id (master_replid), from 1 to
// 8191, and registers it if it is new: once and for good. Any number of processes may
// register at a time. A lost reply on a pool is repeated once, which is harmless.
// A registration that another one has overtaken is repeated a few times; only in the
// caller's own transaction it may fail (40001, 23505).
// The error is [ErrUnavailable], [ErrIndeterminate] or [ErrSchema] as elsewhere;
// after 8191 ids it is a violated check (23514).
func (s *EpochStore) Epoch(ctx context.Context, replicationID string) (int64, error) {
	if replicationID == "" {
		return 0, usage("replicationID: it is empty")
	}
	var epoch int64
	st := statement{sql: "SELECT fencekit.epoch_of($1::text)", args: []any{replicationID}}
	for n := 1; ; n++ {
		inTx := false
		err := attempt(ctx, s.db, func(s *session) error {
			found := false
			inTx = s.inTx
			_, err := s.query(ctx, st, fence.Token{}, readOne(&epoch, &found, pgx.RowTo))
			return err
		})
		if n >= epochAttempts || inTx || !overtaken(err) || !pause(ctx, n) {
			return epoch, err
		}
	}
}

// epochAttempts bounds how often a registration is tried. Registrations are rare: a
// Redis failover makes one.
const epochAttempts = 5

// overtaken reports whether another registration came between. Above READ COMMITTED
// the function does not see it and takes the same epoch, or the same id, again.
func overtaken(err error) bool {
	return conflict(err) || !errors.Is(err, ErrIndeterminate) && stateOf(err) == "23505"
}
