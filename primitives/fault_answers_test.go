package primitives

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// troubles are the answers of a server that is up but cannot serve, as Redis words
// them, and as Redis 6 does when a script meets them.
var troubles = func() []string {
	texts := []string{
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOREPLICAS Not enough good replicas to write.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR max number of clients reached",
	}
	for _, text := range texts[:len(texts)-1] {
		texts = append(texts, "ERR Error running script (call to f_"+strings.Repeat("0a", 20)+
			"): @user_script:12: @user_script: 12: -"+text)
		texts = append(texts, "ERR Error running script (call to f_"+strings.Repeat("0a", 20)+"): @user_script:12: -"+text)
	}
	return texts
}()

func eachTrouble(t *testing.T, test func(t *testing.T, edit func(*redis.Options), reply string)) {
	t.Helper()
	t.Parallel()
	for _, client := range faultyClients {
		for _, text := range troubles {
			name := text
			if i := strings.LastIndex(text, "@user_script"); i >= 0 {
				name = fmt.Sprintf("redis 6, %d marks: %s", strings.Count(text, "@user_script"), text[i:])
			}
			t.Run(client.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, client.edit, devstack.ErrorReply(text))
			})
		}
	}
}

// A server in trouble for a moment is not noticed: F06.
func TestAnAnswerOfTroubleIsWaitedOut(t *testing.T) {
	eachTrouble(t, func(t *testing.T, edit func(*redis.Options), reply string) {
		r := newRig(t, edit, Options{})
		for _, s := range []script{r.far.scripts.begin, r.far.scripts.complete} {
			r.proxy.Add(devstack.Rule{Match: running(s), Nth: 1, Fault: devstack.ForgeReply(reply)})
		}
		r.doOnce(r.op(), GuardOptions{}, Begun, 0)
	})
}

// A server in trouble for good is unavailable, never busy, and the body is not run:
// F06, C19. That is said within the budget, whatever go-redis would do.
func TestAServerInTroubleIsUnavailable(t *testing.T) {
	eachTrouble(t, func(t *testing.T, edit func(*redis.Options), reply string) {
		r := newRig(t, edit, Options{Timeout: 50 * time.Millisecond})
		r.proxy.Add(devstack.Rule{Match: running(), Fault: devstack.ForgeReply(reply)})
		body := &counted{}
		within(t, 5*time.Second, func() {
			_, err := r.farGuard(GuardOptions{Wait: time.Hour}).Do(r.ctx(), r.op(), body.body)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotErrorIs(t, err, ErrBusy)
		})
		require.Zero(t, body.runs.Load())
	})
}

// The effect has happened, the memo cannot be stored: the call succeeds, says so,
// and only a strict guard fails it (C18).
func TestAMemoThatCannotBeStoredDoesNotFailTheCall(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		r := newRig(t, nil, Options{Timeout: 200 * time.Millisecond})
		r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.complete), Fault: devstack.ForgeReply(devstack.ErrorReply(troubles[0]))})
		body, told := &counted{memo: "m"}, &events{}
		res, err := r.farGuard(GuardOptions{StrictMemo: strict, Observer: told}).Do(r.ctx(), r.op(), body.body)
		if strict {
			require.ErrorIs(t, err, ErrUnavailable)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, "m", string(res.Memo))
		require.False(t, res.MemoStored)
		require.EqualValues(t, 1, body.runs.Load())
		require.Equal(t, []EventKind{EventBegan, EventMemoFailed}, told.kinds)
	}
}

// events keeps what an observer was told, by one goroutine.
type events struct{ kinds []EventKind }

func (e *events) Observe(_ context.Context, event Event) { e.kinds = append(e.kinds, event.Kind) }

// Without renewals the body's context ends at the deadline, whatever the server
// answers meanwhile: only a definite answer is a loss before it.
func TestTroubleDuringRenewalsEndsTheBodyAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, Options{})
	r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.renew), Fault: devstack.ForgeReply(devstack.ErrorReply(troubles[0]))})
	lease, err := r.far.TryAcquire(r.ctx(), "account", LeaseOptions{TTL: 500 * time.Millisecond})
	require.NoError(t, err)
	held, stop := lease.Keep(r.ctx())
	defer stop()
	<-held.Done()
	require.False(t, time.Now().Before(lease.Deadline()), "not before the deadline")
	var lost *LostError
	require.ErrorAs(t, context.Cause(held), &lost)
	require.Equal(t, "deadline", lost.Step)
}

// silentServer accepts connections and never says a word.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// A server that hangs costs a call its budget and not more, with either kind of
// client; so does a pool without a free connection, and a closed client.
func TestACallReturnsWithinItsBudget(t *testing.T) {
	t.Parallel()
	servers := map[string]func(t *testing.T, o *redis.Options) *redis.Client{
		"hangs from the start": func(t *testing.T, o *redis.Options) *redis.Client {
			o.Addr = silentServer(t)
			return redis.NewClient(o)
		},
		"hangs after the handshake": func(t *testing.T, o *redis.Options) *redis.Client {
			o.Addr = devstack.FakeRedisForTest(t, func(c devstack.Command) string {
				if c.Handshake() {
					return ""
				}
				return devstack.Silence
			}).Addr()
			return redis.NewClient(o)
		},
		"is not there": func(t *testing.T, o *redis.Options) *redis.Client {
			proxy := devstack.ProxyForTest(t, "127.0.0.1:1")
			require.NoError(t, proxy.Refuse())
			o.Addr = proxy.Addr()
			return redis.NewClient(o)
		},
		"has no connection to spare": func(t *testing.T, o *redis.Options) *redis.Client {
			server, err := sharedRedis()
			require.NoError(t, err)
			o.Addr, o.PoolSize = server.Addr(), 1
			rdb := redis.NewClient(o)
			held := rdb.Conn()
			require.NoError(t, held.Ping(t.Context()).Err())
			t.Cleanup(func() { _ = held.Close() })
			return rdb
		},
		"has a closed client": func(t *testing.T, o *redis.Options) *redis.Client {
			server, err := sharedRedis()
			require.NoError(t, err)
			o.Addr = server.Addr()
			rdb := redis.NewClient(o)
			require.NoError(t, rdb.Close())
			return rdb
		},
	}
	for name, connect := range servers {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ContextTimeoutEnabled=%v", name, direct), func(t *testing.T) {
				t.Parallel()
				rdb := connect(t, &redis.Options{ContextTimeoutEnabled: direct})
				t.Cleanup(func() { _ = rdb.Close() })
				checkBudget(t, rdb)
			})
		}
	}
}

func checkBudget(t *testing.T, rdb *redis.Client) {
	t.Helper()
	const bound = 3 * time.Second // go-redis on its own takes 20 s
	e := newEnv(t, rdb, true)
	e.store.opts.Timeout = 150 * time.Millisecond
	body := &counted{}
	claim := e.guard(GuardOptions{}).claim(e.op())
	claim.granted(1, time.Now())
	for name, call := range map[string]func(context.Context) error{
		"do": func(ctx context.Context) error {
			_, err := e.guard(GuardOptions{Wait: time.Hour}).Do(ctx, e.op(), body.body)
			return err
		},
		"acquire":  func(ctx context.Context) error { _, err := e.store.Acquire(ctx, "r", LeaseOptions{}); return err },
		"renew":    func(ctx context.Context) error { return claim.renew(ctx, "extend", time.Minute) },
		"complete": func(ctx context.Context) error { return claim.Complete(ctx, nil) },
		"abort":    func(ctx context.Context) error { return claim.Abort(ctx) },
		"gate":     func(ctx context.Context) error { return e.gate().Advance(ctx, fence.Token{Resource: "r", Value: 1}) },
		"status":   func(ctx context.Context) error { _, err := e.store.Status(ctx, e.op()); return err },
	} {
		within(t, bound, func() { require.ErrorIs(t, call(e.ctx()), ErrUnavailable, name) })
	}
	require.Zero(t, body.runs.Load())
}

func (e *env) gate() *Gate {
	e.Helper()
	g, err := NewGate(e.store, GateOptions{})
	require.NoError(e, err)
	return g
}

// A caller that gives up on a server that hangs is let go at once; with a client
// that is trusted with contexts, when the budget ends: go-redis honours a deadline in
// mid-command, but no cancellation.
func TestACancelledCallReturns(t *testing.T) {
	t.Parallel()
	for direct, budget := range map[bool]time.Duration{false: time.Hour, true: 200 * time.Millisecond} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", direct), func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 10)
			fake := devstack.FakeRedisForTest(t, func(c devstack.Command) string {
				if c.Handshake() {
					return ""
				}
				asked <- struct{}{}
				return devstack.Silence
			})
			rdb := redis.NewClient(&redis.Options{Addr: fake.Addr(), ContextTimeoutEnabled: direct, MaxRetries: -1})
			t.Cleanup(func() { _ = rdb.Close() })
			store, err := New(rdb, Options{Timeout: budget})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-asked; cancel() }()
			within(t, 3*time.Second, func() {
				_, err = store.Inspect(ctx, "account")
				require.ErrorIs(t, err, context.Canceled)
			})
		})
	}
}
