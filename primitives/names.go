package primitives

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// formatVersion is part of every name: two versions never read each other's keys.
const formatVersion = "v1"

// digestLen is how many hex digits of a SHA-256 stand in a name: 128 bits.
const digestLen = 32

// names is the only builder of Redis key and channel names. They are a wire
// format: the golden test holds them, and DESIGN.md lists them.
//
// Everything of one resource shares one hash tag, so that a script stays in one
// slot of a cluster. The tag and all other variable parts are digests: no caller's
// braces, control bytes or personal data ever reach a name.
type names struct{ base string }

func newNames(prefix string) names { return names{base: prefix + ":" + formatVersion + ":"} }

// resourceNames are the names under one resource's tag.
type resourceNames struct{ root string }

func (n names) resource(resource string) resourceNames {
	return resourceNames{root: n.base + "{" + digest("resource", resource) + "}:"}
}

func (r resourceNames) lease() string                { return r.root + "lease" }
func (r resourceNames) token() string                { return r.root + "token" }
func (r resourceNames) queue() string                { return r.root + "queue" }
func (r resourceNames) waiters() string              { return r.root + "waiters" }
func (r resourceNames) turns() string                { return r.root + "turns" }
func (r resourceNames) released(nonce string) string { return r.root + "released:" + nonce }
func (r resourceNames) record(key Key) string        { return r.root + "op:" + digest("key", key.String()) }
func (r resourceNames) records(keys []Key) (names []string) {
	for _, key := range keys {
		names = append(names, r.record(key))
	}
	return names
}
func (r resourceNames) gate() string                { return r.root + "gate" }
func (r resourceNames) gateValue(key string) string { return r.root + "gate:" + digest("gate", key) }

// waitersOf is where those are noted who wait for a record.
func waitersOf(record string) string { return strings.Replace(record, "}:op:", "}:waiting:", 1) }

// wake is the channel on which one process hears of leases that are handed to it.
func (n names) wake(process string) string { return n.base + "wake:" + process }

// all is the SCAN pattern of one kind of key over all resources.
func (n names) all(kind string) string { return n.base + "{*}:" + kind }

// sibling is the name beside a listed key under the same tag: the lease of a
// listed record, for instance.
func sibling(name, kind string) string {
	return name[:strings.Index(name, "}:")+2] + kind
}

// digest keeps the kinds of things that are named apart, so that a resource and a
// key of the same spelling do not meet.
func digest(kind, s string) string {
	sum := sha256.Sum256([]byte("fencekit." + formatVersion + "." + kind + "\x00" + s))
	return hex.EncodeToString(sum[:digestLen/2])
}
