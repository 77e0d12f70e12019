package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// startBudget bounds every start, restart and forming of a topology. It is for
// machines under load: a start that goes well takes milliseconds.
const startBudget = 2 * time.Minute

// daemon is one server process with its folder and port, which both outlive the
// process: a killed server can be started again.
type daemon struct {
	binary string
	dir    string
	port   int
	launch launcher

	mu     sync.Mutex
	proc   *process
	frozen bool
}

// launcher starts the process of a daemon and returns when it answers. With an
// error it may return the process too, which is then killed.
type launcher func(context.Context, *daemon) (*process, error)

// startDaemon starts a server on a free port, in a folder that bears the service's
// name. When somebody else takes the port between the look and the server's bind,
// it tries the next one.
func startDaemon(ctx context.Context, binary, service string, launch launcher) (*daemon, error) {
	for {
		d, err := newDaemon(binary, service, launch)
		if err != nil {
			return nil, err
		}
		if err = d.start(ctx); err == nil {
			return d, nil
		}
		if lost := errors.Is(err, errPortTaken); !lost || ctx.Err() != nil {
			return nil, errors.Join(err, d.remove())
		}
		if err := d.remove(); err != nil {
			return nil, err
		}
	}
}

func newDaemon(binary, service string, launch launcher) (*daemon, error) {
	dir, err := os.MkdirTemp("", "fencekit-"+service+"-")
	if err != nil {
		return nil, err
	}
	port, err := takePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &daemon{binary: binary, dir: dir, port: port, launch: launch}, nil
}

// remove kills the process and forgets folder and port.
func (d *daemon) remove() error {
	err := d.kill()
	returnPort(d.port)
	return errors.Join(err, os.RemoveAll(d.dir))
}

// start runs the process and returns when it answers.
func (d *daemon) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	proc, err := d.launch(ctx, d)
	if err != nil {
		if proc != nil {
			err = errors.Join(err, proc.kill())
		}
		return err
	}
	d.proc, d.frozen = proc, false
	return nil
}

// awaitSaid returns when the child itself has printed what it says once it
// listens, and check succeeds.
func (d *daemon) awaitSaid(ctx context.Context, proc *process, said string, check func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return waitFor(ctx, d.binary+" answers", func() error {
		if proc.ended() {
			err := fmt.Errorf("%s ended (%w): %s", d.binary, endOf(proc), proc.lastWords())
			cancel(err)
			return err
		}
		if !strings.Contains(proc.output(), said) {
			return fmt.Errorf("it has not said %q yet: %s", said, proc.lastWords())
		}
		return check()
	})
}

var errPortTaken = errors.New("the port was taken meanwhile")

// endOf tells a lost race for the port from every other end.
func endOf(proc *process) error {
	if strings.Contains(strings.ToLower(proc.output()), "address already in use") {
		return errPortTaken
	}
	if proc.err == nil {
		return errors.New("exit status 0")
	}
	return proc.err
}

func (d *daemon) addr() string { return localAddr(d.port) }

func (d *daemon) kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc == nil {
		return nil
	}
	return d.proc.kill()
}

func (d *daemon) freeze() error { return d.setFrozen(true, (*process).freeze) }
func (d *daemon) thaw() error   { return d.setFrozen(false, (*process).thaw) }

func (d *daemon) setFrozen(frozen bool, do func(*process) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := do(d.proc); err != nil {
		return fmt.Errorf("devstack: signal %s on port %d: %w", d.binary, d.port, err)
	}
	d.frozen = frozen
	return nil
}

// answering reports whether nothing was done to the server that keeps it silent.
func (d *daemon) answering() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proc != nil && !d.proc.ended() && !d.frozen
}

// restart kills the process if it runs and starts it again on the same port, in
// the same folder.
func (d *daemon) restart(ctx context.Context) error {
	if err := d.kill(); err != nil {
		return err
	}
	for {
		err := d.start(ctx)
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return err
		}
	}
}
