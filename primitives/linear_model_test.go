package primitives

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// answer is how an operation of a history ended.
type answer int

const (
	yes     answer = iota // granted, extended, released, written, read
	no                    // busy, lost, stale
	unclear               // it may have happened, or may still happen
)

// Nanoseconds since the history began; forever is after its end.
type instant = int64

const never instant = 1 << 62

// leaseOp is one call on the lease of one resource.
type leaseOp struct {
	verb      string // acquire, extend, release
	token     fence.Value
	call, ret instant
}

type leaseAnswer struct {
	answer
	token fence.Value // granted; or of the holder that made it busy
}

// leaseState is the lease as the model has it. It ends by itself between minEnd and
// maxEnd, since a history tells only between which moments it was set.
type leaseState struct {
	holder, last   fence.Value
	minEnd, maxEnd instant
}

// slack is by how much the server's milliseconds may differ from ours.
const slack = instant(5 * time.Millisecond)

// leaseModel says which histories of a lease are right: at most one holder, who can be
// followed only after a release or after the TTL; tokens that rise; no revival. ghosts
// are tokens that were granted and that nobody was told of: a lost reply, whose lease
// may make others busy until its caller gives it up.
func leaseModel(ttl time.Duration, told map[fence.Value]bool) porcupine.Model {
	set := func(s leaseState, op leaseOp) leaseState {
		s.minEnd, s.maxEnd = op.call+int64(ttl)-slack, never
		if op.ret != never {
			s.maxEnd = op.ret + int64(ttl) + slack
		}
		return s
	}
	step := func(s leaseState, op leaseOp, a leaseAnswer) []leaseState {
		holds := s.holder == op.token && op.call <= s.maxEnd
		mayBeOver := s.holder == 0 || op.ret >= s.minEnd
		switch {
		case op.verb == "acquire" && a.answer == yes && mayBeOver && a.token > s.last:
			return []leaseState{set(leaseState{holder: a.token, last: a.token}, op)}
		case op.verb == "acquire" && a.answer == no && (s.holder == a.token && op.call <= s.maxEnd || !told[a.token]):
			return []leaseState{s}
		case op.verb == "acquire" && a.answer == unclear:
			return []leaseState{s}
		case op.verb == "extend" && a.answer == yes && holds:
			return []leaseState{set(s, op)}
		case op.verb == "release" && a.answer == yes && holds:
			return []leaseState{{last: s.last}}
		case op.verb != "acquire" && a.answer == no && (s.holder != op.token || mayBeOver):
			return []leaseState{s}
		case op.verb == "extend" && a.answer == unclear && holds:
			return []leaseState{s, {s.holder, s.last, s.minEnd, never}}
		case op.verb == "release" && a.answer == unclear && holds:
			return []leaseState{s, {last: s.last}}
		case a.answer == unclear:
			return []leaseState{s}
		}
		return nil
	}
	return typed(leaseState{}, step)
}

// gateOp is one call on the gate of one resource, which has one value.
type gateOp struct {
	token fence.Value // 0 to read
}

type gateAnswer struct {
	answer
	top fence.Value // the highest token seen; a value is the token that wrote it
}

// gateModel: a write passes if its token is not below the highest; a read sees the
// last write.
func gateModel() porcupine.Model {
	return typed(fence.Value(0), func(top fence.Value, op gateOp, a gateAnswer) []fence.Value {
		switch {
		case op.token == 0 && a.answer == yes && a.top == top:
			return []fence.Value{top}
		case op.token != 0 && a.answer == yes && op.token >= top:
			return []fence.Value{op.token}
		case op.token != 0 && a.answer == no && op.token < top && a.top == top:
			return []fence.Value{top}
		case a.answer == unclear:
			return []fence.Value{top, max(top, op.token)}
		}
		return nil
	})
}

// typed is a model of porcupine with its types put back.
func typed[S, I, O any](first S, step func(S, I, O) []S) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{first} },
		Step: func(state, in, out any) (next []any) {
			for _, s := range step(state.(S), in.(I), out.(O)) {
				next = append(next, s)
			}
			return next
		},
	}
	return m.ToModel()
}

// The checker can say no: each history here is broken in one way, and right without
// its last operation.
func TestBrokenHistoriesAreRejected(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	lease := leaseModel(100*time.Millisecond, map[fence.Value]bool{1: true, 2: true, 9: true})
	on := func(verb string, token fence.Value, at int64, a answer, got fence.Value) porcupine.Operation {
		op := leaseOp{verb, token, at * ms, at*ms + ms}
		return porcupine.Operation{Input: op, Call: op.call, Output: leaseAnswer{a, got}, Return: op.ret}
	}
	gate := func(token fence.Value, at int64, a answer, top fence.Value) porcupine.Operation {
		return porcupine.Operation{Input: gateOp{token}, Call: at, Output: gateAnswer{a, top}, Return: at + 1}
	}
	first := on("acquire", 0, 0, yes, 1)
	for name, c := range map[string]struct {
		model   porcupine.Model
		history []porcupine.Operation
	}{
		"two holders":               {lease, []porcupine.Operation{first, on("acquire", 0, 50, yes, 2)}},
		"two holders by an extend":  {lease, []porcupine.Operation{first, on("extend", 1, 50, yes, 0), on("acquire", 0, 130, yes, 2)}},
		"a token that goes back":    {lease, []porcupine.Operation{on("acquire", 0, 0, yes, 9), on("release", 9, 5, yes, 0), on("acquire", 0, 10, yes, 2)}},
		"the same token again":      {lease, []porcupine.Operation{first, on("release", 1, 5, yes, 0), on("acquire", 0, 10, yes, 1)}},
		"a revived lease":           {lease, []porcupine.Operation{first, on("extend", 1, 300, yes, 0)}},
		"a stolen release":          {lease, []porcupine.Operation{first, on("acquire", 0, 200, yes, 2), on("release", 1, 210, yes, 0)}},
		"a false lost":              {lease, []porcupine.Operation{first, on("extend", 1, 10, no, 0)}},
		"busy with nobody":          {lease, []porcupine.Operation{first, on("release", 1, 5, yes, 0), on("acquire", 0, 10, no, 1)}},
		"a stale write that passes": {gateModel(), []porcupine.Operation{gate(5, 0, yes, 0), gate(4, 10, yes, 0)}},
		"a fresh write refused":     {gateModel(), []porcupine.Operation{gate(5, 0, yes, 0), gate(6, 10, no, 5)}},
		"a read of what was before": {gateModel(), []porcupine.Operation{gate(5, 0, yes, 0), gate(6, 10, yes, 0), gate(0, 20, yes, 5)}},
	} {
		n := len(c.history) - 1
		require.True(t, porcupine.CheckOperations(c.model, c.history[:n]), name)
		require.False(t, porcupine.CheckOperations(c.model, c.history), name)
	}
}
