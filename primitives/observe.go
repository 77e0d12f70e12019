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
// Err is not: its text may name keys, resources and holders.
type Event struct {
	Kind      EventKind
	Name      string        // Op.Name
	Outcome   Outcome       // of EventBegan
	Err       error         // of EventRefused, EventFailed, EventMemoFailed, EventAbortFailed and EventLost; nil otherwise
	Wait      time.Duration // from the call to its answer, of EventBegan and EventRefused
	Bytes     int           // size of the memo, of EventCompleted, EventOversize and EventMemoFailed
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
	name     string
	since    time.Time
}

func (g *Guard) watch(ctx context.Context, op Op) *watch {
	return &watch{observer: g.opts.Observer, ctx: ctx, name: op.Name, since: time.Now()}
}

func (w *watch) tell(e Event) {
	if w.observer == nil {
		return
	}
	defer func() { _ = recover() }() // an observer must never break the work
	e.Name = w.name
	w.observer.Observe(w.ctx, e)
}

func (w *watch) began(s Start) {
	w.tell(Event{Kind: EventBegan, Outcome: s.Outcome, Takeovers: s.Takeovers, Wait: time.Since(w.since)})
}

func (w *watch) refused(err error) {
	w.tell(Event{Kind: EventRefused, Err: err, Wait: time.Since(w.since)})
}

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

func (w *watch) aborted(raised bool, err error) {
	if err != nil {
		w.tell(Event{Kind: EventAbortFailed, Err: err})
	}
	if raised {
		w.tell(Event{Kind: EventTokenRegressed})
	}
}
