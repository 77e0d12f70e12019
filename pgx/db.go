package pgxfence

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Querier is what most helpers need. *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn and
// pgx.Tx have it. The helpers never close it.
//
// On a *pgxpool.Pool a helper whose statement is safe to repeat does so once after
// a lost reply, on another connection; on everything else it returns
// [ErrIndeterminate].
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Batcher is what the helpers need that touch the fence table and a user's table in
// one round trip. It is met by the same types.
type Batcher interface {
	Querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

var (
	_ Batcher = (*pgxpool.Pool)(nil)
	_ Batcher = (*pgxpool.Conn)(nil)
	_ Batcher = (*pgx.Conn)(nil)
	_ Batcher = pgx.Tx(nil)
)

// session is one call's hold on a connection.
type session struct {
	db     Batcher
	conn   *pgx.Conn // nil behind a wrapper that hides it
	pooled *pgxpool.Conn

	wasOpen bool // the connection was open when the call began
	inTx    bool // what is sent becomes definite only with the caller's commit
}

// open takes a connection of its own from a pool, so that the call learns what
// became of it.
func open(ctx context.Context, db Querier) (*session, error) {
	switch d := db.(type) {
	case *pgxpool.Pool:
		c, err := d.Acquire(ctx)
		if err != nil {
			return nil, unavailable(err)
		}
		return &session{db: c, conn: c.Conn(), pooled: c, wasOpen: true}, nil
	case *pgx.Conn:
		return onConn(d, d), nil
	case interface{ Conn() *pgx.Conn }:
		return onConn(db, d.Conn()), nil
	}
	return &session{db: batcher(db)}, nil
}

func onConn(db Querier, conn *pgx.Conn) *session {
	s := &session{db: batcher(db), conn: conn}
	s.wasOpen = conn != nil && !conn.IsClosed()
	s.inTx = s.wasOpen && conn.PgConn().TxStatus() != 'I'
	return s
}

// queryOnly stands in for the batches that the helpers of a plain [Querier] never
// send.
type queryOnly struct{ Querier }

// SendBatch fails without sending.
func (queryOnly) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	return pgx.FailedBatchResults(b, usage("a batch needs a pool, a connection or a transaction"))
}

func batcher(db Querier) Batcher {
	if b, ok := db.(Batcher); ok {
		return b
	}
	return queryOnly{db}
}

// close gives a pooled connection back.
func (s *session) close() {
	if s.pooled != nil {
		s.pooled.Release()
	}
}

const discardTimeout = time.Second

// discard closes a pooled connection, so that the pool replaces it: it leads to a
// server that does not take writes any more.
func (s *session) discard() {
	if s.pooled != nil {
		closeNow(s.conn)
	}
}

// closeNow does not wait long for a server to say goodbye.
func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// execer is a shorter way for statements without rows. All but wrappers have it.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// query sends one statement and lets collect read its rows; nil reads none.
func (s *session) query(ctx context.Context, st statement, tok fence.Token, collect func(pgx.Rows) error) (pgconn.CommandTag, error) {
	if direct, ok := s.db.(execer); ok && collect == nil {
		tag, err := direct.Exec(fenced(ctx), st.sql, st.args...)
		return tag, s.failed(err, tok)
	}
	rows, err := s.db.Query(fenced(ctx), st.sql, st.args...)
	if err != nil {
		return pgconn.CommandTag{}, s.failed(err, tok)
	}
	tag, err := drain(rows, collect)
	return tag, s.failed(err, tok)
}

// drain reads rows to their end: an error of the server comes last.
func drain(rows pgx.Rows, collect func(pgx.Rows) error) (pgconn.CommandTag, error) {
	defer rows.Close()
	if collect != nil {
		if err := collect(rows); err != nil {
			rows.Close()
			if late := rows.Err(); late != nil {
				return rows.CommandTag(), late
			}
			return rows.CommandTag(), err
		}
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

func (s *session) failed(err error, tok fence.Token) error {
	if stateOf(err) == stateReadOnly {
		s.discard()
	}
	return s.classify(err, tok)
}

// statement is SQL with positional arguments.
type statement struct {
	sql  string
	args []any
}

// attempt runs f on a connection. On a pool it runs f a second time if the first
// reply was lost, which f must allow: the same absolute values under the same
// token.
func attempt(ctx context.Context, db Querier, f func(*session) error) error {
	err := once(ctx, db, f)
	lost, ok := err.(*IndeterminateError) //nolint:errorlint // only our own, just made
	if _, pool := db.(*pgxpool.Pool); !ok || !pool || ctx.Err() != nil {
		return err
	}
	if again := once(ctx, db, f); again != nil {
		return &IndeterminateError{Err: lost.Err, Repeat: again}
	}
	return nil
}

func once(ctx context.Context, db Querier, f func(*session) error) error {
	s, err := open(ctx, db)
	if err != nil {
		return err
	}
	defer s.close()
	return f(s)
}

// tokenFor takes the token of resource from ctx; "" is the only one there.
func tokenFor(ctx context.Context, resource string) (fence.Token, error) {
	if resource == "" {
		return fence.FromContext(ctx)
	}
	return fence.ForResource(ctx, resource)
}
