package primitives

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// scripted is a client whose every script returns one value.
type scripted struct {
	Client
	value any
}

func (c scripted) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(c.value)
	return cmd
}

// surely reports what no reply may lead to: a grant without a valid token, an answer
// that is neither error nor result, a busy error that says "now", a negative size.
func surely(t testing.TB, e *env, op Op) {
	t.Helper()
	ctx := context.Background()
	sane := func(err error) {
		t.Helper()
		var busy *BusyError
		if errors.As(err, &busy) && busy.Remaining <= 0 {
			t.Errorf("busy for %s", busy.Remaining)
		}
	}
	g, err := NewGuard(e.store, GuardOptions{})
	require.NoError(t, err)
	if s, err := g.Begin(ctx, op); err == nil && (s.Claim == nil) == (s.Outcome != Replayed) {
		t.Errorf("begin: %+v", s)
	} else if err == nil && s.Claim != nil && !s.Claim.Token().Valid() {
		t.Errorf("begin: claim with token %s", s.Claim.Token())
	} else {
		sane(err)
	}
	for _, begin := range []func(context.Context, Op, RecordOptions) (Start, error){e.store.TryBegin, e.store.TryBeginOrReclaim} {
		s, err := begin(ctx, op, RecordOptions{})
		sane(err)
		if err == nil && s.Claim != nil && s.Claim.Token().Valid() {
			t.Errorf("record: a token out of nowhere: %s", s.Claim.Token())
		}
	}
	l, err := e.store.TryAcquire(ctx, "r", LeaseOptions{})
	sane(err)
	if (err == nil) != (l != nil) || err == nil && !l.Token().Valid() {
		t.Errorf("acquire: %v, %v", l, err)
	}
	c := g.claim(op)
	c.granted(7, time.Now())
	sane(c.Complete(ctx, nil))
	sane(c.Fail(ctx, nil))
	sane(c.Suspend(ctx, 0))
	sane(c.Abort(ctx))
	own := e.store.newLease("r", LeaseOptions{TTL: time.Minute})
	sane(own.Extend(ctx, 0))
	sane(own.Release(ctx))
	operate(t, e, op, sane)
}

// operate is surely for the calls of operators and of the gate.
func operate(t testing.TB, e *env, op Op, sane func(error)) {
	t.Helper()
	ctx := context.Background()
	r, err := e.store.Status(ctx, op)
	sane(err)
	if err == nil && (r.Expires < 0 || r.Lease < 0 || r.Size < 0 || r.Takeovers < 0 || r.Token < 0) {
		t.Errorf("status: %+v", r)
	}
	_, err = e.store.Result(ctx, op)
	sane(err)
	sane(e.store.Clear(ctx, op))
	seen := Record{State: Running, nonce: "n", name: e.record(op)}
	sane(e.store.Forget(ctx, seen))
	sane(e.store.Resolve(ctx, seen, nil, 0))
	info, err := e.store.Inspect(ctx, "r")
	if err == nil && (info.Remaining < 0 || info.Waiters < 0 || info.Token < 0 || info.Held && !info.Token.Valid()) {
		t.Errorf("inspect: %+v", info)
	}
	if v, err := e.store.Free(ctx, LeaseInfo{Held: true, name: e.lease(op), nonce: "n"}); err == nil && !v.Valid() {
		t.Errorf("freed to %s", v)
	}
	if v, err := e.store.Raise(ctx, "r", 7); err == nil && v < 7 {
		t.Errorf("raised to %s", v)
	}
	gate, err := NewGate(e.store, GateOptions{})
	require.NoError(t, err)
	token := fence.Token{Resource: "r", Value: 7, Owner: "n"}
	_ = gate.SetIfFresh(ctx, token, "k", nil, 0)
	_ = gate.Advance(ctx, token)
	_, _, _ = gate.Get(ctx, "r", "k")
	if v, err := gate.Current(ctx, "r"); err == nil && !v.Valid() {
		t.Errorf("the gate has %s", v)
	}
}

// hostile are replies that scripts never give, and some that they do.
func hostile() []any {
	replies := []any{
		nil, "", "OK", int64(7), 1.5, true, errStop, []any{}, []any{nil}, []any{int64(1)}, []any{[]any{"begun"}},
		map[any]any{"begun": "7"}, []any{"begun", []any{}}, []any{"begun", 7.0, "0"},
	}
	words := []string{"begun", "reclaimed", "takeover", "done", "failed", "oversize", "busy", "mismatch", "poisoned", "unknown", "corrupt",
		"granted", "renewed", "lost", "released", "completed", "superseded", "aborted", "suspended", "absent", "running", "pending",
		"free", "held", "freed", "changed", "forgotten", "raised", "resolved", "passed", "stale", "none", "seen", "nonsense"}
	fields := []string{"", "0", "7", "-1", "1e3", "9999999999999999999", "9223372036854775807", "9223372036854775", "\x00", "0000000000000000000"}
	for _, word := range words {
		for _, f := range fields {
			for n := 0; n <= 14; n++ {
				r := []any{word}
				for range n {
					r = append(r, f)
				}
				replies = append(replies, r)
			}
		}
	}
	return replies
}

func hostileEnv(t *testing.T) (*env, Op) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	e := newEnv(t, rdb, false)
	return e, e.op()
}

func TestHostileRepliesNeverYieldAGrant(t *testing.T) {
	t.Parallel()
	e, op := hostileEnv(t)
	for _, reply := range hostile() {
		e.store.client = scripted{value: reply}
		surely(t, e, op)
		if t.Failed() {
			t.Fatalf("the reply was %#v", reply)
		}
	}
}

// FuzzDecodeReply reads JSON as what a script has returned.
func FuzzDecodeReply(f *testing.F) {
	for _, s := range []string{
		`null`, `"begun"`, `[]`, `["begun","0000000000000000007","0"]`, `["begun","","0"]`, `["granted","0"]`, `["held","7","0","n","0","h","1","1"]`,
		`["busy","9223372036854775807","h","7","0","1","0"]`, `["running","n","","","h","1","0","1","","0","","",""]`, `["begun",[1,{}]]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = []any{text}
		}
		e, op := hostileEnv(t)
		e.store.client = scripted{value: value}
		surely(t, e, op)
	})
}

// The same through a real client: whatever bytes come back, it ends, and in an error.
func TestHostileServerNeverYieldsAGrant(t *testing.T) {
	t.Parallel()
	fake := devstack.FakeRedisForTest(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: fake.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	e := newEnv(t, rdb, true)
	e.store.opts.Timeout = minTimeout
	g := e.guard(GuardOptions{})
	for _, raw := range []string{
		"$-1\r\n", "*-1\r\n", "*0\r\n", "_\r\n", ":7\r\n", ",1.5\r\n", "#t\r\n", "%1\r\n+begun\r\n+7\r\n", "~1\r\n+begun\r\n",
		"*3\r\n$5\r\nbegun\r\n$-1\r\n$1\r\n0\r\n", "*3\r\n$5\r\nbegun\r\n:7\r\n:0\r\n", "*3\r\n$5\r\nbegun\r\n*0\r\n$1\r\n0\r\n",
		"*2\r\n$7\r\ngranted\r\n$1\r\n0\r\n", "*2\r\n-ERR in here\r\n$1\r\n0\r\n", "(123456789012345678901234567890\r\n",
		"=9\r\ntxt:begun\r\n", "!5\r\nERR x\r\n", "-\r\n", "-NOSCRIPT again\r\n", "-WRONGTYPE x\r\n", "-MOVED\r\n", "-MOVED 1 :\r\n", "-ASK x y\r\n",
		"garbage\r\n", "*1\r\n", "\r\n", "+OK\r\n+OK\r\n",
	} {
		fake.SetHandler(func(c devstack.Command) string {
			if strings.HasPrefix(c.Name, "EVAL") {
				return raw
			}
			return ""
		})
		body := &counted{}
		_, err := g.Do(t.Context(), e.op(), body.body)
		require.Error(t, err, "%q", raw)
		require.Zero(t, body.runs.Load())
		l, err := e.store.TryAcquire(t.Context(), "r", LeaseOptions{})
		require.Error(t, err, "%q", raw)
		require.Nil(t, l)
		surely(t, e, e.op())
	}
}
