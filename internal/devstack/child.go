package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// ChildConfig says what to run. The zero value runs this program once more, as it
// was started: give Env or Args something by which its main function, or a test
// binary's TestMain, knows what it is.
type ChildConfig struct {
	// Path is the program. Default this one.
	Path string

	// Args are its arguments, without its name. Default none.
	Args []string

	// Env holds variables, as NAME=value, on top of this process's. Default none.
	Env []string

	// Stderr takes what the child says there. Default this process's standard
	// error, so that a race detector's report is not lost.
	Stderr io.Writer
}

// Child is a process that is not a server: a worker, say, that a test freezes or
// kills. Its lines on standard output are signals to the parent, the lines on its
// standard input are the parent's to it. On Linux it dies with its parent. Its
// methods may be called from several goroutines.
type Child struct {
	proc  *process
	in    io.WriteCloser
	lines lineQueue
}

// StartChild starts a child. The caller stops it with [Child.Stop].
func StartChild(cfg ChildConfig) (*Child, error) {
	if cfg.Path == "" {
		var err error
		if cfg.Path, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("devstack: start a child: %w", err)
		}
	}
	cmd := exec.Command(cfg.Path, cfg.Args...)
	cmd.Env = append(os.Environ(), cfg.Env...)
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = stopPatience // a grandchild may hold standard output open
	c := &Child{}
	cmd.Stdout, cmd.Stderr = &c.lines, cfg.Stderr
	if cfg.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("devstack: start a child: %w", err)
	}
	if c.proc, err = startCommand(cmd); err != nil {
		return nil, err
	}
	return c, nil
}

// ChildForTest is [StartChild] for a test, which kills the child at its end.
func ChildForTest(t TB, cfg ChildConfig) *Child {
	t.Helper()
	return startForTest(t, func(_ context.Context, cfg ChildConfig) (*Child, error) { return StartChild(cfg) }, cfg)
}

// PID is the child's process ID.
func (c *Child) PID() int { return c.proc.cmd.Process.Pid }

// Line waits for the next line on the child's standard output. When the child has
// ended and all its lines were read, the error matches [io.EOF].
func (c *Child) Line(ctx context.Context) (string, error) {
	for {
		ended := c.proc.ended() // looked at first: nothing is printed after it
		line, ok, news := c.lines.next()
		switch {
		case ok:
			return line, nil
		case ended:
			return "", fmt.Errorf("devstack: the child has ended (%v): %w", c.proc.cmd.ProcessState, io.EOF)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("devstack: waiting for a line of the child's: %w", context.Cause(ctx))
		case <-news:
		case <-c.proc.done:
		}
	}
}

// Say writes a line to the child's standard input. A child that does not read may
// make it wait.
func (c *Child) Say(line string) error {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return fmt.Errorf("devstack: say to the child: %w", err)
	}
	return nil
}

// CloseInput ends the child's standard input.
func (c *Child) CloseInput() error { return c.in.Close() }

// Freeze stops the child with SIGSTOP; on Linux it returns when the child has
// stopped. [Child.Thaw] ends it.
func (c *Child) Freeze() error { return c.proc.freeze() }

// Thaw lets a frozen child go on.
func (c *Child) Thaw() error { return c.proc.thaw() }

// Kill ends the child at once, as kill -9 does, frozen or not, and returns when it is
// gone. Killing an ended child is fine.
func (c *Child) Kill() error { return c.proc.kill() }

// Wait waits for the child to end. The error says how it ended, unless that was exit
// status 0: [exec.ExitError].
func (c *Child) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("devstack: waiting for the end of the child: %w", context.Cause(ctx))
	case <-c.proc.done:
		return c.proc.err
	}
}

// Stop kills the child. Stopping twice is fine.
func (c *Child) Stop() error {
	err := c.in.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(c.Kill(), err)
}

// lineQueue keeps the lines that were written to it until somebody takes them.
type lineQueue struct {
	mu    sync.Mutex
	whole []string
	rest  []byte        // of a line that has no end yet
	news  chan struct{} // closed at the next line; nil while nobody waits
}

// Write never fails.
func (q *lineQueue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range p {
		if b != '\n' {
			q.rest = append(q.rest, b)
			continue
		}
		q.whole = append(q.whole, string(q.rest))
		q.rest = q.rest[:0]
	}
	if len(q.whole) > 0 && q.news != nil {
		close(q.news)
		q.news = nil
	}
	return len(p), nil
}

// next takes the first line, or says what will be closed when there is one.
func (q *lineQueue) next() (line string, ok bool, news <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.whole) == 0 {
		if q.news == nil {
			q.news = make(chan struct{})
		}
		return "", false, q.news
	}
	line, q.whole = q.whole[0], q.whole[1:]
	return line, true, nil
}
