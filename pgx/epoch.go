package pgxfence

import (
	"context"

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
// The error is [ErrUnavailable], [ErrIndeterminate] or [ErrSchema] as elsewhere;
// after 8191 ids it is a violated check (23514).
func (s *EpochStore) Epoch(ctx context.Context, replicationID string) (int64, error) {
	if replicationID == "" {
		return 0, usage("replicationID: it is empty")
	}
	var epoch int64
	st := statement{sql: "SELECT fencekit.epoch_of($1::text)", args: []any{replicationID}}
	err := attempt(ctx, s.db, func(s *session) error {
		found := false
		_, err := s.query(ctx, st, fence.Token{}, readOne(&epoch, &found, pgx.RowTo))
		return err
	})
	return epoch, err
}
