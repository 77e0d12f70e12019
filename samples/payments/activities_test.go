package payments_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/samples/payments"
	"github.com/fencekit/fencekit-go/testsuite"
)

// What you would write for your own activities: no server, milliseconds, and a crash at
// the worst moment.
func TestChargeCardIsInterrupted(t *testing.T) {
	t.Parallel()
	provider := &payments.Provider{}
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	kit := testsuite.New(t, testsuite.Options{})
	acts := &payments.Activities{Provider: payments.Client{URL: server.URL}}
	acts.Provider.HTTP.Transport = kit.RoundTripper(nil)
	kit.Guard(payments.Guards(acts)...)

	order := payments.Order{ID: "A1", Cents: 4200}
	crashed := kit.Call(acts.ChargeCard, order).CrashAt(testsuite.AfterEffect(1))
	require.ErrorIs(t, crashed.Err(), testsuite.ErrCrashed)
	require.Equal(t, 1, provider.Charges())
	testsuite.RequireFailure(t, crashed.NextAttempt(), interceptor.TypeBusy) // the lease has not ended: nobody takes over here
	kit.AdvanceClock(payments.LeaseTTL)
	testsuite.RequireFailure(t, crashed.NextAttempt(), interceptor.TypeOutcomeUnknown)
	testsuite.RequireFailure(t, crashed.OtherWorkflow(), interceptor.TypeOutcomeUnknown)
	require.Equal(t, 1, provider.Charges())
}
