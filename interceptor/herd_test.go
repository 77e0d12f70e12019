package interceptor_test

import (
	"context"
	"fmt"
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
// refused. It is the only execution, and all get its result.
//
// Whoever is refused comes back when the holder's lease should be over. The holder renews
// it every third of its 3 s, so two of them are left: that is how seldom anybody asks.
func TestThreeHundredWorkflowsAskForOneBusinessKey(t *testing.T) {
	t.Parallel()
	const workflows, lease = 300, 3 * time.Second
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	h := &herd{refused: map[string]int{}, outcomes: map[primitives.Outcome]int{}, others: workflows - 1, all: make(chan struct{})}
	e := newEnv(t, interceptor.For("analyze", interceptor.Policy{Scope: interceptor.ScopeNamespace, LeaseTTL: lease}))
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	e.opts.Redis, e.opts.Observer = rdb, h
	e.worker(named("analyze", func(ctx context.Context, batch string) (string, error) {
		began := time.Now()
		select {
		case <-h.all:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = time.Since(began)
		return "result of " + batch, nil
	}))
	before := scriptCalls(t, rdb)
	for _, err := range atOnce(workflows, func() error {
		var out string
		run, err := e.client.ExecuteWorkflow(e.ctx(), client.StartWorkflowOptions{TaskQueue: e.queue}, "run-one", call("analyze", "b-1"))
		if err == nil {
			err = run.Get(e.ctx(), &out)
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
	require.Equal(t, map[primitives.Outcome]int{primitives.Begun: 1, primitives.Replayed: workflows - 1}, h.outcomes)
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
	require.LessOrEqual(t, calls, refusals+workflows+renewals+20)
	// An ask every half of the lease at the most, and a few for a machine that is late.
	require.LessOrEqual(t, int(h.attempts), int(h.held/(lease/2))+5)
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
