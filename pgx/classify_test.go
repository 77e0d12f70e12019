package pgxfence

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// A server or pooler that says how a connection ended does not say what became of
// the statement. In a transaction nothing has happened before COMMIT.
func TestEndedConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, severity string
		ended          bool
	}{
		{"08P01", "FATAL", true},
		{"08006", "FATAL", true},
		{"08006", "PANIC", true},
		{"08P01", "ERROR", false},
		{"08006", "ERROR", false},
		{"08007", "ERROR", true},
		{"08007", "FATAL", true},
		{"57P01", "FATAL", true},
		{"53300", "FATAL", false},
		{"57P03", "FATAL", false},
	} {
		for _, err := range []error{
			&pgconn.PgError{Code: c.code, Severity: c.severity},
			&pgconn.PgError{Code: c.code, Severity: "FATAL?", SeverityUnlocalized: c.severity},
		} {
			want := ErrUnavailable
			if c.ended {
				want = ErrIndeterminate
			}
			require.ErrorIs(t, (&session{}).classify(err, fence.Token{}), want, c)
			require.ErrorIs(t, commitError(err, true), want, c)
			require.ErrorIs(t, (&session{inTx: true}).classify(err, fence.Token{}), ErrUnavailable, c)
			require.ErrorIs(t, beginError(err, fence.Token{}), ErrUnavailable, c)
		}
	}
}
