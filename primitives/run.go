package primitives

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one run of one script.
type call struct {
	script *script
	keys   []string
	args   []any
	// epochs is which of args are the known epochs, if the script may say that its
	// server's is not among them.
	epochs int
	// undo gives back what a reply granted that came after we stopped waiting.
	undo func(reply)
}

// run runs a script within the store's budget. Transient errors are retried; that
// is safe because every script can be repeated by the same nonce. When the budget
// ends, so does run, whether or not the client notices; when parent is cancelled,
// too, unless the client is direct: go-redis looks at deadlines only in mid-command.
func (s *Store) run(parent context.Context, c call) (reply, error) {
	end := time.Now().Add(s.opts.Timeout)
	var failure error
	again := true
	for pause := 8 * time.Millisecond; ; pause = min(2*pause, 256*time.Millisecond) {
		value, err := s.attempt(parent, end, c)
		if err == nil || errors.Is(err, redis.Nil) {
			r, bad := decode(c.script.name, value)
			if bad != nil || r.word != "unregistered" || c.epochs == 0 || len(r.fields) != 2 {
				return r, bad
			}
			if err := s.register(parent, end, r.fields[0], r.fields[1]); err != nil {
				return reply{}, err
			}
			c.args[c.epochs] = s.epochs.known()
			continue
		}
		// That the budget has ended says less than what went wrong before.
		if failure == nil || time.Now().Before(end) {
			failure, again = classify(c.script.name, c.keys, c.script.explain(err))
		}
		if again && sleep(parent, min(pause/2+rand.N(pause/2), time.Until(end))) && time.Now().Before(end) {
			continue
		}
		if err := ended(parent); err != nil {
			return reply{}, err
		}
		return reply{}, failure
	}
}

// register learns an epoch within what is left of the budget.
func (s *Store) register(parent context.Context, end time.Time, id, follows string) error {
	ctx, cancel := context.WithDeadline(parent, end)
	defer cancel()
	err := s.epochs.register(ctx, id, follows)
	if err != nil && ended(parent) != nil {
		return ended(parent)
	}
	return err
}

// ended is why ctx has ended, if it has. A connection may feel a deadline before the
// context's own timer does.
func ended(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

// attempt evaluates the script once and returns when the budget ends at the latest.
// A direct client gets half of it: a connection whose other end has gone silently
// must leave time for one that has not.
func (s *Store) attempt(parent context.Context, end time.Time, c call) (any, error) {
	budget := time.Until(end)
	if s.direct {
		budget = min(budget, s.opts.Timeout/2)
	}
	ctx, cancel := context.WithTimeout(parent, budget)
	defer cancel()
	if s.direct {
		return s.eval(ctx, c)
	}
	return s.abandonable(ctx, c)
}

// abandonable is eval for a client that does not notice that ctx ends. A grant that
// comes after we have left is given back.
func (s *Store) abandonable(ctx context.Context, c call) (any, error) {
	type result struct {
		value any
		err   error
	}
	answered, left := make(chan result), make(chan struct{})
	go func() {
		value, err := s.eval(ctx, c)
		select {
		case answered <- result{value, err}:
		case <-left:
			if r, bad := decode(c.script.name, value); err == nil && bad == nil && c.undo != nil {
				c.undo(r)
			}
		}
	}()
	select {
	case r := <-answered:
		return r.value, r.err
	case <-ctx.Done():
		close(left)
		return nil, ctx.Err()
	}
}

// eval turns a panic of the client, such as one in a hook of the caller's, into an
// error: it may be running in a goroutine of ours, where it would end the process.
func (s *Store) eval(ctx context.Context, c call) (value any, err error) {
	defer func() { err = panicked(recover(), err) }()
	value, err = s.client.EvalSha(ctx, c.script.sha, c.keys, c.args...).Result()
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") { // which allocates even without an error
		value, err = s.client.Eval(ctx, c.script.src, c.keys, c.args...).Result()
	}
	return value, err
}

// panicked is the error of a call of the client that may have panicked.
func panicked(recovered any, err error) error {
	if recovered == nil {
		return err
	}
	return fmt.Errorf("the redis client panicked: %v", recovered)
}

// detached is the context of a step that must be taken although the caller's
// context has ended: giving up a lease, storing a memo.
func detached(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Error codes of Redis, by what they mean for us.
var (
	transientCodes = []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS",
		"BUSY", "MISCONF", "OOM", "MOVED", "ASK", "NOSCRIPT", "UNKILLABLE",
	}
	deniedCodes = []string{"NOPERM", "NOAUTH", "WRONGPASS", "NOPROTO"}
)

// An error that a script meets is reported behind its place in the script by
// Redis 6 and before: "ERR Error running script (...): @user_script:7: -OOM ...".
var (
	serverCode = regexp.MustCompile(`^(?:ERR .*@user_script: ?\d+: -?)?([A-Z]+)(?: |$)`)
	aclFailure = regexp.MustCompile(`(?i)ACL failure|can't (run this command|access at least one of the keys|publish to the channel)|no permissions|unknown (redis )?command`)
	maxClients = regexp.MustCompile(`max number of clients`)
)

// classify turns what go-redis returned into the error that our caller gets, and
// says whether trying again may help.
func classify(step string, keys []string, err error) (failure error, again bool) {
	var server redis.Error
	if !errors.As(err, &server) {
		again := !errors.Is(err, redis.ErrClosed)
		return &UnavailableError{step, err}, again
	}
	text := server.Error()
	code := ""
	if m := serverCode.FindStringSubmatch(text); m != nil {
		code = m[1]
	}
	switch {
	case slices.Contains(deniedCodes, code), aclFailure.MatchString(text):
		return &DeniedError{step, err}, false
	case code == "WRONGTYPE":
		return &CorruptError{keys[0], text}, false
	case slices.Contains(transientCodes, code), maxClients.MatchString(text):
		return &UnavailableError{step, err}, true
	}
	return &UnavailableError{step, err}, false
}
