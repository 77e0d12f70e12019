package primitives

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// history is what concurrent clients saw.
type history struct {
	start time.Time
	ttl   time.Duration // of the leases in it

	mu  sync.Mutex
	ops []porcupine.Operation
}

func (h *history) now() instant { return int64(time.Since(h.start)) }

func (h *history) add(client int, in any, call instant, out any, ret instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
}

// judged is the answer of a call by its error, and when the call was over for sure.
func (h *history) judged(t *testing.T, err, refusal error) (answer, instant) {
	switch {
	case err == nil:
		return yes, h.now()
	case errors.Is(err, refusal):
		return no, h.now()
	}
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, fence.ErrLeaseLost) {
		t.Errorf("unexpected: %v", err)
	}
	return unclear, never
}

// check looks for an order in which the history is right, and says whether it would have
// shown a wrong one: somebody was let in, and somebody was not. One with unclear ends may
// have too many orders to look through: then it proves nothing.
func (h *history) check(t *testing.T, model porcupine.Model) (proves bool) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[answer]int{}
	for _, op := range h.ops {
		switch out := op.Output.(type) {
		case leaseAnswer:
			counts[out.answer]++
		case gateAnswer:
			counts[out.answer]++
		}
	}
	t.Logf("%d operations: %d yes, %d no, %d unclear", len(h.ops), counts[yes], counts[no], counts[unclear])
	patient := 5 * time.Second
	if counts[unclear] == 0 {
		patient = 2 * time.Minute
	}
	verdict := porcupine.CheckOperationsTimeout(model, h.ops, patient)
	if counts[unclear] > 0 && verdict == porcupine.Unknown {
		t.Log("inconclusive")
	} else {
		require.Equal(t, porcupine.Ok, verdict)
	}
	return counts[yes] > 0 && counts[no] > 0
}

// conditions are the networks under which histories are taken.
var conditions = map[string]func(r *rig){
	"quiet": func(*rig) {},
	"broken": func(r *rig) {
		r.lossy, r.far.opts.Timeout = true, 2*time.Second
		n, m, k, lossy := 0, 0, 0, running()
		r.proxy.Add(devstack.Rule{Fault: devstack.DropReply(), Match: func(c devstack.Command) bool { n++; return n%5 == 0 && lossy(c) }})
		r.proxy.Add(devstack.Rule{Fault: devstack.DropRequest(), Match: func(c devstack.Command) bool { m++; return m%7 == 0 && lossy(c) }})
		// By the count of commands, not by time: a slow machine must get on too.
		r.proxy.Add(devstack.Rule{Fault: devstack.Call(r.proxy.Reset), Match: func(c devstack.Command) bool { k++; return k%23 == 0 && lossy(c) }})
	},
}

// concurrently runs clients under each condition and checks what they saw. Short leases
// show most; where none can be had because the machine is slow, they get longer.
func concurrently(t *testing.T, client func(r *rig, h *history, id int), model func(h *history) porcupine.Model) {
	t.Helper()
	t.Parallel()
	for name, breaking := range conditions {
		for _, c := range faultyClients {
			t.Run(fmt.Sprintf("%s/%s", name, c.name), func(t *testing.T) {
				t.Parallel()
				for ttl := minLease; ; ttl *= 4 {
					require.Less(t, ttl, 10*time.Second, "no history proves anything")
					r := newRig(t, c.edit, Options{})
					breaking(r)
					h := &history{start: time.Now(), ttl: ttl}
					var clients sync.WaitGroup
					for id := range 5 {
						clients.Go(func() { client(r, h, id) })
					}
					clients.Wait()
					if h.check(t, model(h)) {
						return
					}
				}
			})
		}
	}
}

// The lease is linearizable: acquire, extend, release and expiry, also when
// connections break and nobody knows what has happened.
func TestTheLeaseIsLinearizable(t *testing.T) {
	concurrently(t, func(r *rig, h *history, id int) {
		for range 15 {
			leaseRound(r, h, id)
		}
	}, func(h *history) porcupine.Model {
		told := map[fence.Value]bool{}
		for _, op := range h.ops {
			if a := op.Output.(leaseAnswer); op.Input.(leaseOp).verb == "acquire" && a.answer == yes {
				told[a.token] = true
			}
		}
		return leaseModel(h.ttl, told)
	})
}

// leaseRound tries for the lease once, and does something with it if it gets it.
func leaseRound(r *rig, h *history, id int) {
	ttl, call := h.ttl, h.now()
	lease, err := r.far.TryAcquire(r.ctx(), "account", LeaseOptions{TTL: ttl})
	a, ret := h.judged(r.T, err, ErrBusy)
	got := leaseAnswer{answer: a}
	var busy *BusyError
	switch {
	case a == yes:
		got.token = lease.Token().Value
	case errors.As(err, &busy):
		got.token = busy.Token
	}
	h.add(id, leaseOp{"acquire", 0, call, ret}, call, got, ret)
	if a != yes {
		_ = sleep(r.ctx(), rand.N(5*time.Millisecond))
		return
	}
	for range rand.N(3) {
		leaseStep(r, h, id, "extend", got.token, func() error { return lease.Extend(r.ctx(), ttl) })
		_ = sleep(r.ctx(), rand.N(ttl/4))
	}
	if rand.N(4) == 0 { // it forgets, and comes back late
		_ = sleep(r.ctx(), ttl+ttl/2)
		leaseStep(r, h, id, "extend", got.token, func() error { return lease.Extend(r.ctx(), ttl) })
	}
	leaseStep(r, h, id, "release", got.token, func() error { return lease.Release(r.ctx()) })
}

func leaseStep(r *rig, h *history, id int, verb string, token fence.Value, step func() error) {
	call := h.now()
	a, ret := h.judged(r.T, step(), fence.ErrLeaseLost)
	if a == no && r.lossy {
		// It may be the second answer: the first, which was lost, may have been yes.
		h.add(id, leaseOp{verb, token, call, ret}, call, leaseAnswer{answer: unclear}, ret)
	}
	h.add(id, leaseOp{verb, token, call, ret}, call, leaseAnswer{answer: a}, ret)
}

// The gate is a linearizable register of the highest token and what it wrote.
func TestTheGateIsLinearizable(t *testing.T) {
	var tokens sync.Map // the next token of each rig
	concurrently(t, func(r *rig, h *history, id int) {
		next, _ := tokens.LoadOrStore(r, &sequence{})
		for range 20 {
			gateRound(r, h, id, next.(*sequence))
		}
	}, func(*history) porcupine.Model { return gateModel() })
}

// sequence hands out rising numbers.
type sequence struct {
	mu sync.Mutex
	n  fence.Value
}

func (c *sequence) next() fence.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// gateRound writes under a token that others may have overtaken, and reads.
func gateRound(r *rig, h *history, id int, tokens *sequence) {
	gate, err := NewGate(r.far, GateOptions{})
	require.NoError(r, err)
	token := fence.Token{Resource: "account", Value: tokens.next(), Owner: fmt.Sprint(id)}
	_ = sleep(r.ctx(), rand.N(3*time.Millisecond))
	call := h.now()
	err = gate.SetIfFresh(r.ctx(), token, "value", []byte(token.Value.String()), 0)
	a, ret := h.judged(r.T, err, fence.ErrStale)
	got := gateAnswer{answer: a}
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		got.top = stale.Current
		// As with the lease: the write may have stood until it was overtaken.
		if r.lossy {
			h.add(id, gateOp{token.Value}, call, gateAnswer{answer: unclear}, ret)
		}
	}
	h.add(id, gateOp{token.Value}, call, got, ret)

	call = h.now()
	value, top, err := gate.Get(r.ctx(), "account", "value")
	if errors.Is(err, ErrNotFound) {
		h.add(id, gateOp{}, call, gateAnswer{answer: yes}, h.now())
		return
	}
	a, ret = h.judged(r.T, err, nil)
	if a == yes {
		require.Equal(r, top.Value.String(), string(value), "a value and its token are read in one step")
		h.add(id, gateOp{}, call, gateAnswer{answer: yes, top: top.Value}, ret)
	}
}
