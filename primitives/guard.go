package primitives

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// GuardOptions say how a [Guard] treats its operations. The zero value works.
type GuardOptions struct {
	// LeaseTTL is how long a lease outlives a holder that has crashed. It is renewed
	// while the body runs, so it need not be longer than the body. 50ms to 24h;
	// default 30s.
	LeaseTTL time.Duration

	// RenewEvery is the time between renewals. At least 10ms, and below the holder's
	// own deadline, which is LeaseTTL less 2% and 2ms; default a third of LeaseTTL.
	RenewEvery time.Duration

	// Retention is how long a finished record, and its memo, is kept. A call that
	// comes later runs the body again, so it must be longer than whatever repeats
	// calls goes on doing so. 10ms to 10 years; default 24h.
	Retention time.Duration

	// Wait is how long a call waits while another one is at work. Zero: not at all.
	Wait time.Duration

	// MaxMemo is the largest result that is kept, in bytes. A larger one is returned
	// to its caller, but later calls get a [*ResultUnavailableError]; the body does not
	// run again. At most 64 MiB; default 1 MiB.
	MaxMemo int

	// MaxTakeovers is how many times an operation may be taken over from a crashed
	// holder before calls get a [*PoisonedError]. Zero: without limit.
	MaxTakeovers int

	// NoTakeover makes a newer attempt of one [Execution] wait for the older one's
	// lease to end, as everybody else does, instead of taking over at once. For
	// bodies with outside effects that no fence protects.
	NoTakeover bool

	// AtMostOnce never runs the body again after a crash, a panic or a lost lease in
	// the middle of it: calls get an [*OutcomeUnknownError] until an operator completes
	// or forgets the record. An error that the body returns is a known outcome, after
	// which it may run again; unless its context had ended, or Judge says [Unknown]. It
	// implies NoTakeover and excludes FailOpen.
	AtMostOnce bool

	// UnknownRetention is how long the record of an at-most-once operation that was
	// interrupted is kept for an operator. After that the next call runs the body.
	// Used with AtMostOnce only. Not below Retention; default 30 days, or Retention
	// if that is longer.
	UnknownRetention time.Duration

	// FailOpen runs the body unguarded when Redis is unavailable, with no token in
	// its context. By default the body does not run.
	FailOpen bool

	// StrictMemo makes [Guard.Do] return an error if the body has succeeded and its
	// memo could not be stored. By default Do succeeds: the effect has happened, and
	// failing would have it repeated.
	StrictMemo bool

	// Judge says what an error of the body means for the record. It gets the body's
	// context. Default: [Abort] for every error.
	Judge func(ctx context.Context, err error) Verdict

	// Seal is called with the token in its context before the body runs, to carry
	// the token to the store that the body writes to: from then on the store refuses
	// older holders. Its error ends the call as an error of the body would.
	Seal func(context.Context) error

	// Observer is told what happens, for metrics. Default: nobody.
	Observer Observer
}

const (
	defaultLease     = 30 * time.Second
	defaultRetention = 24 * time.Hour
	defaultUnknown   = 30 * 24 * time.Hour
	defaultMaxMemo   = 1 << 20
	largestMaxMemo   = 64 << 20
	minRenewEvery    = 10 * time.Millisecond
)

func (o GuardOptions) withDefaults() (GuardOptions, error) {
	var err error
	if o.LeaseTTL, err = checkDuration("LeaseTTL", o.LeaseTTL, defaultLease, minLease, maxLease); err != nil {
		return o, err
	}
	if o.RenewEvery, err = checkDuration("RenewEvery", o.RenewEvery, o.LeaseTTL/3, minRenewEvery, maxLease); err != nil {
		return o, err
	}
	if o.Retention, err = checkDuration("Retention", o.Retention, defaultRetention, minRetention, maxRetention); err != nil {
		return o, err
	}
	if o.UnknownRetention, err = checkDuration("UnknownRetention", o.UnknownRetention, max(defaultUnknown, o.Retention), o.Retention, maxRetention); err != nil {
		return o, err
	}
	if o.MaxMemo == 0 {
		o.MaxMemo = defaultMaxMemo
	}
	for _, rule := range []struct {
		broken      bool
		field, rule string
	}{
		{o.RenewEvery >= o.LeaseTTL-margin(o.LeaseTTL), "RenewEvery",
			fmt.Sprintf("%s is not below LeaseTTL (%s) less its margin of %s", o.RenewEvery, o.LeaseTTL, margin(o.LeaseTTL))},
		{o.Wait < 0, "Wait", fmt.Sprintf("%s is negative", o.Wait)},
		{o.MaxMemo < 0 || o.MaxMemo > largestMaxMemo, "MaxMemo", fmt.Sprintf("%d is outside 0 to %d bytes", o.MaxMemo, largestMaxMemo)},
		{o.MaxTakeovers < 0, "MaxTakeovers", fmt.Sprintf("%d is negative", o.MaxTakeovers)},
		{o.AtMostOnce && o.FailOpen, "FailOpen", "contradicts AtMostOnce: an unguarded body may run twice"},
	} {
		if rule.broken {
			return o, &OptionError{rule.field, rule.rule}
		}
	}
	return o, nil
}

// Guard runs operations at most one at a time, and each to a result once: whoever
// asks for an operation that is done gets its memo. It is safe for concurrent use.
type Guard struct {
	store *Store
	opts  GuardOptions
}

// NewGuard returns a guard on store. It returns an [*OptionError] for an option that
// breaks its rule.
func NewGuard(store *Store, opts GuardOptions) (*Guard, error) {
	if store == nil {
		return nil, &OptionError{"store", "is nil"}
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Guard{store: store, opts: opts}, nil
}

// Options are the options of the guard with their defaults.
func (g *Guard) Options() GuardOptions { return g.opts }

// Op is one logical operation. Only Key is required.
type Op struct {
	// Key is the idempotency key: two calls with one key, under one resource, are
	// the same operation.
	Key Key

	// Resource names what the operation changes: operations on one resource run one
	// after another, and share its fencing tokens. It is part of the operation's
	// identity, so it must follow from the key. Default: the key itself, so that
	// only calls of the same operation exclude each other.
	Resource string

	// Fingerprint is the hash of the whole input, if the key covers only a part of
	// it. A record made from other input is then a [*MismatchError].
	Fingerprint Fingerprint

	// Execution is the unit of work that repeats the call until it succeeds, and
	// which attempt of it this is.
	Execution Execution

	// Holder describes the caller to people. At most 512 bytes.
	Holder string

	// Patience, if positive, bounds GuardOptions.Wait for this call, as a deadline of
	// the caller does. It makes no call wait that would not.
	Patience time.Duration

	// Turn asks for a time to come back, if the call does not wait and is refused because
	// another operation is at work on the resource. Default: for none.
	Turn Turn

	// Floor makes the token higher than this value; see [LeaseOptions].
	Floor fence.Value

	// Name labels what the [Observer] is told. Few different values, and no input.
	Name string
}

// Execution identifies the attempts of one unit of work, such as one scheduled
// Temporal activity. A newer attempt takes the lease over from an older one at
// once, because whoever started it has given the older one up. All attempts have the
// same key: one that comes under another while an older one holds the lease is a
// [*KeyChangedError].
type Execution struct {
	ID      string    // "" if the caller is not part of any
	Started time.Time // when this attempt started, by the clock of whoever starts them
	Attempt int       // orders attempts with the same start
}

func (e Execution) id() string {
	if e.ID == "" {
		return ""
	}
	return digest("execution", e.ID)
}

// order compares as a string. The start goes first: an attempt number may be reset.
func (e Execution) order() string {
	start := int64(0)
	if !e.Started.IsZero() {
		start = max(0, e.Started.UnixNano())
	}
	return fmt.Sprintf("%019d.%010d", start, max(0, e.Attempt))
}

// resource is the resource under which the operation's record lives.
func (op Op) resource() string {
	if op.Resource == "" {
		return op.Key.String()
	}
	return op.Resource
}

// wait is the guard's bound, cut to the patience of this call.
func (op Op) wait(bound time.Duration) time.Duration {
	if op.Patience == 0 {
		return bound
	}
	return min(bound, op.Patience)
}

func (op Op) check() error {
	if err := checkKey(op.Key); err != nil {
		return err
	}
	if op.Patience < 0 {
		return &OptionError{"Patience", fmt.Sprintf("%s is negative", op.Patience)}
	}
	if err := op.Turn.check(); err != nil {
		return err
	}
	if err := op.Fingerprint.check(); err != nil {
		return err
	}
	if err := checkFloor("Floor", op.Floor); err != nil {
		return err
	}
	if err := checkText("Holder", op.Holder, maxHolder); err != nil {
		return err
	}
	return checkText("Resource", op.Resource, maxResource)
}

// Outcome says how a call came to its answer.
type Outcome string

// The outcomes of [Guard.Begin], [Store.TryBegin] and [Guard.Do].
const (
	Begun     Outcome = "begun"     // ours to do, for the first time
	Reclaimed Outcome = "reclaimed" // ours to do, after a holder that crashed
	TakenOver Outcome = "takeover"  // ours to do, taken from an older attempt of the same execution
	Replayed  Outcome = "replayed"  // done before: here is the memo
	Unguarded Outcome = "unguarded" // run without a guard, because Redis is unavailable and FailOpen is set
)

// Start is the answer to a begin that was not refused: either a claim to do the
// work, or the memo of work that is done.
type Start struct {
	Outcome   Outcome
	Claim     *Claim      // nil if Replayed
	Memo      []byte      // only if Replayed
	Takeovers int         // how often the operation was taken over so far, this time included; 0 if Replayed
	Undone    fence.Value // the token under which it was undone last; 0 if it never was, or if Replayed
}

// Begin starts op: in one step it looks at the record, takes the lease of the
// resource, issues a fencing token and marks the record running; or it returns the
// memo. Whoever gets a [Claim] must end it with Complete, Fail, Abort or Suspend, and
// keep it alive meanwhile with Keep. [Guard.Do] does all that.
//
// Errors that say the body must not run: [ErrBusy], [ErrMismatch], [ErrFailed],
// [ErrResultUnavailable], [ErrPoisoned], [ErrOutcomeUnknown], [ErrKeyChanged], [ErrUnavailable],
// [ErrDenied], [ErrCorrupt], [ErrInvalid], [fence.ErrLeaseLost] if the grant had run
// out before it arrived, and the cause of ctx.
func (g *Guard) Begin(ctx context.Context, op Op) (Start, error) {
	if err := op.check(); err != nil {
		return Start{}, err
	}
	c := g.claim(op)
	var start Start
	wait := op.wait(g.opts.Wait)
	if wait != 0 { // its place in line says as much
		op.Turn = Turn{}
	}
	err := g.store.inLine(ctx, wait, c.nonce, c.record, c.giveUp, func(ctx context.Context, p *place) error {
		var err error
		start, err = c.try(ctx, op, p)
		return err
	})
	if err != nil {
		return Start{}, err
	}
	return start, nil
}

// claim is a claim of op that has not been granted yet.
func (g *Guard) claim(op Op) *Claim {
	s := g.store
	c := &Claim{
		key: op.Key, fingerprint: op.Fingerprint, holder: op.Holder, maxMemo: g.opts.MaxMemo,
	}
	c.store, c.resource = s, op.resource()
	c.names = s.names.resource(c.resource)
	c.nonce, c.ttl, c.every, c.keepFor = newNonce(), g.opts.LeaseTTL, g.opts.RenewEvery, g.opts.Retention
	c.record, c.runFor = c.names.record(op.Key), g.opts.Retention
	if g.opts.AtMostOnce {
		c.runFor = max(c.keepFor, g.opts.UnknownRetention)
	}
	c.once, c.noTakeover, c.maxTakeovers = g.opts.AtMostOnce, g.opts.NoTakeover, g.opts.MaxTakeovers
	return c
}

// try runs the begin script once.
func (c *Claim) try(ctx context.Context, op Op, p *place) (Start, error) {
	s := c.store
	sent := time.Now()
	r, err := s.run(ctx, call{
		script: &s.scripts.begin,
		keys:   op.Turn.keys(c),
		args: []any{
			c.nonce, millis(c.ttl), c.holder,
			s.epochs.known(), padded(op.Floor), millis(s.opts.TokenRetention),
			p.channel, p.ticket, millis(queueLife),
			millis(c.ttl + c.runFor), op.Execution.id(), op.Execution.order(),
			c.fp(), flag(!c.noTakeover), flag(c.once), c.maxTakeovers, op.Turn.arg(),
		},
		epochs: 3,
		undo:   func(reply) { c.giveUp(detached(ctx)) },
	})
	if err != nil {
		return Start{}, err
	}
	start, err := c.answer(r, sent, p)
	if err == nil && start.Claim != nil && !c.Token().Valid() {
		err = r.unexpected()
	}
	return start, err
}

// answer reads the reply of begin and of record_begin.
func (c *Claim) answer(r reply, sent time.Time, p *place) (Start, error) {
	f := r.read()
	switch r.word {
	case string(Begun), string(Reclaimed), string(TakenOver):
		token := f.token()
		start := Start{Outcome: Outcome(r.word), Claim: c, Takeovers: f.count()}
		if f.more() {
			start.Undone = f.grant()
		}
		if token == 0 { // a record without a lease
			return start, f.err
		}
		c.granted(token, sent)
		return start, c.startable(f.err)
	case "done":
		return Start{Outcome: Replayed, Memo: []byte(f.text())}, f.err
	}
	return Start{}, c.refusal(r, f, p)
}

// refusal is the error for an answer that says the body must not run.
func (c *Claim) refusal(r reply, f *reader, p *place) error {
	var err error
	switch r.word {
	case "busy":
		return busy(r, c.resource, p)
	case "failed":
		err = &FailedError{Key: c.key, Memo: []byte(f.text())}
	case "lost": // we gave up, and this attempt was still on its way
		err = &LostError{Resource: c.resource, Step: "begin"}
	case "oversize":
		err = &ResultUnavailableError{Key: c.key, Size: f.count(), Limit: f.count()}
	case "mismatch":
		err = &MismatchError{Key: c.key, Asked: c.fp(), Stored: f.text(), Holder: f.text()}
	case "poisoned":
		err = &PoisonedError{Key: c.key, Takeovers: f.count(), Holder: f.text()}
	case "changed":
		err = &KeyChangedError{Key: c.key, Holder: f.text()}
	case "unknown":
		err = &OutcomeUnknownError{Key: c.key, Holder: f.text(), Began: f.time()}
	default:
		return r.unexpected()
	}
	if f.err != nil {
		return f.err
	}
	return err
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
