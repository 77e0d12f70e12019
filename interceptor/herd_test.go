package interceptor_test

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// herd watches many calls of one operation.
type herd struct {
	mu       sync.Mutex
	refused  map[string]int // how often, by workflow
	outcomes map[primitives.Outcome]int
	attempts int32         // the most that a workflow has used
	held     time.Duration // how long the body ran
	others   int           // how many of them there are
	all      chan struct{} // closed when each of the others was refused
}

func (h *herd) Observe(ctx context.Context, e primitives.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	info := activity.GetInfo(ctx)
	h.attempts = max(h.attempts, info.Attempt)
	switch e.Kind {
	case primitives.EventBegan:
		h.outcomes[e.Outcome]++
	case primitives.EventRefused:
		h.refused[info.WorkflowExecution.ID]++
		if h.refused[info.WorkflowExecution.ID] == 1 && len(h.refused) == h.others {
			close(h.all)
		}
	default:
	}
}

// B20: 300 workflows ask for one business key at once, under the default retry policy,
// and without Policy.Wait. The first one's body runs until each of the others has been
// refused, and for 20 s at least. It is the only execution, and all get its result.
//
// Whoever is refused comes back after about as long as it has waited so far, so that the
// attempts of each grow with the logarithm of the body's time.
func TestThreeHundredWorkflowsAskForOneBusinessKey(t *testing.T) {
	t.Parallel()
	const workflows, lease = 300, 45 * time.Second
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	h := &herd{refused: map[string]int{}, outcomes: map[primitives.Outcome]int{}, others: workflows - 1, all: make(chan struct{})}
	e := newEnv(t, interceptor.For("analyze", interceptor.Policy{Scope: interceptor.ScopeNamespace, LeaseTTL: lease}))
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = true, stall })
	e.opts.Redis, e.opts.Observer = rdb, h
	e.worker(named("analyze", func(ctx context.Context, batch string) (string, error) {
		began := time.Now()
		for _, wait := range []<-chan struct{}{h.all, after(began.Add(20 * time.Second))} {
			select {
			case <-wait:
			case <-after(began.Add(time.Minute)): // if a task of theirs was lost
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = time.Since(began)
		return "result of " + batch, nil
	}))
	before := scriptCalls(t, rdb)
	p := call("analyze", "b-1")
	p.Options.StartToCloseTimeout = 2 * time.Minute // after which a task that was lost comes again
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	for _, err := range atOnce(workflows, func() error {
		var out string
		run, err := e.execute(client.StartWorkflowOptions{}, "run-one", p)
		if err == nil {
			err = run.Get(ctx, &out)
		}
		if err == nil && out != "result of b-1" {
			err = fmt.Errorf("the result is %q", out)
		}
		return err
	}) {
		require.NoError(t, err)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(t, 1, h.outcomes[primitives.Begun])
	require.Len(t, h.outcomes, 2, h.outcomes)
	// More than one each only if the server has lost what a worker has told it.
	require.GreaterOrEqual(t, h.outcomes[primitives.Replayed], workflows-1)
	refusals := 0
	for _, n := range h.refused {
		refusals += n
	}
	calls := scriptCalls(t, rdb) - before
	t.Logf("held for %v; %d refusals, %d scripts run (%.1f a workflow), at most %d attempts", h.held, refusals, calls,
		float64(calls)/workflows, h.attempts)
	// One begin for each refusal and each answer, and what the holder sends: its renewals,
	// its complete, and the scripts that Redis has to be told once.
	renewals := int(h.held/(lease/3)) + 1
	require.LessOrEqual(t, calls, refusals+1+h.outcomes[primitives.Replayed]+renewals+20)
	// One at once, one after each of 1, 2, 4 ... seconds, one for the result, and a few for
	// a machine that stands still. To ask every second, or two, would be far more.
	require.LessOrEqual(t, int(h.attempts), bits.Len(uint(h.held.Seconds()))+2+4)
}

// after is closed at a time.
func after(at time.Time) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(time.Until(at), func() { close(c) })
	return c
}

// atOnce calls f n times at once.
func atOnce(n int, f func() error) []error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() { errs[i] = f() })
	}
	calls.Wait()
	return errs
}

// scriptCalls counts the scripts that a Redis has run: a call of ours is one of them.
func scriptCalls(t *testing.T, rdb *redis.Client) (calls int) {
	t.Helper()
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.SplitSeq(stats, "\r\n") {
		for _, command := range []string{"eval", "evalsha"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				var n int
				_, err := fmt.Sscanf(rest, "%d,", &n)
				require.NoError(t, err)
				calls += n
			}
		}
	}
	return calls
}
