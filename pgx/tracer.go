package pgxfence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

type fencedKey struct{}

// fenced marks what a helper sends.
func fenced(ctx context.Context) context.Context { return context.WithValue(ctx, fencedKey{}, true) }

// Unfenced is a write that was sent under a guarded context past the helpers.
type Unfenced struct {
	// SQL is the statement, or "COPY table" for a copy.
	SQL string
}

// Tracer reports every INSERT, UPDATE, DELETE, MERGE and COPY into a table that is
// sent under a context with a token, but neither by a helper of this package nor in
// a sealed transaction; in a string of several statements and in EXPLAIN ANALYZE too. Set it as ConnConfig.Tracer, together with others by pgx's
// package multitracer. It goes by the words of the statement: what a function or a
// prepared statement's name hides, it does not see; for that there is [Enforce].
// Nor does it see a goroutine that has left the guarded context.
//
// It must not be copied after its first use, nor changed.
type Tracer struct {
	// OnUnfenced is called with each such write, before it is sent, by the goroutine
	// that sends it: count it in a metric, log it. Required: without it nothing is
	// reported.
	OnUnfenced func(context.Context, Unfenced)
}

var (
	_ pgx.QueryTracer    = (*Tracer)(nil)
	_ pgx.BatchTracer    = (*Tracer)(nil)
	_ pgx.CopyFromTracer = (*Tracer)(nil)
)

// T is the part of testing.TB that [FailUnfenced] uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// FailUnfenced returns a tracer for tests: it fails t with each unfenced write.
func FailUnfenced(t T) *Tracer {
	return &Tracer{OnUnfenced: func(_ context.Context, u Unfenced) {
		t.Helper()
		t.Errorf("pgxfence: an unfenced write under a guard: %s", u.SQL)
	}}
}

// TraceQueryStart implements [pgx.QueryTracer].
func (t *Tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	forgetSeal(conn, data.SQL)
	t.look(ctx, conn, data.SQL)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*Tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements [pgx.BatchTracer].
func (t *Tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		forgetSeal(conn, q.SQL)
		t.look(ctx, conn, q.SQL)
	}
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (*Tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements [pgx.BatchTracer].
func (*Tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TraceCopyFromStart implements [pgx.CopyFromTracer].
func (t *Tracer) TraceCopyFromStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromStartData) context.Context {
	if unguarded(ctx, conn) {
		return ctx
	}
	t.report(ctx, "COPY "+data.TableName.Sanitize())
	return ctx
}

// TraceCopyFromEnd implements [pgx.CopyFromTracer].
func (*Tracer) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func (t *Tracer) look(ctx context.Context, conn *pgx.Conn, sql string) {
	if !unguarded(ctx, conn) && shapeOf(sql).writes {
		t.report(ctx, sql)
	}
}

func (t *Tracer) report(ctx context.Context, sql string) {
	if t.OnUnfenced != nil {
		t.OnUnfenced(ctx, Unfenced{SQL: sql})
	}
}

// unguarded reports whether a write may pass: there is no token, a helper sends it,
// or the transaction is sealed.
func unguarded(ctx context.Context, conn *pgx.Conn) bool {
	if ctx.Value(fencedKey{}) != nil || sealed(conn) {
		return true
	}
	_, err := fence.FromContext(ctx)
	return errors.Is(err, fence.ErrNoToken)
}

// sealed reports whether conn is in a transaction that has been sealed.
func sealed(conn *pgx.Conn) bool {
	return conn.PgConn().CustomData()[sealedKey] != nil && conn.PgConn().TxStatus() != 'I'
}

// forgetSeal takes the mark away when its transaction is over, or ends with what is
// about to be sent, so that it does not pass to the next one.
func forgetSeal(conn *pgx.Conn, sql string) {
	if conn.PgConn().CustomData()[sealedKey] == nil {
		return
	}
	if conn.PgConn().TxStatus() == 'I' || shapeOf(sql).ends {
		unmarkSealed(conn)
	}
}
