package conformance

import (
	"errors"
	"time"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

var failureRules = []rule{
	{"a memoised failure is given to everybody", func(c *check) {
		if f, ok := can[Failer](c); ok {
			c.ok("fail", f.Fail(c.ctx, c.begins(Op{Key: "k"}).Claim, []byte("why")))
			c.failed(Op{Key: "k"}, "why")
			c.failed(Op{Key: "k", Execution: "one", Attempt: 2}, "why")
		}
	}},
	{"a memoised failure frees the resource", func(c *check) {
		if f, ok := can[Failer](c); ok {
			c.ok("fail", f.Fail(c.ctx, c.begins(Op{Key: "a", Resource: "r"}).Claim, nil))
			c.begins(Op{Key: "b", Resource: "r"})
		}
	}},
	{"a superseded failure is not stored", func(c *check) {
		if f, ok := can[Failer](c); ok {
			first := c.begins(Op{Key: "k", Execution: "one", Attempt: 1})
			second := c.begins(Op{Key: "k", Execution: "one", Attempt: 2}, primitives.TakenOver)
			c.is("fail after a takeover", f.Fail(c.ctx, first.Claim, []byte("why")), primitives.ErrSuperseded)
			c.completes(second, "new")
			c.replays(Op{Key: "k"}, "new")
		}
	}},
}

var suspendRules = []rule{
	{"a suspended operation is busy until its result arrives", func(c *check) {
		if s, ok := can[Suspender](c); ok {
			st := c.begins(Op{Key: "k", Resource: "r", Execution: "one", Attempt: 1})
			c.ok("suspend", s.Suspend(c.ctx, st.Claim, time.Hour))
			c.busy(Op{Key: "k", Resource: "r"})
			c.busy(Op{Key: "other", Resource: "r"})
			c.completes(st, "result")
			c.replays(Op{Key: "k", Resource: "r"}, "result")
		}
	}},
	{"a newer attempt takes a suspended operation over", func(c *check) {
		if s, ok := can[Suspender](c); ok {
			first := c.begins(Op{Key: "k", Execution: "one", Attempt: 1})
			c.ok("suspend", s.Suspend(c.ctx, first.Claim, time.Hour))
			c.higher(c.begins(Op{Key: "k", Execution: "one", Attempt: 2}, primitives.TakenOver).Token, first.Token)
			c.is("complete after the takeover", c.s.Complete(c.ctx, first.Claim, []byte("old")), primitives.ErrSuperseded)
		}
	}},
}

var optionRules = []rule{
	{"a result above the limit is done, and not kept", func(c *check) {
		if c.with(Rules{MaxMemo: 4}) {
			c.completes(c.begins(Op{Key: "k"}), "12345")
			c.refuses(Op{Key: "k"}, primitives.ErrResultUnavailable)
			c.completes(c.begins(Op{Key: "small"}), "1234")
			c.replays(Op{Key: "small"}, "1234")
		}
	}},
	{"after the limit of takeovers an operation is poisoned", func(c *check) {
		if c.with(Rules{MaxTakeovers: 1}) {
			op := Op{Key: "k", Resource: "r"}
			c.begins(op)
			c.expires()
			c.begins(op, primitives.Reclaimed)
			c.expires()
			c.refuses(op, primitives.ErrPoisoned)
			c.refuses(op, primitives.ErrPoisoned)
		}
	}},
	{"an at-most-once operation that was interrupted does not run again", func(c *check) {
		if c.with(Rules{AtMostOnce: true}) {
			op := Op{Key: "k", Resource: "r", Execution: "one", Attempt: 1}
			st := c.begins(op)
			newer := op
			newer.Attempt = 2
			c.busy(newer)
			c.expires()
			c.refuses(newer, primitives.ErrOutcomeUnknown)
			c.completes(st, "late")
			c.replays(newer, "late")
		}
	}},
	{"an at-most-once operation that was aborted begins anew", func(c *check) {
		if c.with(Rules{AtMostOnce: true}) {
			c.ok("abort", c.s.Abort(c.ctx, c.begins(Op{Key: "k"}).Claim))
			c.begins(Op{Key: "k"})
		}
	}},
	{"who waits is served in the order of coming", func(c *check) {
		if line, ok := can[Liner](c); ok && c.with(Rules{Wait: caseTimeout}) {
			holder := c.acquires("r")
			served := make(chan arrival, 2)
			for n, key := range []string{"first", "second"} {
				go func() {
					st, err := c.s.Begin(c.ctx, Op{Key: key, Resource: "r"})
					served <- arrival{key, st, err}
				}()
				c.waits(line, "r", n+1)
			}
			c.ok("release", c.s.Release(c.ctx, holder))
			for _, want := range []string{"first", "second"} {
				got := <-served
				c.ok("wait", got.err)
				if got.key != want {
					c.fail("wait: %s was served, and %s was before it", got.key, want)
				}
				c.completes(got.Start, "")
			}
		}
	}},
}

var lossRules = []rule{
	{"tokens rise after a loss of all data", func(c *check) {
		older := c.acquires("r").Token()
		begun := c.begins(Op{Key: "k"}).Token
		if c.loses() {
			c.higher(c.acquires("r").Token(), older)
			c.higher(c.begins(Op{Key: "k"}).Token, begun)
		}
	}},
	{"a lease is not revived after a loss of all data", func(c *check) {
		lease := c.acquires("r")
		if c.loses() {
			c.acquires("r")
			c.is("extend", c.s.Extend(c.ctx, lease), fence.ErrLeaseLost)
		}
	}},
}

// arrival is a begin that has waited.
type arrival struct {
	key string
	Start

	err error
}

// can is the store as one with a capability. A case ends where there is none.
func can[C any](c *check) (capable C, ok bool) {
	c.Helper()
	capable, ok = c.s.(C)
	if !ok {
		c.skip()
	}
	return capable, ok
}

// skip says that a case did not apply, to a T that can be told.
func (c *check) skip() {
	c.Helper()
	if t, ok := c.T.(interface{ Skip(args ...any) }); ok {
		t.Skip("the store cannot do what the case is about")
	}
}

// with goes on with other rules.
func (c *check) with(r Rules) bool {
	c.Helper()
	configurer, ok := can[Configurer](c)
	if !ok {
		return false
	}
	s, err := configurer.With(r)
	c.ok("with", err)
	c.s = s
	return true
}

// loses has the store lose everything.
func (c *check) loses() bool {
	c.Helper()
	loser, ok := can[Loser](c)
	if !ok {
		return false
	}
	err := loser.Lose(c.ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		c.skip()
		return false
	}
	c.ok("lose", err)
	return true
}

func (c *check) refuses(op Op, want error) {
	c.Helper()
	_, err := c.s.Begin(c.ctx, op)
	c.is("begin", err, want)
}

// failed begins an operation that has failed for good.
func (c *check) failed(op Op, memo string) {
	c.Helper()
	_, err := c.s.Begin(c.ctx, op)
	var failed *primitives.FailedError
	if !errors.As(err, &failed) || string(failed.Memo) != memo {
		c.fail("begin after a failure: the error is %v, and should be a FailedError with %q", err, memo)
	}
}

// waits waits until n stand in line.
func (c *check) waits(line Liner, resource string, n int) {
	c.Helper()
	for {
		waiting, err := line.Waiting(c.ctx, resource)
		c.ok("waiting", err)
		if waiting >= n {
			return
		}
		select {
		case <-c.ctx.Done():
			c.fail("waiting: %d stand in line, and should be %d", waiting, n)
		case <-time.After(time.Millisecond):
		}
	}
}
