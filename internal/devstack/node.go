package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// startBudget bounds every start, restart and forming of a topology. It is for
// machines under load: a start that goes well takes milliseconds.
const startBudget = 2 * time.Minute

// node is one server process with its folder and port, which both outlive the
// process: a killed node can be started again.
type node struct {
	binary   string
	dir      string
	port     int
	conf     []string // lines after the node's own, so they win
	sentinel bool

	mu     sync.Mutex
	proc   *process
	frozen bool
}

// startNode starts a server on a free port. When somebody else takes the port
// between the look and the server's bind, it tries the next one.
func startNode(ctx context.Context, binary string, sentinel bool, conf []string) (*node, error) {
	for {
		n, err := newNode(binary, sentinel, conf)
		if err != nil {
			return nil, err
		}
		if err = n.start(ctx); err == nil {
			return n, nil
		}
		if lost := errors.Is(err, errPortTaken); !lost || ctx.Err() != nil {
			return nil, errors.Join(err, n.remove())
		}
		if err := n.remove(); err != nil {
			return nil, err
		}
	}
}

func newNode(binary string, sentinel bool, conf []string) (*node, error) {
	dir, err := os.MkdirTemp("", "fencekit-redis-")
	if err != nil {
		return nil, err
	}
	port, err := takePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &node{binary: binary, dir: dir, port: port, conf: conf, sentinel: sentinel}, nil
}

// remove kills the process and forgets folder and port.
func (n *node) remove() error {
	err := n.kill()
	returnPort(n.port)
	return errors.Join(err, os.RemoveAll(n.dir))
}

var errPortTaken = errors.New("the port was taken meanwhile")

// start runs the process and returns when it answers.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	args := []string{filepath.Join(n.dir, "redis.conf")}
	if n.sentinel {
		args = append(args, "--sentinel")
	}
	if err := n.writeConf(args[0]); err != nil {
		return err
	}
	proc, err := startProcess(n.dir, n.binary, args...)
	if err != nil {
		return err
	}
	if err := n.awaitReady(ctx, proc); err != nil {
		return errors.Join(err, proc.kill())
	}
	n.proc, n.frozen = proc, false
	return nil
}

// writeConf writes the configuration unless an earlier start has: Sentinel keeps
// its state in that file.
func (n *node) writeConf(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	lines := []string{
		"bind " + localhost,
		"port " + strconv.Itoa(n.port),
		"dir " + strconv.Quote(n.dir),
	}
	if !n.sentinel {
		lines = append(lines, `save ""`, "appendonly no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0")
	}
	lines = append(lines, n.conf...)
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// awaitReady returns when the child itself has said that it listens (another
// server may have won the port, and would answer too) and answers a PING.
func (n *node) awaitReady(ctx context.Context, proc *process) error {
	said := "Ready to accept connections"
	if n.sentinel {
		said = "Sentinel ID is"
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return waitFor(ctx, n.binary+" answers", func() error {
		if proc.ended() {
			err := fmt.Errorf("%s ended (%w): %s", n.binary, endOf(proc), proc.lastWords())
			cancel(err)
			return err
		}
		if !strings.Contains(proc.output(), said) {
			return fmt.Errorf("it has not said %q yet: %s", said, proc.lastWords())
		}
		return ping(ctx, n.addr())
	})
}

// endOf tells a lost race for the port from every other end.
func endOf(proc *process) error {
	if strings.Contains(proc.output(), "Address already in use") {
		return errPortTaken
	}
	if proc.err == nil {
		return errors.New("exit status 0")
	}
	return proc.err
}

// ping succeeds if a server answers that could serve a client that has its
// password.
func ping(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	for _, alive := range []string{"+PONG", "-NOAUTH", "-NOPERM"} {
		if strings.HasPrefix(line, alive) {
			return nil
		}
	}
	return fmt.Errorf("PING was answered %q", strings.TrimSpace(line))
}

func (n *node) addr() string { return localAddr(n.port) }

func (n *node) kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil {
		return nil
	}
	return n.proc.kill()
}

func (n *node) freeze() error { return n.setFrozen(true, freezeSignal) }
func (n *node) thaw() error   { return n.setFrozen(false, thawSignal) }

func (n *node) setFrozen(frozen bool, s signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.proc.signal(s); err != nil {
		return fmt.Errorf("devstack: signal %s on port %d: %w", n.binary, n.port, err)
	}
	n.frozen = frozen
	return nil
}

// answering reports whether nothing was done to the node that keeps it silent.
func (n *node) answering() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc != nil && !n.proc.ended() && !n.frozen
}

// restart kills the process if it runs and starts it again on the same port, in
// the same folder.
func (n *node) restart(ctx context.Context) error {
	if err := n.kill(); err != nil {
		return err
	}
	for {
		err := n.start(ctx)
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return err
		}
	}
}
