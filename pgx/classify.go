package pgxfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// The SQLSTATEs of the schema's own. Classes from I to Z are free for such use.
const (
	stateStale    = "ZF001"
	stateUnfenced = "ZF002"
)

// stateReadOnly is what a standby answers to a write.
const stateReadOnly = "25006"

// classify gives what went wrong on s its name. Errors without one of ours are
// returned as they are.
func (s *session) classify(err error, tok fence.Token) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg):
		return s.classifyServer(err, pg, tok)
	case neverSent(err, s.wasOpen):
		return unavailable(err)
	case !s.broken(err):
		return err // pgx refused an argument or a result
	case s.inTx:
		return unavailable(err) // a transaction ends with its connection
	}
	return &IndeterminateError{Err: err}
}

// neverSent reports whether pgx vouches for it. Its word for a closed connection is
// good only if the connection was closed before: one that breaks while a reply is
// read can end in the same error.
func neverSent(err error, wasOpen bool) bool {
	return pgconn.SafeToRetry(err) && (!wasOpen || !errors.Is(err, pgconn.ErrConnClosed))
}

func (s *session) classifyServer(err error, pg *pgconn.PgError, tok fence.Token) error {
	switch {
	case pg.Code == stateStale:
		return staleError(pg, tok)
	case pg.Code == stateUnfenced:
		return fmt.Errorf("%w: %w", ErrUnfenced, err)
	case pg.Code == "40003": // statement_completion_unknown
		return &IndeterminateError{Err: err}
	case schemaMissing(pg):
		return fmt.Errorf("%w: run Migrate: %w", ErrSchema, err)
	case terminated(pg):
		return s.ended(err)
	case unserved(pg.Code):
		return unavailable(err)
	}
	return err
}

// ended is for a connection that ended with a word of its own. Nothing tells whether
// that met it idle or on its way back from a commit.
func (s *session) ended(err error) error {
	if s.inTx {
		return unavailable(err)
	}
	return &IndeterminateError{Err: err}
}

// terminated recognises a backend that was told to stop, a pooler that has lost its
// server (FATAL of class 08), and a database that lost sight of a commit (08007).
func terminated(pg *pgconn.PgError) bool {
	switch pg.Code {
	case "57P01", "57P02", "08007":
		return true
	}
	return fatal(pg) && strings.HasPrefix(pg.Code, "08")
}

// fatal reports whether the connection ends with the error. The first word is that
// of old poolers, which know no other.
func fatal(pg *pgconn.PgError) bool {
	for _, severity := range []string{pg.Severity, pg.SeverityUnlocalized} {
		if severity == "FATAL" || severity == "PANIC" {
			return true
		}
	}
	return false
}

// unserved lists what says "not here, not now": class 08 (connection), 53
// (resources), read-only after a failover, a transaction or session that was idle
// too long, a server starting up, and prepared statements that a pooler has mixed
// up.
func unserved(code string) bool {
	switch code {
	case stateReadOnly, "25P03", "57P03", "57P05", "26000", "42P05":
		return true
	}
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53")
}

// schemaMissing recognises an undefined schema, table or function of ours.
func schemaMissing(pg *pgconn.PgError) bool {
	switch pg.Code {
	case "3F000", "42P01", "42883":
		return strings.Contains(pg.Message, "fencekit")
	}
	return false
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// staleError reads what the schema's functions put into the detail: the resource's
// current token.
func staleError(pg *pgconn.PgError, tok fence.Token) error {
	current, err := fence.ParseValue(pg.Detail)
	if err != nil {
		current = 0
	}
	return &fence.StaleError{Resource: tok.Resource, Token: tok.Value, Current: current}
}

// broken reports whether the connection is gone, so that a reply may have been
// lost. Behind a wrapper that hides the connection it goes by the error.
func (s *session) broken(err error) bool {
	if s.conn != nil {
		return s.conn.IsClosed()
	}
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
