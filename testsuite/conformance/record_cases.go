package conformance

import "github.com/fencekit/fencekit-go/primitives"

var recordRules = []rule{
	{"a record excludes others", func(c *check) {
		c.tries(Op{Key: "k"})
		_, err := c.s.TryBegin(c.ctx, Op{Key: "k"})
		c.is("begin a running record", err, primitives.ErrBusy)
	}},
	{"a finished record is replayed", func(c *check) {
		st := c.tries(Op{Key: "k"})
		c.completes(st, "result")
		again, err := c.s.TryBegin(c.ctx, Op{Key: "k"})
		c.ok("begin a finished record", err)
		c.outcome(again, primitives.Replayed)
		if string(again.Memo) != "result" {
			c.fail("replay: the memo is %q", again.Memo)
		}
	}},
	{"an aborted record begins anew", func(c *check) {
		st := c.tries(Op{Key: "k"})
		c.ok("abort", c.s.Abort(c.ctx, st.Claim))
		c.tries(Op{Key: "k"})
	}},
	{"a record with other input is a mismatch", func(c *check) {
		c.completes(c.tries(Op{Key: "k", Input: "a"}), "result")
		_, err := c.s.TryBegin(c.ctx, Op{Key: "k", Input: "b"})
		c.is("begin with other input", err, primitives.ErrMismatch)
	}},
}

// tries begins an operation by its record alone.
func (c *check) tries(op Op) Start {
	c.Helper()
	st, err := c.s.TryBegin(c.ctx, op)
	c.ok("try begin", err)
	c.outcome(st)
	return st
}
