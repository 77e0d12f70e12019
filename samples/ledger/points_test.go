package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/ledger"
	"github.com/fencekit/fencekit-go/testsuite"
)

// The worker dies at each of these points, and the next attempt sets it right. Postgres
// is real; Redis and Temporal are the test suite's.
func TestDiesAtAnyPoint(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Postgres: true})
	require.NoError(t, ledger.Prepare(t.Context(), s.Postgres, "nobody"))
	for n, point := range []testsuite.Point{testsuite.BeforeBody, testsuite.AfterEffect(1), testsuite.BeforeComplete, testsuite.AfterComplete} {
		t.Run(point.String(), func(t *testing.T) {
			t.Parallel()
			deposit(t, s, fmt.Sprint("account-", n), point)
		})
	}
}

// deposit books 100 on an account of its own, through a crash at a point and the next
// attempt, and checks the balance.
func deposit(t *testing.T, s *stack.Stack, account string, crash testsuite.Point) {
	t.Helper()
	require.NoError(t, ledger.Prepare(t.Context(), s.Postgres, account))
	kit := testsuite.New(t, testsuite.Options{Postgres: s.Postgres})
	acts := &ledger.Activities{DB: kit.Pool()}
	kit.Guard(ledger.Guards(acts)...)
	died := kit.Call(acts.Deposit, ledger.Deposit{ID: stack.Unique(account), Account: account, Cents: 100}).CrashAt(crash)
	require.ErrorIs(t, died.Err(), testsuite.ErrCrashed)
	var b ledger.Booking
	require.NoError(t, died.NextAttempt().Result(&b))
	require.Equal(t, ledger.Booking{Balance: 100}, b)
	var balance int64
	require.NoError(t, s.Postgres.QueryRow(t.Context(), "SELECT balance FROM ledger_accounts WHERE name = $1", account).Scan(&balance))
	require.EqualValues(t, 100, balance)
}
