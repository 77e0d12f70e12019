package testsuite

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// tracer stands before each statement of the kit's pool.
type tracer struct {
	kit    *Kit
	fences pgxfence.Tracer // knows what is unfenced
}

var (
	_ pgx.QueryTracer    = (*tracer)(nil)
	_ pgx.BatchTracer    = (*tracer)(nil)
	_ pgx.CopyFromTracer = (*tracer)(nil)
)

// stateStale is the SQLSTATE by which the schema of pgxfence refuses an old token.
const stateStale = "ZF001"

type stepKey struct{}

// sent is a step that is under way.
type sent struct {
	*Step
	run *Run
}

func stepFrom(ctx context.Context) *Step {
	s, _ := ctx.Value(stepKey{}).(sent)
	return s.Step
}

// start is common to all that is sent. look finds out what is unfenced.
func (t *tracer) start(ctx context.Context, conn *pgx.Conn, text string, look func(context.Context)) context.Context {
	r, stray := t.kit.owner(ctx)
	if r == nil {
		return ctx
	}
	s := &Step{System: Postgres, Text: text, Stray: stray, session: conn.PgConn().PID(), inTx: conn.PgConn().TxStatus() != 'I'}
	if text == "" || text == ";" { // a ping
		return ctx
	}
	s.untold = writesUntold(text)
	// It is looked at before it may be frozen: a seal of another transaction is no
	// excuse.
	traced := context.WithValue(ctx, stepKey{}, sent{s, r})
	look(traced)
	if s.inTx {
		r.holds(conn)
	}
	if err := r.before(ctx, s); err != nil {
		refused, cancel := context.WithCancelCause(traced)
		cancel(err)
		return refused
	}
	return traced
}

// end is told the command tags and the error.
func (t *tracer) end(ctx context.Context, conn *pgx.Conn, err error, tags ...pgconn.CommandTag) {
	s, ok := ctx.Value(stepKey{}).(sent)
	if !ok {
		return
	}
	s.run.answered(s.Step, err, tags)
	s.run.ended(conn, s.Step)
	s.run.after(s.Step)
}

// answered notes what a step was answered.
func (r *Run) answered(s *Step, err error, tags []pgconn.CommandTag) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Err == nil {
		s.Err = err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == stateStale {
		s.Refused = true
	}
	for _, tag := range tags {
		s.count(tag)
		s.tag = tag.String()
	}
	if s.untold && s.Err == nil {
		s.Changed, s.writes = true, true
	}
}

// count reads a command tag.
func (s *Step) count(tag pgconn.CommandTag) {
	if !tag.Insert() && !tag.Update() && !tag.Delete() && !strings.HasPrefix(tag.String(), "MERGE") && !strings.HasPrefix(tag.String(), "COPY") {
		return
	}
	s.writes = true
	if tag.RowsAffected() > 0 && s.Err == nil {
		s.Changed = true
	}
}

func (r *Run) holds(conn *pgx.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[conn] = struct{}{}
}

// ended keeps account of transactions: what was written in one counts when it commits.
func (r *Run) ended(conn *pgx.Conn, s *Step) {
	open := !conn.IsClosed() && conn.PgConn().TxStatus() != 'I'
	r.mu.Lock()
	defer r.mu.Unlock()
	s.wasInTx = s.inTx || open
	if open {
		s.inTx = true
		r.conns[conn] = struct{}{}
		return
	}
	delete(r.conns, conn)
	if !s.inTx {
		return
	}
	committed := s.tag == "COMMIT"
	s.Changed = s.Changed && committed // a batch that ends its transaction
	for _, earlier := range r.steps {
		if earlier.session == s.session && earlier.inTx && earlier != s {
			earlier.inTx = false
			earlier.held = earlier.held || s.held
			earlier.Changed = earlier.Changed && committed
			if earlier.effect() {
				s.commits++
			}
		}
	}
	s.inTx = false
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return t.start(ctx, conn, data.SQL, func(ctx context.Context) {
		t.fences.TraceQueryStart(ctx, conn, data)
		t.lookUntold(ctx, conn, data.SQL)
	})
}

// lookUntold asks about a statement that writes without saying so as if it were a DELETE.
func (t *tracer) lookUntold(ctx context.Context, conn *pgx.Conn, sql string) {
	if writesUntold(sql) {
		t.fences.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: "DELETE FROM something"})
	}
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	t.end(ctx, conn, data.Err, data.CommandTag)
}

// TraceBatchStart implements pgx.BatchTracer.
func (t *tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range data.Batch.QueuedQueries {
		all = append(all, q.SQL)
	}
	text := strings.Join(all, ";\n")
	return t.start(ctx, conn, text, func(ctx context.Context) {
		t.fences.TraceBatchStart(ctx, conn, data)
		t.lookUntold(ctx, conn, text)
	})
}

// TraceBatchQuery implements pgx.BatchTracer.
func (t *tracer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if s, ok := ctx.Value(stepKey{}).(sent); ok {
		s.run.answered(s.Step, data.Err, []pgconn.CommandTag{data.CommandTag})
	}
}

// TraceBatchEnd implements pgx.BatchTracer.
func (t *tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	t.end(ctx, conn, data.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (t *tracer) TraceCopyFromStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromStartData) context.Context {
	return t.start(ctx, conn, "COPY "+data.TableName.Sanitize(), func(ctx context.Context) { t.fences.TraceCopyFromStart(ctx, conn, data) })
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (t *tracer) TraceCopyFromEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromEndData) {
	t.end(ctx, conn, data.Err, data.CommandTag)
}
