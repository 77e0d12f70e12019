package primitives

import (
	"encoding/json"
	goflag "flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// layoutFile is what format v1 stores; "go test -update" writes it anew. It is a wire
// format: do that when the format gets a new version, and give the file a new name.
const layoutFile = "testdata/layout-v1.json"

// stored is one Redis key as it was dumped.
type stored struct {
	TTL    int64             `json:"ttl_ms"`
	Hash   map[string]string `json:"hash,omitempty"`
	String string            `json:"string,omitempty"`
}

// goldenOp is an operation that every release finds under the same names.
func (e *env) goldenOp(name string) Op {
	e.Helper()
	key, err := NewKey("golden", name)
	require.NoError(e, err)
	op := attempt(Op{Key: key, Resource: "golden/" + name, Holder: "v1"}, "execution", 100, 1)
	op.Fingerprint = e.fingerprint(name)
	return op
}

// writeLayout leaves one record of each kind.
func writeLayout(e *env) {
	g := e.guard(GuardOptions{LeaseTTL: time.Hour, MaxMemo: 8})
	begin := func(name string) *Claim { return e.claim(g, e.goldenOp(name)) }
	require.NoError(e, begin("done").Complete(e.ctx(), []byte("memo")))
	require.NoError(e, begin("empty").Complete(e.ctx(), nil))
	require.NoError(e, begin("failed").Fail(e.ctx(), []byte("failure")))
	require.NoError(e, begin("oversize").Complete(e.ctx(), make([]byte, 9)))
	begin("running")
	begin("crashed")
	e.expire("golden/crashed")
	require.NoError(e, begin("pending").Suspend(e.ctx(), time.Hour))
	e.claim(e.guard(GuardOptions{AtMostOnce: true}), e.goldenOp("unknown"))
	e.expire("golden/unknown")
	e.begin(e.goldenOp("plain"), RecordOptions{TTL: time.Hour})
	gate, err := NewGate(e.store, GateOptions{})
	require.NoError(e, err)
	require.NoError(e, gate.SetIfFresh(e.ctx(), fence.Token{Resource: "golden/gate", Value: 1 << 50, Owner: "owner"}, "k", []byte("v"), 0))
}

func (e *env) dump() map[string]stored {
	e.Helper()
	all := map[string]stored{}
	for _, name := range e.stored() {
		s := stored{TTL: e.ttl(name).Milliseconds()}
		kind, err := e.rdb.Type(e.ctx(), name).Result()
		require.NoError(e, err)
		if kind == "hash" {
			s.Hash, err = e.rdb.HGetAll(e.ctx(), name).Result()
		} else {
			s.String, err = e.rdb.Get(e.ctx(), name).Result()
		}
		require.NoError(e, err)
		all[strings.TrimPrefix(name, e.store.opts.Prefix)] = s
	}
	return all
}

func (e *env) load(layout map[string]stored) {
	e.Helper()
	for name, s := range layout {
		name = e.store.opts.Prefix + name
		if s.Hash != nil {
			require.NoError(e, e.rdb.HSet(e.ctx(), name, s.Hash).Err())
		} else {
			require.NoError(e, e.rdb.Set(e.ctx(), name, s.String, 0).Err())
		}
		require.NoError(e, e.rdb.PExpire(e.ctx(), name, time.Duration(s.TTL)*time.Millisecond).Err())
	}
}

func readLayout(t testing.TB) (layout map[string]stored) {
	t.Helper()
	text, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &layout))
	return layout
}

// G01: today's code writes the layout that v1 has written.
func TestLayoutIsThatOfFormatV1(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	writeLayout(e)
	today := e.dump()
	if goflag.Lookup("update").Value.String() == "true" {
		text, err := json.MarshalIndent(today, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(layoutFile, append(text, '\n'), 0o600))
	}
	golden := readLayout(t)
	require.ElementsMatch(t, slices.Collect(maps.Keys(golden)), slices.Collect(maps.Keys(today)))
	for name, want := range golden {
		got := today[name]
		require.ElementsMatch(t, slices.Collect(maps.Keys(want.Hash)), slices.Collect(maps.Keys(got.Hash)), name)
		require.Len(t, got.String, len(want.String), name)
		for _, field := range []string{"state", "fp", "exec", "order", "op", "holder", "takeovers", "once", "memo", "size", "limit", "how"} {
			require.Equal(t, want.Hash[field], got.Hash[field], "%s: %s", name, field)
		}
	}
}

// G01: what an older release has stored is replayed, respected and taken over.
func TestRecordsOfFormatV1AreUnderstood(t *testing.T) {
	behaviour(t, func(e *env) {
		layout := readLayout(e)
		e.load(layout)
		g := e.guard(GuardOptions{})
		for name, want := range map[string]error{
			"failed": ErrFailed, "oversize": ErrResultUnavailable, "running": ErrBusy, "pending": ErrBusy, "unknown": ErrOutcomeUnknown, "plain": ErrBusy,
		} {
			_, err := g.Begin(e.ctx(), e.goldenOp(name))
			require.ErrorIs(e, err, want, name)
			other := e.goldenOp(name)
			other.Fingerprint = e.fingerprint("other")
			_, err = g.Begin(e.ctx(), other)
			require.ErrorIs(e, err, ErrMismatch, name)
		}
		for name, memo := range map[string]string{"done": "memo", "empty": ""} {
			s, err := g.Begin(e.ctx(), e.goldenOp(name))
			require.NoError(e, err)
			require.Equal(e, Replayed, s.Outcome)
			require.Equal(e, memo, string(s.Memo))
		}
		for name, how := range map[string]Outcome{"running": TakenOver, "pending": TakenOver, "crashed": Reclaimed} {
			op := e.goldenOp(name)
			op.Execution.Attempt++
			old := e.status(op).Token
			s, err := g.Begin(e.ctx(), op)
			require.NoError(e, err)
			require.Equal(e, how, s.Outcome)
			require.Greater(e, s.Claim.Token().Value, old)
			require.NoError(e, s.Claim.Complete(e.ctx(), nil))
		}
		gate, err := NewGate(e.store, GateOptions{})
		require.NoError(e, err)
		stale := fence.Token{Resource: "golden/gate", Value: 1<<50 - 1, Owner: "owner"}
		require.ErrorIs(e, gate.Advance(e.ctx(), stale), fence.ErrStale)
		value, _, err := gate.Get(e.ctx(), "golden/gate", "k")
		require.NoError(e, err)
		require.Equal(e, "v", string(value))
	})
}
