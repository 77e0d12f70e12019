package interceptor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// tags is a metrics handler that keeps the names, the tags and the counts of the kit's
// metrics.
type tags struct {
	client.MetricsHandler

	mu    *sync.Mutex
	seen  *[]string
	count map[string]int64
	own   map[string]string
}

func newTags() *tags {
	return &tags{MetricsHandler: client.MetricsNopHandler, mu: &sync.Mutex{}, seen: &[]string{}, count: map[string]int64{}}
}

func (h *tags) WithTags(add map[string]string) client.MetricsHandler {
	own := map[string]string{}
	for _, m := range []map[string]string{h.own, add} {
		for k, v := range m {
			own[k] = v
		}
	}
	c := *h
	c.own = own
	return &c
}

func (h *tags) note(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !strings.HasPrefix(name, "fencekit") {
		return
	}
	line := name
	for k, v := range h.own {
		line += " " + k + "=" + v
	}
	*h.seen = append(*h.seen, line)
}

func (h *tags) Counter(name string) client.MetricsCounter {
	h.note(name)
	return tally(func(n int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.count[name+" "+h.own["outcome"]] += n
	})
}

func (h *tags) Timer(name string) client.MetricsTimer {
	h.note(name)
	return h.MetricsHandler.Timer(name)
}

// total is the sum of a counter for an outcome.
func (h *tags) total(name, outcome string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[name+" "+outcome]
}

type tally func(int64)

func (c tally) Inc(n int64) { c(n) }

// A13: nothing of the input is to be seen: not in names of keys, not in what is stored
// beside the result, not in logs, metrics, events, or errors of others.
func TestNothingShowsTheInput(t *testing.T) {
	t.Parallel()
	type order struct{ Email, Note string }
	const mail = "jo@example.test"
	policy := interceptor.Policy{Scope: interceptor.ScopeNamespace, LeaseTTL: time.Hour,
		Key:      interceptor.KeyFrom(func(o order) any { return o.Email }),
		Resource: interceptor.ResourceFrom(func(o order) string { return "customer/" + o.Email })}
	e := newEnv(t, interceptor.For("welcome", policy), interceptor.For("fails", policy))
	metrics := newTags()
	e.dial(nil, func(o *client.Options) { o.MetricsHandler = metrics })
	h := &held{started: make(chan primitives.Attempt, 10), result: make(chan string)}
	e.worker(and(named("welcome", func(ctx context.Context, _ order) (string, error) { return h.body(ctx, "") }),
		named("fails", func(context.Context, order) error { return errors.New("no") })))
	t.Cleanup(func() { close(h.result) })

	first := e.start(call("welcome", order{Email: mail}))
	<-h.started
	_, busy := e.run(call("welcome", order{Email: mail}).once())
	require.Equal(t, interceptor.TypeBusy, failure(t, busy).Type())
	_, mismatch := e.run(call("welcome", order{mail, "other"}).once())
	require.Equal(t, interceptor.TypeMismatch, failure(t, mismatch).Type())
	require.Contains(t, e.stored(), "workflow=", "the lease is there")
	require.NotContains(t, e.stored(), mail)
	h.result <- "done"
	require.NoError(t, first.Get(e.ctx(), nil))
	_, err := e.run(call("welcome", order{Email: mail}))
	require.NoError(t, err)
	_, err = e.run(call("fails", order{Email: mail}).once())
	require.Error(t, err)

	require.NotContains(t, e.stored(), mail)
	require.NotContains(t, busy.Error()+mismatch.Error(), mail)
	require.NotEmpty(t, e.logs.with("fencekit: "))
	require.Empty(t, e.logs.with(mail))
	require.NotEmpty(t, *metrics.seen)
	require.NotContains(t, strings.Join(*metrics.seen, "\n"), mail)
	require.EqualValues(t, 1, metrics.total(interceptor.MetricCalls, "replayed"))
	require.EqualValues(t, 1, metrics.total(interceptor.MetricCalls, "busy"))
}

// G12: what a policy says of TTL and retention, and not the common default, holds
// wherever it can be seen.
func TestAPolicysOwnTimesHoldEverywhere(t *testing.T) {
	t.Parallel()
	policy := interceptor.Policy{Scope: interceptor.ScopeNamespace, LeaseTTL: 2 * time.Hour, Retention: 48 * time.Hour,
		Resource: interceptor.ResourceFrom(func(name string) string { return "slow/" + name })}
	e := newEnv(t, interceptor.For("slow", policy))
	e.opts.LeaseTTL, e.opts.Retention = time.Minute, time.Hour
	h := newHeld()
	kit := e.interceptor()
	e.workerWith(kit, and(named("slow", h.body)))
	t.Cleanup(func() { close(h.result) })
	first := e.start(call("slow", "x"))
	<-h.started
	lease, err := kit.Store().Inspect(e.ctx(), "slow/x")
	require.NoError(t, err)
	require.Greater(t, lease.Remaining, time.Hour)

	other := call("slow", "x").once()
	other.Options.ScheduleToCloseTimeout = 100 * time.Hour
	_, err = e.run(other)
	require.Greater(t, failure(t, err).NextRetryDelay(), time.Hour)
	var busy interceptor.Busy
	require.NoError(t, failure(t, err).Details(&busy))
	require.Greater(t, busy.RemainingMillis, time.Hour.Milliseconds())

	h.result <- "done"
	require.NoError(t, first.Get(e.ctx(), nil))
	found := 0
	for r, err := range kit.Store().Records(e.ctx()) {
		require.NoError(t, err)
		require.Equal(t, primitives.Done, r.State)
		require.Greater(t, r.Expires, 24*time.Hour)
		found++
	}
	require.Equal(t, 1, found)
}
