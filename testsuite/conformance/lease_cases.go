package conformance

import (
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

var leaseRules = []rule{
	{"a lease excludes others", func(c *check) {
		c.acquires("r")
		_, err := c.s.Acquire(c.ctx, "r")
		c.is("acquire a held lease", err, primitives.ErrBusy)
	}},
	{"leases of two resources are independent", func(c *check) {
		c.acquires("r")
		c.acquires("s")
	}},
	{"a released lease is free at once", func(c *check) {
		l := c.acquires("r")
		c.ok("release", c.s.Release(c.ctx, l))
		c.acquires("r")
	}},
	{"release may be repeated and does not touch a successor", func(c *check) {
		l := c.acquires("r")
		c.ok("release", c.s.Release(c.ctx, l))
		c.acquires("r")
		c.ok("release again", c.s.Release(c.ctx, l))
		_, err := c.s.Acquire(c.ctx, "r")
		c.is("acquire after the old holder has released twice", err, primitives.ErrBusy)
	}},
	{"an expired lease is free", func(c *check) {
		c.acquires("r")
		c.expires()
		c.acquires("r")
	}},
	{"tokens rise after release and after expiry", func(c *check) {
		first := c.acquires("r")
		c.ok("release", c.s.Release(c.ctx, first))
		second := c.acquires("r")
		c.higher(second.Token(), first.Token())
		c.expires()
		c.higher(c.acquires("r").Token(), second.Token())
	}},
	{"a held lease is extended", func(c *check) {
		l := c.acquires("r")
		c.ok("extend", c.s.Extend(c.ctx, l))
	}},
	{"an expired lease is not revived", func(c *check) {
		l := c.acquires("r")
		c.expires()
		c.is("extend an expired lease", c.s.Extend(c.ctx, l), fence.ErrLeaseLost)
		c.acquires("r")
	}},
	{"a lease that was taken is not extended", func(c *check) {
		l := c.acquires("r")
		c.expires()
		c.acquires("r")
		c.is("extend a lease that somebody else holds", c.s.Extend(c.ctx, l), fence.ErrLeaseLost)
	}},
}
