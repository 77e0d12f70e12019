package testsuite

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	sdk "go.temporal.io/sdk/interceptor"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// errDead is what a dead process gets for whatever it still tries to send. It is one
// that the store does not try again.
var errDead = fmt.Errorf("%w: %w", ErrCrashed, redis.ErrClosed)

// owner is the run that sends something with ctx, and whether ctx does not say so: then
// it is the only one that is on its way.
func (k *Kit) owner(ctx context.Context) (r *Run, stray bool) {
	if r := runFrom(ctx); r != nil {
		return r, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for candidate := range k.runs {
		if candidate.Frozen() || candidate.isDead() {
			continue
		}
		if r != nil {
			return nil, true
		}
		r = candidate
	}
	return r, true
}

func (r *Run) isDead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// before is called before a step is sent. Its error refuses it.
func (r *Run) before(ctx context.Context, s *Step) error {
	s.Token, _ = fence.FromContext(ctx)
	s.Source, s.guards, s.kits = source()
	r.holdBack()
	r.lockThawed()
	if r.dead {
		r.mu.Unlock()
		return errDead
	}
	r.steps = append(r.steps, s)
	s.N, s.Phase, s.held = len(r.steps), r.phase, r.reached
	s.late = r.phase == Ending && !s.guards
	hit := r.point == BeforeStep(s.N) || r.point == BeforeComplete && r.completes(s)
	r.stop(hit)
	r.mu.Unlock()
	if !hit {
		return nil
	}
	err := r.come(s.System != Postgres)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.held = r.reached
	return err
}

// lockThawed locks r.mu when the run is not frozen: a process that is stopped sends
// nothing by any of its goroutines.
func (r *Run) lockThawed() {
	r.mu.Lock()
	if !r.reached {
		return
	}
	r.mu.Unlock()
	<-r.thawed
	r.mu.Lock()
}

// stop is called with r.mu, where the point is found to be: no other goroutine sends
// anything from there on.
func (r *Run) stop(hit bool) { r.reached = r.reached || hit && r.what == freeze }

// after is called when a step has been answered.
func (r *Run) after(s *Step) {
	r.mu.Lock()
	hit := r.point == AfterStep(s.N) || r.point == AfterComplete && r.completes(s)
	for range s.effects() {
		r.effects++
		hit = hit || r.point == AfterEffect(r.effects)
	}
	r.stop(hit)
	r.mu.Unlock()
	if hit {
		_ = r.come(s.System != Postgres) // it has happened already
	}
}

// completes reports whether s is the step that stores the result.
func (r *Run) completes(s *Step) bool {
	return s.Phase == Ending && s.System == Redis && s.guards && r.bodyErr == nil
}

// forget takes a step back that turned out to be none.
func (r *Run) forget(s *Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.steps); n > 0 && r.steps[n-1] == s {
		r.steps = r.steps[:n-1]
	}
}

// come is called where the run's point is, by the goroutine that has come to it. A
// crash ends the goroutine, unless it is inside of pgx, whose pool would not get its
// connection back: then what it gets is an error.
func (r *Run) come(exit bool) error {
	first := false
	r.arrive.Do(func() { first = true })
	if !first {
		return nil
	}
	if r.what == crash {
		r.kill()
		close(r.frozen)
		if exit {
			runtime.Goexit()
		}
		return errDead
	}
	if r.what != freeze {
		return nil
	}
	r.mu.Lock()
	r.stop(true)
	r.mu.Unlock()
	close(r.frozen)
	<-r.thawed
	if r.isDead() {
		return errDead
	}
	return nil
}

// kill ends the run's process: its connections break, and nothing is sent any more.
func (r *Run) kill() {
	r.mu.Lock()
	r.dead = true
	conns := r.conns
	r.conns = map[*pgx.Conn]struct{}{}
	r.mu.Unlock()
	for c := range conns {
		_ = c.PgConn().Conn().Close() // the server rolls back
	}
	r.goOn()
}

// bodyWatch stands between the guard and the body.
type bodyWatch struct{ sdk.WorkerInterceptorBase }

// InterceptActivity implements the SDK's WorkerInterceptor.
func (*bodyWatch) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	b := &bodyInbound{}
	b.Next = next
	return b
}

type bodyInbound struct {
	sdk.ActivityInboundInterceptorBase
}

// ExecuteActivity implements the SDK's ActivityInboundInterceptor.
func (b *bodyInbound) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (result any, err error) {
	r := runFrom(ctx)
	if r == nil {
		return b.Next.ExecuteActivity(ctx, in)
	}
	r.bodyBegins(ctx)
	err = errors.New("testsuite: the body has not returned")
	defer func() { r.bodyEnds(err) }()
	return b.Next.ExecuteActivity(ctx, in)
}

func (r *Run) bodyBegins(ctx context.Context) {
	a, _ := interceptor.Attempt(ctx)
	r.mu.Lock()
	r.attempt = a
	r.mu.Unlock()
	if r.point == BeforeBody {
		_ = r.come(true)
	}
	r.mu.Lock()
	r.phase, r.bodyRan, r.goroutine = InBody, true, goroutineID()
	r.mu.Unlock()
}

func (r *Run) bodyEnds(err error) {
	r.mu.Lock()
	r.phase, r.bodyErr = Ending, err
	close(r.returned)
	r.mu.Unlock()
	if r.call.held {
		letRun()
	}
}

// recorder writes down what the guard tells of a run, and passes it on.
type recorder struct{ user primitives.Observer }

// Observe implements primitives.Observer.
func (o recorder) Observe(ctx context.Context, e primitives.Event) {
	if r := runFrom(ctx); r != nil {
		r.mu.Lock()
		r.events = append(r.events, e)
		if e.Token.Valid() && !r.attempt.Token.Valid() {
			r.attempt.Token = e.Token
		}
		r.mu.Unlock()
	}
	if o.user != nil {
		o.user.Observe(ctx, e)
	}
}
