package interceptor

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Busy are the details of an error of type [TypeBusy].
type Busy struct {
	Key             string      // of the operation that was asked for
	Holder          string      // workflow, run, activity and worker that is at work
	Token           fence.Value // theirs
	Since           time.Time   // when they began, by the clock of Redis
	RemainingMillis int64       // until their lease ends, if it is not renewed
}

func (c *call) busy(key primitives.Key, b *primitives.BusyError) error {
	text := fmt.Sprintf("fencekit: key %s is busy: %q holds it with token %s since %s, for another %s",
		key, b.Holder, b.Token, b.Since.UTC().Format(time.RFC3339Nano), b.Remaining.Round(time.Millisecond))
	return temporal.NewApplicationErrorWithOptions(text, TypeBusy, temporal.ApplicationErrorOptions{
		Category:       temporal.ApplicationErrorCategoryBenign,
		NextRetryDelay: c.clamp(c.comeBack(b)),
		Cause:          primitives.ErrBusy,
		Details: []any{Busy{Key: key.String(), Holder: b.Holder, Token: b.Token, Since: b.Since,
			RemainingMillis: b.Remaining.Milliseconds()}},
	})
}

const (
	// margin is what a turn is longer than its body: for the way of its attempt, from the
	// server's timer to the lease.
	margin = 50 * time.Millisecond

	// Nobody is told to come back later than this because of others, or, with unlimited
	// attempts, than five seconds, or as long again as the call has waited so far: whoever
	// was before it may be done sooner, or gone.
	latest         = time.Hour
	latestOfFreely = 5 * time.Second
)

// comeBack is when to ask again.
func (c *call) comeBack(b *primitives.BusyError) time.Duration {
	free := c.untilFree(b.Remaining)
	switch {
	case b.Turn == 0 && b.Ahead > 0 && c.plan.Resource.set: // after a wait in line
		behind := min(time.Duration(b.Ahead)*c.term(), c.latest())
		return max(free, behind) + rand.N(free/10+margin)
	case b.Turn == 0: // for the result of the same operation
		return free + rand.N(free/10+margin)
	case b.Turn >= c.turn.Within: // the crowd is too large for a turn of its own
		return free + rand.N(max(c.turn.Within-free, margin))
	}
	return b.Turn + time.Millisecond // Redis counts whole ones
}

// untilFree is when to ask again for what is busy for another `remaining`, if its lease
// is not renewed. Where attempts are limited, that is when the lease ends: asking sooner
// would burn them. Where they are not, the call waits about as long again as it has
// waited so far, so that it has the result soon after it is there, for a number of
// attempts that grows with the logarithm of the body's time.
func (c *call) untilFree(remaining time.Duration) time.Duration {
	// A lease of the same policy never lasts longer than this; the result of somebody
	// who completes it from elsewhere may come at any time.
	delay := min(remaining, c.plan.leaseTTL)
	if c.freely() {
		delay = min(delay, max(time.Second, c.waited()))
	}
	return delay
}

// freely reports whether attempts cost nothing.
func (c *call) freely() bool {
	return c.info.RetryPolicy != nil && c.info.RetryPolicy.MaximumAttempts == 0
}

// more is how many attempts are left after this one, where they are limited; one if
// their number is not known.
func (c *call) more() int {
	if c.info.RetryPolicy == nil {
		return 1
	}
	return int(c.info.RetryPolicy.MaximumAttempts - c.info.Attempt)
}

// itsTurn is what the call asks for in case that another operation has its resource: a
// time of its own to come back.
func (c *call) itsTurn() (t primitives.Turn) {
	if !c.plan.Resource.set || !c.freely() && c.more() < 1 {
		return t
	}
	t.Term, t.Within = c.term(), c.latest()
	if c.freely() {
		t.Probe = max(c.waited(), time.Millisecond)
	}
	return t
}

// latest is how late the call may come back because of others.
func (c *call) latest() time.Duration {
	within := latest
	if c.freely() {
		within = max(c.waited(), latestOfFreely)
	}
	if left, bounded := c.left(); bounded {
		within = max(min(within, left*3/4), time.Millisecond)
	}
	return within
}

// term is for how long the call will likely have the resource to itself. While this worker
// has not seen the end of a body, it is a guess. Where attempts are limited, it is the
// whole lease for the last of them, and half as much for each one before: if it is too
// short, an attempt is lost, and if it is too long, time. Where they are not, it grows with
// the time that the call has waited.
func (c *call) term() time.Duration {
	usual := c.plan.terms.usual()
	switch {
	case usual > 0:
		return usual + margin
	case c.freely():
		return max(c.waited()/16, margin)
	}
	return max(c.plan.leaseTTL>>min(max(c.more()-1, 0), 30), margin)
}

// terms is how long the bodies of an activity have taken on this worker: a mean and a mean
// deviation, in which the newest counts most.
type terms struct {
	mu        sync.Mutex
	mean, off time.Duration
}

// saw adds a body that has ended.
func (t *terms) saw(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d = max(d, 1); t.mean == 0 {
		t.mean, t.off = d, d/4
		return
	}
	t.off += ((d - t.mean).Abs() - t.off) / 4
	t.mean += (d - t.mean) / 8
}

// usual is what few bodies exceed, or 0 if none has ended.
func (t *terms) usual() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mean + 2*t.off
}
