package primitives

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Observer is told what a [Guard] does, for metrics and logs. Observe is called in
// the caller's goroutine, so it must not block; a panic in it is swallowed.
type Observer interface {
	Observe(context.Context, Event)
}

// Event is one thing that happened. Kind, Name and Outcome are safe as metric labels;
// the others are not: Key and Token take any number of values, and the text of Err may
// name keys, resources and holders.
type Event struct {
	Kind      EventKind
	Name      string        // Op.Name
	Key       Key           // Op.Key
	Token     fence.Token   // of the grant; invalid before it, and if there is none
	Outcome   Outcome       // of EventBegan
	Err       error         // of EventRefused, EventFailed, EventMemoFailed, EventAbortFailed and EventLost; nil otherwise
	Wait      time.Duration // from the call to its answer, of EventBegan and EventRefused
	Bytes     int           // size of the memo, of EventCompleted, EventOversize and EventMemoFailed
	Left      time.Duration // of the lease when the body ended, of the events that end a call; negative if it had run out
	Takeovers int           // of EventBegan
}

// EventKind says what happened.
type EventKind string

// The kinds of events. A call begins with one of began, refused and unguarded. One
// that began and was not replayed ends with one of completed, oversize, memo_failed,
// failed, suspended, panicked and lost; abort_failed and token_regressed may follow.
const (
	EventBegan          EventKind = "began"           // begin was answered, see Outcome
	EventRefused        EventKind = "refused"         // begin said no, see Err
	EventUnguarded      EventKind = "unguarded"       // the body runs without a guard
	EventCompleted      EventKind = "completed"       // the memo was stored
	EventOversize       EventKind = "oversize"        // the operation is done, its memo was too large to keep
	EventMemoFailed     EventKind = "memo_failed"     // the body succeeded, the memo could not be stored
	EventFailed         EventKind = "failed"          // the body returned an error
	EventSuspended      EventKind = "suspended"       // the body returned, its result comes from elsewhere
	EventPanicked       EventKind = "panicked"        // the body panicked or exited its goroutine
	EventLost           EventKind = "lost"            // the lease was lost while the body ran
	EventAbortFailed    EventKind = "abort_failed"    // what the end asked for could not be done in Redis; the lease ends with its TTL
	EventTokenRegressed EventKind = "token_regressed" // a store had seen a higher token than the newest: the floor was raised
)

// watch reports on one call.
type watch struct {
	observer Observer
	ctx      context.Context
	op       Op
	since    time.Time
	claim    *Claim        // nil before the grant
	left     time.Duration // of the lease when the body ended
}

func (g *Guard) watch(ctx context.Context, op Op) *watch {
	return &watch{observer: g.opts.Observer, ctx: ctx, op: op, since: time.Now()}
}

func (w *watch) tell(e Event) {
	if w.observer == nil {
		return
	}
	defer func() { _ = recover() }() // an observer must never break the work
	e.Name, e.Key, e.Left = w.op.Name, w.op.Key, w.left
	if w.claim != nil {
		e.Token = w.claim.Token()
	}
	w.observer.Observe(w.ctx, e)
}

func (w *watch) began(s Start) {
	w.claim = s.Claim
	w.tell(Event{Kind: EventBegan, Outcome: s.Outcome, Takeovers: s.Takeovers, Wait: time.Since(w.since)})
}

func (w *watch) refused(err error) {
	w.tell(Event{Kind: EventRefused, Err: err, Wait: time.Since(w.since)})
}

// ended notes how much of the lease was left when the body ended.
func (w *watch) ended() { w.left = time.Until(w.claim.Deadline()) }

func (w *watch) unguarded() { w.tell(Event{Kind: EventUnguarded, Outcome: Unguarded}) }
func (w *watch) panicked()  { w.tell(Event{Kind: EventPanicked}) }

func (w *watch) failed(err, lost error, verdict Verdict) {
	switch {
	case lost != nil:
		w.tell(Event{Kind: EventLost, Err: lost})
	case verdict.kind == suspend:
		w.tell(Event{Kind: EventSuspended})
	default:
		w.tell(Event{Kind: EventFailed, Err: err})
	}
}

// stored reports how storing a memo went.
func (w *watch) stored(err error, size int, kept bool) {
	e := Event{Kind: EventCompleted, Bytes: size, Err: err}
	switch {
	case errors.Is(err, fence.ErrLeaseLost):
		e = Event{Kind: EventLost, Err: err}
	case err != nil:
		e.Kind = EventMemoFailed
	case !kept:
		e.Kind = EventOversize
	}
	w.tell(e)
}

// suspended reports how suspending went. Whoever brings the result may have been faster:
// then there is nothing left to suspend.
func (w *watch) suspended(err error) {
	if !errors.Is(err, fence.ErrLeaseLost) {
		w.aborted(false, err)
	}
}

func (w *watch) aborted(raised bool, err error) {
	if err != nil {
		w.tell(Event{Kind: EventAbortFailed, Err: err})
	}
	if raised {
		w.tell(Event{Kind: EventTokenRegressed})
	}
}
