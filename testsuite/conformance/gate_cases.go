package conformance

import "github.com/fencekit/fencekit-go/primitives/fence"

var gateRules = []rule{
	{"a gate lets the holder through, again and again", func(c *check) {
		t := c.acquires("r").Token()
		c.ok("set", c.s.SetIfFresh(c.ctx, t, "v", []byte("1")))
		c.ok("set again", c.s.SetIfFresh(c.ctx, t, "v", []byte("2")))
		c.holds("r", "2")
	}},
	{"a gate refuses an older token, and keeps the newer value", func(c *check) {
		older := c.acquires("r").Token()
		c.expires()
		newer := c.acquires("r").Token()
		c.ok("set by the newer", c.s.SetIfFresh(c.ctx, newer, "v", []byte("new")))
		c.is("set by the older", c.s.SetIfFresh(c.ctx, older, "v", []byte("old")), fence.ErrStale)
		c.holds("r", "new")
	}},
	{"a gate guards all keys of its resource", func(c *check) {
		older := c.acquires("r").Token()
		c.expires()
		newer := c.acquires("r").Token()
		c.ok("set by the newer", c.s.SetIfFresh(c.ctx, newer, "v", []byte("new")))
		c.is("set another key by the older", c.s.SetIfFresh(c.ctx, older, "w", []byte("old")), fence.ErrStale)
	}},
	{"a gate tells equal tokens of two owners apart", func(c *check) {
		t := c.acquires("r").Token()
		c.ok("set", c.s.SetIfFresh(c.ctx, t, "v", []byte("1")))
		t.Owner += "-other"
		c.is("set by another owner with the same token", c.s.SetIfFresh(c.ctx, t, "v", []byte("2")), fence.ErrStale)
	}},
	{"gates of two resources are independent", func(c *check) {
		r := c.acquires("r").Token()
		s := c.acquires("s").Token()
		c.ok("set in one", c.s.SetIfFresh(c.ctx, s, "v", []byte("s")))
		c.ok("set in the other", c.s.SetIfFresh(c.ctx, r, "v", []byte("r")))
		c.holds("r", "r")
		c.holds("s", "s")
	}},
}
