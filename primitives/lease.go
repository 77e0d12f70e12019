package primitives

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// LeaseOptions configure one acquisition. The zero value works.
type LeaseOptions struct {
	// TTL is how long the lease lasts unless it is extended. 50ms to 24h; default
	// 30s. A lease that is kept alive needs no long TTL: it is how long others wait
	// after its holder has crashed.
	TTL time.Duration

	// Wait bounds how long [Store.Acquire] waits for a lease that somebody else
	// holds. Zero: as long as its context lasts. [Store.TryAcquire] never waits.
	Wait time.Duration

	// Holder describes the caller to people: it stands in a [BusyError] and in
	// [Store.Inspect]. At most 512 bytes.
	Holder string

	// Floor makes the token higher than this value. Give it the Current of a
	// [fence.StaleError] that a store answered to the holder of the newest lease.
	Floor fence.Value
}

func (o LeaseOptions) withDefaults() (LeaseOptions, error) {
	var err error
	if o.TTL, err = checkDuration("TTL", o.TTL, 30*time.Second, minLease, maxLease); err != nil {
		return o, err
	}
	if o.Wait < 0 {
		return o, &OptionError{"Wait", fmt.Sprintf("%s is negative", o.Wait)}
	}
	if err := checkFloor("Floor", o.Floor); err != nil {
		return o, err
	}
	return o, checkText("Holder", o.Holder, maxHolder)
}

// Lease is one grant of a resource, with its fencing token. It is safe for
// concurrent use.
type Lease struct {
	tenure
}

// Acquire takes the lease of a resource and waits in line while somebody else has
// it: first come, first served. Waiting ends with the grant, with ctx, or after
// opts.Wait, which returns the [*BusyError]; an ended context returns an error
// that matches its cause and [ErrBusy].
//
// Other errors: [ErrInvalid] for arguments, [ErrUnavailable] (retry later),
// [ErrDenied], [ErrCorrupt]. No error leaves a lease behind for longer than its
// TTL.
func (s *Store) Acquire(ctx context.Context, resource string, opts LeaseOptions) (*Lease, error) {
	wait := opts.Wait
	if wait == 0 {
		wait = forever
	}
	return s.acquire(ctx, resource, opts, wait)
}

// TryAcquire is Acquire without waiting: a lease that somebody else has, or that
// others are waiting for, is a [*BusyError] at once.
func (s *Store) TryAcquire(ctx context.Context, resource string, opts LeaseOptions) (*Lease, error) {
	return s.acquire(ctx, resource, opts, 0)
}

// Hold runs fn under a lease that is acquired as by [Store.Acquire], kept alive
// while fn runs, and released after. The context of fn carries the token and ends
// with a cause that matches [fence.ErrLeaseLost] if the lease is lost; fn must
// stop then. Asking for the same resource again inside fn waits for oneself. Hold
// returns fn's error as it is. If fn returned nil and the lease
// was lost before it did, Hold returns that. A lease that cannot be released because
// Redis does not answer ends with its TTL, and is no error.
func (s *Store) Hold(ctx context.Context, resource string, opts LeaseOptions, fn func(context.Context) error) error {
	lease, err := s.Acquire(ctx, resource, opts)
	if err != nil {
		return err
	}
	held, stop := lease.Keep(ctx)
	released := false
	defer func() {
		stop()
		if !released { // also after a panic in fn
			lease.giveUp(detached(ctx))
		}
	}()
	if err := fn(held); err != nil {
		return err
	}
	stop()
	released = true
	if err := lease.Release(ctx); errors.Is(err, fence.ErrLeaseLost) {
		return err
	}
	return lostCause(held)
}

func (s *Store) acquire(ctx context.Context, resource string, opts LeaseOptions, wait time.Duration) (*Lease, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkResource(resource); err != nil {
		return nil, err
	}
	l := s.newLease(resource, opts)
	err = s.inLine(ctx, wait, l.nonce, "", l.giveUp, func(ctx context.Context, p *place) error {
		return l.try(ctx, opts, p)
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// newLease is a lease that has not been granted yet.
func (s *Store) newLease(resource string, opts LeaseOptions) *Lease {
	return &Lease{tenure{store: s, names: s.names.resource(resource), resource: resource, nonce: newNonce(), ttl: opts.TTL}}
}

// try runs the acquire script once.
func (l *Lease) try(ctx context.Context, opts LeaseOptions, p *place) error {
	s, n := l.store, l.names
	sent := time.Now()
	r, err := s.run(ctx, call{
		script: &s.scripts.acquire,
		keys:   []string{n.lease(), n.token(), n.queue(), n.waiters(), n.released(l.nonce)},
		args: []any{
			l.nonce, millis(opts.TTL), opts.Holder,
			s.epochs.known(), padded(opts.Floor), millis(s.opts.TokenRetention),
			p.channel, p.ticket, millis(queueLife),
		},
		epochs: 3,
		undo:   func(reply) { l.giveUp(detached(ctx)) },
	})
	if err != nil {
		return err
	}
	switch r.word {
	case "granted":
		f := r.read()
		l.granted(f.grant(), sent)
		return l.startable(f.err)
	case "busy":
		return busy(r, l.resource, p)
	case "lost": // we gave up, and this attempt was still on its way
		return &LostError{Resource: l.resource, Step: "begin"}
	}
	return r.unexpected()
}

// giveUp releases whatever a failed or abandoned acquisition may have left, and has an
// attempt that is still on its way refused. If that fails too, the TTL does it.
func (l *Lease) giveUp(ctx context.Context) { _ = l.drop(ctx, true) }

// Extend makes the lease last ttl from now on at least, if it is still held; zero
// means the TTL that it was acquired with. A lease that
// has ended is never revived: that is a [*LostError], and the work must stop.
// [ErrUnavailable] leaves the lease as it was; try again before [Lease.Deadline].
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	ttl, err := checkDuration("ttl", ttl, l.ttl, minLease, maxLease)
	if err != nil {
		return err
	}
	return l.renew(ctx, "extend", ttl)
}

// Release gives the lease up and hands it to the next in line. It may be repeated.
// A lease that had ended before is a [*LostError], which needs no action: nobody
// else's lease is touched. If Redis cannot answer ([ErrUnavailable]), the lease
// ends with its TTL. Release works on a context that has ended.
func (l *Lease) Release(ctx context.Context) error { return l.release(detached(ctx)) }

// tombstoneLife is longer than go-redis may take to repeat a release whose reply
// was lost.
const tombstoneLife = time.Minute

// tenure is what a lease and a claim have in common: a resource held by a nonce
// until a local deadline.
type tenure struct {
	store    *Store
	names    resourceNames
	resource string
	nonce    string
	ttl      time.Duration
	record   string        // Redis name of the record that lives under the lease, or ""
	keepFor  time.Duration // retention of that record when it is finished
	runFor   time.Duration // how long it outlives its lease while it is not
	every    time.Duration // between renewals; 0 for a third of the TTL

	mu       sync.Mutex
	token    fence.Token
	ended    error     // why it is over for good: it was given up, or Redis said so
	sent     time.Time // of the last grant or renewal that succeeded
	deadline time.Time
}

// Token is the fencing token of this grant.
func (t *tenure) Token() fence.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token
}

// Deadline is when the holder must stop at the latest, by the local monotonic
// clock: the moment at which the last successful grant or renewal was sent, plus
// the TTL, less a margin of 2% and 2ms for clocks that tick at different speeds.
func (t *tenure) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline
}

func margin(ttl time.Duration) time.Duration { return ttl/50 + 2*time.Millisecond }

func (t *tenure) granted(token fence.Value, sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = fence.Token{Resource: t.resource, Value: token, Owner: t.nonce}
	t.sent, t.deadline = sent, sent.Add(t.ttl-margin(t.ttl))
}

// startable refuses a grant that has run out before its reply came.
func (t *tenure) startable(err error) error {
	if err != nil {
		return err
	}
	if !time.Now().Before(t.Deadline()) {
		return &LostError{Resource: t.resource, Token: t.Token().Value, Step: "begin"}
	}
	return nil
}

// renewed moves the deadline forward; a late reply never moves it back.
func (t *tenure) renewed(sent time.Time, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end := sent.Add(ttl - margin(ttl)); end.After(t.deadline) {
		t.sent, t.deadline = sent, end
	}
}

// renewal is the call that renews this tenure.
func (t *tenure) renewal(ttl time.Duration) call {
	keys := []string{t.names.lease(), t.names.token()}
	if t.record != "" {
		keys = append(keys, t.record)
	}
	return call{
		script: &t.store.scripts.renew,
		keys:   keys,
		args:   []any{t.nonce, millis(ttl), millis(ttl + t.runFor), millis(t.store.opts.TokenRetention)},
	}
}

func (t *tenure) renew(ctx context.Context, step string, ttl time.Duration) error {
	sent := time.Now()
	r, err := t.store.run(ctx, t.renewal(ttl))
	if err != nil {
		return err
	}
	return t.renewedBy(r, step, sent, ttl)
}

func (t *tenure) renewedBy(r reply, step string, sent time.Time, ttl time.Duration) error {
	switch r.word {
	case "renewed":
		t.renewed(sent, ttl)
		return nil
	case "lost":
		return t.lost(step, r)
	}
	return r.unexpected()
}

// release gives up the lease and nothing else.
func (t *tenure) release(ctx context.Context) error { return t.drop(ctx, false) }

// drop is release; with abandoned, the nonce is refused from now on although it holds
// nothing yet.
func (t *tenure) drop(ctx context.Context, abandoned bool) error {
	s, n := t.store, t.names
	r, err := s.run(ctx, call{
		script: &s.scripts.release,
		keys:   []string{n.lease(), n.token(), n.queue(), n.waiters(), n.released(t.nonce)},
		args:   []any{t.nonce, s.epochs.known(), millis(s.opts.TokenRetention), millis(tombstoneLife), flag(abandoned)},
	})
	if err != nil {
		return err
	}
	switch r.word {
	case "released":
		t.end(&LostError{Resource: t.resource, Token: t.Token().Value, Step: "release"})
		return nil
	case "lost":
		return t.lost("release", r)
	}
	return r.unexpected()
}

// end ends the contexts that Keep has returned, and those that it will return.
func (t *tenure) end(cause error) {
	t.mu.Lock()
	if t.ended == nil {
		t.ended = cause
	}
	t.mu.Unlock()
	t.store.keeper.end(t, cause)
}

func (t *tenure) lost(step string, r reply) error {
	f := r.read()
	holder := f.text()
	if f.err != nil {
		return f.err
	}
	lost := &LostError{Resource: t.resource, Token: t.Token().Value, Step: step, Holder: holder}
	t.end(lost)
	return lost
}

// padded is a token as scripts compare it: 19 digits.
func padded(v fence.Value) string { return fmt.Sprintf("%019d", int64(v)) }

// busy reads a busy reply, and the place in the queue that came with it.
func busy(r reply, resource string, p *place) error {
	f := r.read()
	e := &BusyError{Resource: resource, Remaining: max(f.millis(), time.Millisecond), Holder: f.text(), Token: f.token(), Since: f.time()}
	switch {
	case !f.more():
	case p.channel == "":
		e.Turn = f.millis()
	default:
		p.ticket, p.ahead = f.text(), f.count()
		e.Ahead = p.ahead
	}
	if f.err != nil {
		return f.err
	}
	return e
}
