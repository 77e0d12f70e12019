package primitives

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// LeaseInfo is who holds a resource, as it was when it was read.
type LeaseInfo struct {
	Held      bool
	Token     fence.Value   // the holder's; 0 if nobody holds it
	Last      fence.Value   // the newest token that Redis remembers; 0 if none
	Holder    string        // how the holder described itself
	Since     time.Time     // of the grant, by the Redis clock
	Remaining time.Duration // until the lease ends if it is not renewed
	Waiters   int           // how many stand in the queue, dead ones included

	name  string
	nonce string
}

// Name is the Redis key of the lease, for logs: it holds digests only.
func (l LeaseInfo) Name() string { return l.name }

// Inspect returns who holds a resource.
func (s *Store) Inspect(ctx context.Context, resource string) (LeaseInfo, error) {
	if err := checkResource(resource); err != nil {
		return LeaseInfo{}, err
	}
	return s.readLease(ctx, s.names.resource(resource).lease())
}

func (s *Store) readLease(ctx context.Context, name string) (LeaseInfo, error) {
	r, err := s.run(ctx, call{
		script: &s.scripts.leaseRead,
		keys:   []string{name, sibling(name, "token"), sibling(name, "queue")},
	})
	if err != nil {
		return LeaseInfo{}, err
	}
	if r.word != "held" && r.word != "free" {
		return LeaseInfo{}, r.unexpected()
	}
	f := r.read()
	info := LeaseInfo{name: name, Held: r.word == "held", Last: f.token(), Waiters: f.count()}
	if info.Held {
		info.nonce, info.Token, info.Holder = f.text(), f.grant(), f.text()
		info.Since, info.Remaining = f.time(), f.millis()
	}
	return info, f.err
}

// Free takes a lease away from the holder that l shows, and raises the token, so
// that stores refuse that holder once somebody newer has written. The next in line
// gets the lease. It returns the token that was raised to, or [ErrChanged] if the
// lease has another holder, or none, by now.
func (s *Store) Free(ctx context.Context, l LeaseInfo) (fence.Value, error) {
	if !l.Held {
		return 0, ErrNotFound
	}
	r, err := s.run(ctx, call{
		script: &s.scripts.leaseFree,
		keys:   []string{l.name, sibling(l.name, "token"), sibling(l.name, "queue"), sibling(l.name, "waiters")},
		args:   []any{l.nonce, s.epochs.known(), millis(s.opts.TokenRetention)},
		epochs: 1,
	})
	if err != nil {
		return 0, err
	}
	switch r.word {
	case "freed":
		f := r.read()
		return f.grant(), f.err
	case "changed":
		return 0, ErrChanged
	}
	return 0, r.unexpected()
}

// Raise makes every later token of a resource higher than floor, and returns the
// newest token that Redis remembers.
func (s *Store) Raise(ctx context.Context, resource string, floor fence.Value) (fence.Value, error) {
	if err := checkResource(resource); err != nil {
		return 0, err
	}
	if !floor.Valid() {
		return 0, &OptionError{"floor", "is not a token"}
	}
	if err := checkFloor("floor", floor); err != nil {
		return 0, err
	}
	r, err := s.run(ctx, call{
		script: &s.scripts.tokenRaise,
		keys:   []string{s.names.resource(resource).token()},
		args:   []any{padded(floor), millis(s.opts.TokenRetention)},
	})
	if err != nil {
		return 0, err
	}
	if r.word != "raised" {
		return 0, r.unexpected()
	}
	f := r.read()
	return f.grant(), f.err
}

// Forget drops the record that r shows, so that the next call runs the operation
// again; one that was undone once stays in the state [Undone]: see [Claim.Undo]. It returns
// [ErrChanged] if the record is not what r shows any more, [ErrNotFound] if it is gone,
// and a [*BusyError] if somebody is at work.
func (s *Store) Forget(ctx context.Context, r Record) error {
	if r.nonce == "" {
		return ErrNotFound
	}
	return s.forget(ctx, r)
}

// Resolve makes an interrupted operation, or one that was undone, done, with a memo that the operator
// supplies: the way out of an [*OutcomeUnknownError] for an effect that did happen.
// The memo is kept for retention; zero means 24h. It returns [ErrChanged] if the record
// is not what r shows any more, and a [*BusyError] if somebody is at work. Repeating it
// with the same memo succeeds.
func (s *Store) Resolve(ctx context.Context, r Record, memo []byte, retention time.Duration) error {
	retention, err := checkDuration("retention", retention, defaultRetention, minRetention, maxRetention)
	switch {
	case err != nil:
		return err
	case len(memo) > largestMaxMemo:
		return &OptionError{"memo", "is too large"}
	case r.nonce == "":
		return ErrNotFound
	}
	n := resourceNames{sibling(r.name, "")}
	answer, err := s.run(ctx, call{
		script: &s.scripts.resolve,
		keys:   []string{n.lease(), n.token(), n.queue(), n.waiters(), r.name, waitersOf(r.name)},
		args:   []any{string(r.State), r.nonce, millis(retention), memo},
	})
	if err != nil {
		return err
	}
	switch answer.word {
	case "resolved":
		return nil
	case "changed":
		return ErrChanged
	case "busy":
		return busy(answer, r.name, &place{})
	}
	return answer.unexpected()
}

// Leases lists the leases that are held under the store's prefix. It walks every
// primary with SCAN, and reads each lease on its own, so what it yields was true one
// after another, not all at once. A lease that is corrupt is yielded as a
// [*CorruptError], which does not hide the others; any other error is the last.
func (s *Store) Leases(ctx context.Context) iter.Seq2[LeaseInfo, error] {
	return list(ctx, s, "lease", s.readLease, func(l LeaseInfo) bool { return l.Held })
}

// Records lists the records under the store's prefix as Leases does leases. To find
// what is stuck, keep those that are [Record.Stuck], or that began long ago.
func (s *Store) Records(ctx context.Context) iter.Seq2[Record, error] {
	return list(ctx, s, "op:*", s.readRecord, func(r Record) bool { return r.State != Absent })
}

func list[T any](ctx context.Context, s *Store, kind string,
	read func(context.Context, string) (T, error), there func(T) bool,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for name, err := range s.scan(ctx, kind) {
			var item T
			if err == nil {
				item, err = read(ctx, name)
			}
			if err == nil && !there(item) {
				continue // it went away since it was scanned
			}
			if !yield(item, err) || err != nil && !errors.Is(err, ErrCorrupt) {
				return
			}
		}
	}
}

const scanCount = 500

// scan yields each name of one kind once.
func (s *Store) scan(ctx context.Context, kind string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		nodes, err := s.primaries(ctx)
		if err != nil {
			yield("", err)
			return
		}
		seen := map[string]bool{} // SCAN may return a name twice
		for _, node := range nodes {
			pages := node.Scan(ctx, 0, s.names.all(kind), scanCount).Iterator()
			for pages.Next(ctx) {
				if name := pages.Val(); !seen[name] {
					seen[name] = true
					if !yield(name, nil) {
						return
					}
				}
			}
			if err := pages.Err(); err != nil {
				failure, _ := classify("scan", []string{s.names.base}, err)
				yield("", failure)
				return
			}
		}
	}
}

// walkable is a node that can be walked.
type walkable interface {
	Scan(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd
}

func (s *Store) primaries(ctx context.Context) ([]walkable, error) {
	switch c := s.client.(type) {
	case cluster:
		var mu sync.Mutex
		var nodes []walkable
		err := c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, node)
			return nil
		})
		if err != nil {
			return nil, &UnavailableError{"scan", err}
		}
		return nodes, nil
	case oneServer:
		return []walkable{s.client}, nil
	}
	return nil, &OptionError{"client", fmt.Sprintf("is a %T, which may hide a cluster; list with a store on the client itself", s.client)}
}
