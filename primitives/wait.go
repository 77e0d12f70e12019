package primitives

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

const (
	// forever is the bound of a wait that only its context ends.
	forever = time.Duration(-1)

	// recheck is how often a waiter looks again although nobody told it to. It
	// stands behind the notification, which may be lost, and keeps the waiter's
	// place in the queue, which expires after queueLife.
	recheck   = 3 * time.Second
	queueLife = 12 * time.Second

	// behindFirst is the least time between two looks of a waiter that is not
	// first in line: the first one watches the holder's lease for all.
	behindFirst = time.Second

	// pastEnd is how long after the end of the holder's lease the first waiter
	// looks, so that it is really over.
	pastEnd = 5 * time.Millisecond
)

// place is a caller's place in the queue of a resource.
type place struct {
	channel string // where it hears of a hand-on; "" while it does not wait
	ticket  string // keeps its place when it asks again; "" before it joined
	ahead   int    // how many wait before it
}

// next is when to look again if nobody calls. The first in line looks when the
// holder's lease ends; the others less often, and spread over time.
func (p *place) next(remaining time.Duration) time.Duration {
	d := min(remaining+pastEnd, recheck)
	if p.ahead == 0 {
		return d
	}
	d = max(d, behindFirst)
	return d + rand.N(d/5)
}

// inLine calls try until it answers anything but busy, at most for the bound.
// From the second call on, the caller stands in the resource's queue, and sleeps
// until it is told that it has been handed the lease, that its record (if any) is
// finished, or that it should look again. leave gives its place back, and
// whatever it was handed meanwhile.
func (s *Store) inLine(ctx context.Context, bound time.Duration, nonce, record string,
	leave func(context.Context), try func(context.Context, *place) error,
) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var p place
	err := try(ctx, &p)
	if bound != 0 && errors.Is(err, ErrBusy) {
		err = s.queue(ctx, bound, nonce, record, &p, err, try)
	}
	if err != nil && (p.channel != "" || ctx.Err() != nil || mayHold(err)) {
		ctx, cancel := context.WithTimeout(detached(ctx), s.opts.Timeout/4)
		defer cancel()
		leave(ctx)
	}
	return err
}

// mayHold says whether a grant may exist although the call failed.
func mayHold(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, fence.ErrLeaseLost)
}

// queue is inLine for a caller to whom err has said who is busy.
func (s *Store) queue(ctx context.Context, bound time.Duration, nonce, record string, p *place, err error,
	try func(context.Context, *place) error,
) error {
	over := stopwatch(bound)
	defer over.Stop()
	subscribed := behindFirst // at most, and a part of the wait
	if bound != forever {
		subscribed = min(subscribed, bound)
	}
	w := s.hub.join(ctx, nonce, record, subscribed)
	defer s.hub.leave(w)
	p.channel = s.hub.channel
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		answer := try(ctx, p)
		var busy *BusyError
		switch {
		case errors.As(answer, &busy):
			err = answer
		case ctx.Err() != nil && errors.Is(answer, context.Cause(ctx)):
			return endedWait(ctx, err)
		case errors.Is(answer, ErrUnavailable):
			return fmt.Errorf("%w while waiting: %w", answer, err)
		default:
			return answer
		}
		at := time.Now().Add(p.next(busy.Remaining))
		look.Reset(time.Until(at))
	sleeping:
		for {
			select {
			case <-w.woken:
				break sleeping
			case <-look.C:
				break sleeping
			case d := <-w.check:
				if sooner := time.Now().Add(d + pastEnd); sooner.Before(at) { // no message puts a look off
					at = sooner
					look.Reset(time.Until(at))
				}
			case <-over.C:
				return err
			case <-ctx.Done():
				return endedWait(ctx, err)
			}
		}
	}
}

// endedWait says why a wait has ended, and who was busy.
func endedWait(ctx context.Context, busy error) error {
	return fmt.Errorf("%w while waiting: %w", context.Cause(ctx), busy)
}

// stopwatch is a timer that a bound of forever never fires.
func stopwatch(bound time.Duration) *time.Timer {
	if bound == forever {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	return time.NewTimer(bound)
}
