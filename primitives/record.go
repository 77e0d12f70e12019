package primitives

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// RecordOptions configure an operation that its record alone guards, without a
// lease: see [Store.TryBegin]. The zero value works.
type RecordOptions struct {
	// TTL is how long a running record lasts if nobody ends it. It is not renewed,
	// so it must be longer than the work. 50ms to 10 years; default 5m.
	TTL time.Duration

	// ReclaimAfter is the age at which [Store.TryBeginOrReclaim] takes a running
	// record for abandoned. At least 25ms and at most TTL; default half of TTL.
	ReclaimAfter time.Duration

	// Retention, MaxMemo and MaxTakeovers are those of [GuardOptions].
	Retention    time.Duration
	MaxMemo      int
	MaxTakeovers int
}

func (o RecordOptions) withDefaults() (RecordOptions, error) {
	var err error
	if o.TTL, err = checkDuration("TTL", o.TTL, 5*time.Minute, minLease, maxRetention); err != nil {
		return o, err
	}
	if o.ReclaimAfter, err = checkDuration("ReclaimAfter", o.ReclaimAfter, o.TTL/2, minLease/2, o.TTL); err != nil {
		return o, err
	}
	g, err := GuardOptions{Retention: o.Retention, MaxMemo: o.MaxMemo, MaxTakeovers: o.MaxTakeovers}.withDefaults()
	o.Retention, o.MaxMemo = g.Retention, g.MaxMemo
	return o, err
}

// TryBegin starts op if it is neither running nor finished, without a lease and
// without a token: one record says who is at work. A record that is running is a
// [*BusyError], however old, until its TTL ends; errors are otherwise those of
// [Guard.Begin]. Use it for work that is short against its TTL and needs no fencing.
// End the claim with Complete, Fail or Abort.
func (s *Store) TryBegin(ctx context.Context, op Op, opts RecordOptions) (Start, error) {
	return s.beginRecord(ctx, op, opts, "")
}

// TryBeginOrReclaim is TryBegin that takes over a running record of a certain age:
// whoever began it is taken for crashed. If it is not, its Complete is refused, but
// nothing fences its other writes: for that, use a [Guard].
func (s *Store) TryBeginOrReclaim(ctx context.Context, op Op, opts RecordOptions) (Start, error) {
	checked, err := opts.withDefaults()
	if err != nil {
		return Start{}, err
	}
	return s.beginRecord(ctx, op, opts, millis(checked.ReclaimAfter))
}

func (s *Store) beginRecord(ctx context.Context, op Op, opts RecordOptions, reclaim string) (Start, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Start{}, err
	}
	if err := op.check(); err != nil {
		return Start{}, err
	}
	g := &Guard{store: s, opts: GuardOptions{Retention: opts.Retention, MaxMemo: opts.MaxMemo, MaxTakeovers: opts.MaxTakeovers}}
	c := g.claim(op)
	var start Start
	err = s.inLine(ctx, 0, c.nonce, c.record, c.giveUp, func(ctx context.Context, p *place) error {
		r, err := s.run(ctx, call{
			script: &s.scripts.recordBegin,
			keys:   []string{c.record, c.names.lease()},
			args:   []any{c.nonce, millis(opts.TTL), c.holder, c.fp(), reclaim, c.maxTakeovers},
			undo:   func(reply) { c.giveUp(detached(ctx)) },
		})
		if err != nil {
			return err
		}
		start, err = c.answer(r, time.Now(), p)
		if err == nil && c.Token().Valid() {
			err = r.unexpected()
		}
		return err
	})
	if err != nil {
		return Start{}, err
	}
	return start, nil
}

// State is the state of a record.
type State string

// The states of a record.
const (
	Absent  State = "absent"
	Running State = "running" // begun; whether somebody still works on it, Lease tells
	Pending State = "pending" // suspended: the result comes from elsewhere
	Done    State = "done"
	Failed  State = "failed" // with a memoised failure
	Undone  State = "undone" // by [Claim.Undo]: the next call runs it
)

// Record is what is stored about one operation.
type Record struct {
	State      State
	Token      fence.Value   // of the grant under which it runs or ran; 0 without a lease
	Holder     string        // who began it
	Began      time.Time     // by the Redis clock
	Takeovers  int           // from crashed holders and older attempts
	Expires    time.Duration // until the record is gone
	Lease      time.Duration // until the holder's lease ends; 0: it has ended, or there is none
	AtMostOnce bool
	Memo       []byte // if finished and kept
	Size       int    // bytes, if the result was too large to keep
	Limit      int    // bytes, the limit that it exceeded

	// Undone is the token under which it was undone last; 0 if it never was. While its
	// state is Undone, Token, Holder and Began are those of the operation that undid it,
	// or of a run that was given up since.
	Undone fence.Value

	name  string // Redis name
	nonce string
	fp    string
}

// Name is the Redis key of the record, for logs: it holds digests only.
func (r Record) Name() string { return r.name }

// Stuck says that the operation was interrupted: it is not finished, and nobody
// holds its lease. The next call reclaims it, unless it is at most once.
func (r Record) Stuck() bool {
	return (r.State == Running || r.State == Pending) && r.Token != 0 && r.Lease == 0
}

// Status returns what is stored about op; only its Key and Resource matter. An
// unknown operation is a Record in state Absent.
func (s *Store) Status(ctx context.Context, op Op) (Record, error) {
	if err := op.check(); err != nil {
		return Record{}, err
	}
	return s.readRecord(ctx, s.names.resource(op.resource()).record(op.Key))
}

func (s *Store) readRecord(ctx context.Context, name string) (Record, error) {
	r, err := s.run(ctx, call{
		script: &s.scripts.recordRead,
		keys:   []string{name, sibling(name, "lease")},
	})
	if err != nil {
		return Record{}, err
	}
	if r.word == string(Absent) {
		return Record{State: Absent, name: name}, nil
	}
	f := r.read()
	rec := Record{State: State(r.word), name: name, nonce: f.text(), Token: f.token(), fp: f.text(),
		Holder: f.text(), Began: f.time(), Takeovers: f.count(), Expires: f.millis()}
	if left := f.text(); left != "" {
		f.next--
		rec.Lease = f.millis()
	}
	rec.AtMostOnce = f.flag()
	memo := f.text()
	rec.Size, rec.Limit, rec.Undone = f.count(), f.count(), f.token()
	if (rec.State == Done || rec.State == Failed) && rec.Limit == 0 {
		rec.Memo = []byte(memo)
	}
	return rec, f.err
}

// Result returns the memo of an operation that is done. Otherwise the error is
// [ErrNotFound], [*BusyError] while it runs, [*FailedError],
// [*ResultUnavailableError], [*MismatchError], or one that Status returns.
func (s *Store) Result(ctx context.Context, op Op) ([]byte, error) {
	r, err := s.Status(ctx, op)
	if err == nil {
		err = r.mismatch(op)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case r.State == Absent || r.State == Undone:
		return nil, fmt.Errorf("%w: key %s", ErrNotFound, op.Key)
	case r.State == Failed:
		return nil, &FailedError{Key: op.Key, Memo: r.Memo}
	case r.Limit > 0:
		return nil, &ResultUnavailableError{Key: op.Key, Size: r.Size, Limit: r.Limit}
	case r.State == Done:
		return r.Memo, nil
	}
	return nil, r.busy(op)
}

// busy is the error for a record that is not finished.
func (r Record) busy(op Op) error {
	left := r.Lease
	if r.Token == 0 { // it runs without a lease: alive until it expires
		left = r.Expires
	}
	return &BusyError{Resource: op.resource(), Holder: r.Holder, Token: r.Token, Since: r.Began,
		Remaining: max(left, time.Millisecond)}
}

// mismatch is the error for a record that was made from other input than op.
func (r Record) mismatch(op Op) error {
	asked := op.Fingerprint.String()
	if op.Fingerprint.IsZero() || r.fp == "" || r.fp == asked || kindOf(r.fp) != op.Fingerprint.kind {
		return nil
	}
	return &MismatchError{Key: op.Key, Stored: r.fp, Asked: asked, Holder: r.Holder}
}

// Clear drops the record of op, if it is finished or was interrupted, so that the
// next call runs it again. Somebody at work is a [*BusyError], other input a
// [*MismatchError], and an interrupted at-most-once operation an
// [*OutcomeUnknownError]: that is for [Store.Forget] and [Store.Resolve]. A record
// that changes meanwhile is [ErrChanged]. An unknown operation is no error. One that was
// undone once stays in the state [Undone]: see [Claim.Undo].
func (s *Store) Clear(ctx context.Context, op Op) error {
	r, err := s.Status(ctx, op)
	if err == nil {
		err = r.mismatch(op)
	}
	switch {
	case err != nil:
		return err
	case r.State == Absent || r.State == Undone:
		return nil
	case r.AtMostOnce && r.Stuck():
		return &OutcomeUnknownError{Key: op.Key, Holder: r.Holder, Began: r.Began}
	}
	err = s.forget(ctx, r)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// forgottenLife is how long the holder of a record that was forgotten is refused when
// it wakes up and completes it.
const forgottenLife = 24 * time.Hour

// forget drops a record with a compare-and-set on what was seen.
func (s *Store) forget(ctx context.Context, seen Record) error {
	r, err := s.run(ctx, call{
		script: &s.scripts.recordForget,
		keys:   []string{seen.name, sibling(seen.name, "lease"), resourceNames{sibling(seen.name, "")}.released(seen.nonce)},
		args:   []any{string(seen.State), seen.nonce, millis(forgottenLife)},
	})
	if err != nil {
		return err
	}
	switch r.word {
	case "forgotten":
		return nil
	case "absent":
		return ErrNotFound
	case "changed":
		return ErrChanged
	case "busy":
		return busy(r, seen.name, &place{})
	}
	return r.unexpected()
}
