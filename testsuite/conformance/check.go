package conformance

import (
	"bytes"
	"context"
	"errors"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// check is a case under way. Its methods take each step and say what was wrong.
type check struct {
	T

	ctx context.Context
	s   Store
}

func (c *check) fail(format string, args ...any) {
	c.Helper()
	c.Errorf(format, args...)
	c.FailNow()
}

func (c *check) ok(step string, err error) {
	c.Helper()
	if err != nil {
		c.fail("%s: %v", step, err)
	}
}

func (c *check) is(step string, err, want error) {
	c.Helper()
	if !errors.Is(err, want) {
		c.fail("%s: the error is %v, and should match %q", step, err, want)
	}
}

// begins begins an operation that is new, or whose outcome is one of want.
func (c *check) begins(op Op, want ...primitives.Outcome) Start {
	c.Helper()
	st, err := c.s.Begin(c.ctx, op)
	c.ok("begin", err)
	c.outcome(st, want...)
	if st.Outcome != primitives.Replayed && !st.Token.Valid() {
		c.fail("begin: %s without a token", st.Outcome)
	}
	return st
}

func (c *check) outcome(st Start, want ...primitives.Outcome) {
	c.Helper()
	if len(want) == 0 {
		want = []primitives.Outcome{primitives.Begun}
	}
	for _, w := range want {
		if st.Outcome == w {
			return
		}
	}
	c.fail("begin: the outcome is %q, and should be %q", st.Outcome, want)
}

func (c *check) busy(op Op) {
	c.Helper()
	_, err := c.s.Begin(c.ctx, op)
	c.is("begin while another one is at work", err, primitives.ErrBusy)
}

func (c *check) completes(st Start, memo string) {
	c.Helper()
	c.ok("complete", c.s.Complete(c.ctx, st.Claim, []byte(memo)))
}

// replays begins an operation that is done.
func (c *check) replays(op Op, memo string) {
	c.Helper()
	st := c.begins(op, primitives.Replayed)
	if !bytes.Equal(st.Memo, []byte(memo)) {
		c.fail("replay: the memo is %q, and should be %q", st.Memo, memo)
	}
}

func (c *check) acquires(resource string) Lease {
	c.Helper()
	l, err := c.s.Acquire(c.ctx, resource)
	c.ok("acquire", err)
	if !l.Token().Valid() || l.Token().Resource != resource {
		c.fail("acquire: %v is no token of %q", l.Token(), resource)
	}
	return l
}

// expires ends the lease of the resource r.
func (c *check) expires() {
	c.Helper()
	c.ok("expire", c.s.Expire(c.ctx, "r"))
}

// higher compares two tokens of one resource.
func (c *check) higher(newer, older fence.Token) {
	c.Helper()
	if newer.Value <= older.Value {
		c.fail("token %s was granted after %s", newer.Value, older.Value)
	}
}

// holds looks at the value of the key v.
func (c *check) holds(resource, want string) {
	c.Helper()
	v, err := c.s.Get(c.ctx, resource, "v")
	c.ok("get", err)
	if !bytes.Equal(v, []byte(want)) {
		c.fail("get: the value is %q, and should be %q", v, want)
	}
}
