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
	for n, c := range []struct {
		point  testsuite.Point
		booked int64 // when it dies
	}{
		{testsuite.BeforeBody, 0}, {testsuite.AfterEffect(1), 100}, {testsuite.BeforeComplete, 100}, {testsuite.AfterComplete, 100},
	} {
		t.Run(c.point.String(), func(t *testing.T) {
			t.Parallel()
			deposit(t, s, fmt.Sprint("account-", n), c.point, c.booked)
		})
	}
}

// deposit books 100 on an account of its own, through a crash at a point and the next
// attempt, and checks the balance.
func deposit(t *testing.T, s *stack.Stack, account string, crash testsuite.Point, booked int64) {
	t.Helper()
	require.NoError(t, ledger.Prepare(t.Context(), s.Postgres, account))
	kit := testsuite.New(t, testsuite.Options{Postgres: s.Postgres})
	acts := &ledger.Activities{DB: kit.Pool()}
	kit.Guard(ledger.Guards(acts)...)
	died := kit.Call(acts.Deposit, ledger.Deposit{ID: stack.Unique(account), Account: account, Cents: 100}).CrashAt(crash)
	require.ErrorIs(t, died.Err(), testsuite.ErrCrashed)
	require.Equal(t, booked, balance(t, s, account), "when it died")
	var b ledger.Booking
	require.NoError(t, died.NextAttempt().Result(&b))
	require.Equal(t, ledger.Booking{Balance: 100}, b)
	require.EqualValues(t, 100, balance(t, s, account))
}

func balance(t *testing.T, s *stack.Stack, account string) (cents int64) {
	t.Helper()
	require.NoError(t, s.Postgres.QueryRow(t.Context(), "SELECT balance FROM ledger_accounts WHERE name = $1", account).Scan(&cents))
	return cents
}
