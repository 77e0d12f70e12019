package devstack

import (
	"strings"
	"sync"
	"time"
)

// Fault is what a [Rule] does to a command. The zero Fault lets it pass.
type Fault struct {
	dropRequest bool
	dropReply   bool
	forged      string
	delay       time.Duration
	before      bool // the delay comes before the server sees the command
	call        func()
}

// strikesReply tells the faults that need the server's answer first.
func (f Fault) strikesReply() bool { return f.dropReply || f.delay > 0 && !f.before }

// DropRequest closes the connection instead of sending the command on: the
// server never sees it. Replies to earlier commands of a pipeline may be lost too.
func DropRequest() Fault { return Fault{dropRequest: true} }

// DropReply has the server execute the command and then closes the connection in
// place of the reply: the client cannot know whether it was executed.
func DropReply() Fault { return Fault{dropReply: true} }

// DelayReply has the server execute the command at once and holds its reply, and
// all replies after it on the connection, for d.
func DelayReply(d time.Duration) Fault { return Fault{delay: d} }

// DelayRequest holds the command, and all after it on the connection, for d
// before the server sees it.
func DelayRequest(d time.Duration) Fault { return Fault{delay: d, before: true} }

// ForgeReply answers with raw RESP in the server's place. See [ErrorReply].
func ForgeReply(raw string) Fault { return Fault{forged: raw} }

// Call runs f when the command has arrived and sends the command on when f
// returns: for faults that must come at one exact moment.
func Call(f func()) Fault { return Fault{call: f} }

// Rule says which commands meet which fault.
type Rule struct {
	// Match picks commands. Default: all but handshakes. A handshake has to be
	// picked by a Match of its own. It is called for one command at a time.
	Match func(Command) bool

	// Nth is which of the picked commands meets the fault, counted from 1 and
	// from the moment that the rule is added. Default 0: every one.
	Nth int

	// Fault is what happens. See [DropReply] and its like.
	Fault Fault
}

// Named matches the commands of these names, which are case-insensitive.
func Named(names ...string) func(Command) bool {
	return func(c Command) bool {
		for _, name := range names {
			if strings.EqualFold(c.Name, name) {
				return true
			}
		}
		return false
	}
}

// Hit follows a [Rule] that was added to a [Proxy].
type Hit struct {
	rule   Rule
	proxy  *Proxy
	once   sync.Once
	struck chan struct{}
	seen   int // picked commands; guarded by proxy.mu
}

// Struck is closed when the rule's fault has happened for the first time: for
// [DropReply] and [DelayReply], when the server has answered; for all others, when
// the command has arrived.
func (h *Hit) Struck() <-chan struct{} { return h.struck }

// Remove takes the rule away.
func (h *Hit) Remove() {
	h.proxy.mu.Lock()
	defer h.proxy.mu.Unlock()
	for i, other := range h.proxy.rules {
		if other == h {
			h.proxy.rules = append(h.proxy.rules[:i:i], h.proxy.rules[i+1:]...)
			return
		}
	}
}

// strikes counts c and reports whether it meets the fault.
func (h *Hit) strikes(c Command) bool {
	if h.rule.Match == nil && c.Handshake() || h.rule.Match != nil && !h.rule.Match(c) {
		return false
	}
	h.seen++
	return h.rule.Nth == 0 || h.rule.Nth == h.seen
}

// fault is the zero Fault where no rule struck.
func (h *Hit) fault() Fault {
	if h == nil {
		return Fault{}
	}
	return h.rule.Fault
}

func (h *Hit) signal() {
	if h != nil {
		h.once.Do(func() { close(h.struck) })
	}
}
