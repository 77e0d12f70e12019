package conformance

import "github.com/fencekit/fencekit-go/primitives"

var guardRules = []rule{
	{"an operation excludes others of its key", func(c *check) {
		c.begins(Op{Key: "k"})
		c.busy(Op{Key: "k"})
	}},
	{"operations of one resource exclude each other", func(c *check) {
		c.begins(Op{Key: "a", Resource: "r"})
		c.busy(Op{Key: "b", Resource: "r"})
	}},
	{"an operation and a lease of its resource exclude each other", func(c *check) {
		c.acquires("r")
		c.busy(Op{Key: "k", Resource: "r"})
	}},
	{"a finished operation is replayed to everybody", func(c *check) {
		c.completes(c.begins(Op{Key: "k", Execution: "one", Attempt: 1}), "result")
		c.replays(Op{Key: "k", Execution: "one", Attempt: 2}, "result")
		c.replays(Op{Key: "k", Execution: "two", Attempt: 1}, "result")
		c.replays(Op{Key: "k"}, "result")
	}},
	{"an empty result is a result", func(c *check) {
		c.completes(c.begins(Op{Key: "k"}), "")
		c.replays(Op{Key: "k"}, "")
	}},
	{"any bytes are a result", func(c *check) {
		memo := "\x00\xff\r\n*3\r\n$-1\r\n'\"\\"
		c.completes(c.begins(Op{Key: "k"}), memo)
		c.replays(Op{Key: "k"}, memo)
	}},
	{"complete frees the resource", func(c *check) {
		c.completes(c.begins(Op{Key: "a", Resource: "r"}), "")
		c.begins(Op{Key: "b", Resource: "r"})
	}},
	{"complete may be repeated", func(c *check) {
		st := c.begins(Op{Key: "k"})
		c.completes(st, "result")
		c.completes(st, "result")
		c.replays(Op{Key: "k"}, "result")
	}},
	{"an aborted operation begins anew", func(c *check) {
		first := c.begins(Op{Key: "k"})
		c.ok("abort", c.s.Abort(c.ctx, first.Claim))
		c.higher(c.begins(Op{Key: "k"}).Token, first.Token)
	}},
	{"a crashed holder is reclaimed with a higher token", func(c *check) {
		first := c.begins(Op{Key: "k", Resource: "r"})
		c.expires()
		c.higher(c.begins(Op{Key: "k", Resource: "r"}, primitives.Reclaimed).Token, first.Token)
	}},
	{"a newer attempt takes over with a higher token", func(c *check) {
		first := c.begins(Op{Key: "k", Execution: "one", Attempt: 1})
		c.higher(c.begins(Op{Key: "k", Execution: "one", Attempt: 2}, primitives.TakenOver).Token, first.Token)
	}},
	{"an older or equal attempt, or another execution's, does not take over", func(c *check) {
		c.begins(Op{Key: "k", Execution: "one", Attempt: 2})
		c.busy(Op{Key: "k", Execution: "one", Attempt: 1})
		c.busy(Op{Key: "k", Execution: "one", Attempt: 2})
		c.busy(Op{Key: "k", Execution: "two", Attempt: 3})
	}},
	{"a superseded result is not stored", func(c *check) {
		first := c.begins(Op{Key: "k", Execution: "one", Attempt: 1})
		second := c.begins(Op{Key: "k", Execution: "one", Attempt: 2}, primitives.TakenOver)
		c.is("complete after a takeover", c.s.Complete(c.ctx, first.Claim, []byte("old")), primitives.ErrSuperseded)
		c.completes(second, "new")
		c.is("complete after the successor", c.s.Complete(c.ctx, first.Claim, []byte("old")), primitives.ErrSuperseded)
		c.replays(Op{Key: "k"}, "new")
	}},
	{"a late result is stored while nobody has come after", func(c *check) {
		st := c.begins(Op{Key: "k", Resource: "r"})
		c.expires()
		c.completes(st, "late")
		c.replays(Op{Key: "k", Resource: "r"}, "late")
	}},
	{"a late abort leaves the successor alone", func(c *check) {
		first := c.begins(Op{Key: "k", Execution: "one", Attempt: 1})
		second := c.begins(Op{Key: "k", Execution: "one", Attempt: 2}, primitives.TakenOver)
		c.ok("abort after a takeover", c.s.Abort(c.ctx, first.Claim))
		c.busy(Op{Key: "k"})
		c.completes(second, "new")
		c.replays(Op{Key: "k"}, "new")
	}},
	{"other input is a mismatch, done or running", func(c *check) {
		st := c.begins(Op{Key: "k", Input: "a"})
		_, err := c.s.Begin(c.ctx, Op{Key: "k", Input: "b"})
		c.is("begin with other input while it runs", err, primitives.ErrMismatch)
		c.completes(st, "result")
		_, err = c.s.Begin(c.ctx, Op{Key: "k", Input: "b"})
		c.is("begin with other input when it is done", err, primitives.ErrMismatch)
		c.replays(Op{Key: "k", Input: "a"}, "result")
	}},
}
