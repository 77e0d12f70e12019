package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// process is a running child. The goroutine that started it waits for it, so a
// child never becomes a zombie.
type process struct {
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when the child has been reaped
	err     error         // how it ended; read only after done
}

// startProcess runs name in dir, in a process group of its own, with its output
// in a file there.
func startProcess(dir, name string, args ...string) (*process, error) {
	return startProcessWith(dir, childAttributes(), name, args...)
}

// startProcessWith is startProcess with attributes of the caller's.
func startProcessWith(dir string, attr *syscall.SysProcAttr, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = attr
	return startLogged(cmd)
}

// startLogged is startCommand with the output in a file in the command's folder.
func startLogged(cmd *exec.Cmd) (*process, error) {
	out, err := os.Create(filepath.Join(cmd.Dir, "output.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	p, err := startCommand(cmd)
	if err != nil {
		return nil, err
	}
	p.logPath = out.Name()
	return p, nil
}

// startCommand runs cmd.
//
// Linux sends Pdeathsig when the thread that forked ends, not when the process
// does, and Go ends idle threads' lives as it likes. So the goroutine that forks
// keeps its thread to itself until the child has ended.
func startCommand(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("devstack: start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// kill ends the child and its group at once, frozen or not, and waits until it
// has been reaped. Killing an ended child is fine.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	if err := signalGroup(p.cmd.Process, killSignal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("devstack: kill %s: %w", p.cmd.Path, err)
	}
	<-p.done
	return nil
}

// signal reaches the whole group.
func (p *process) signal(s signal) error {
	if p.ended() {
		return os.ErrProcessDone
	}
	return signalGroup(p.cmd.Process, s)
}

// freeze returns when the child has stopped: the signal alone says that it will.
func (p *process) freeze() error {
	if err := p.signal(freezeSignal); err != nil {
		return err
	}
	return awaitStopped(p.cmd.Process.Pid)
}

func (p *process) thaw() error { return p.signal(thawSignal) }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// output is what the child has printed so far.
func (p *process) output() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// lastWords is the end of the output, for error messages.
func (p *process) lastWords() string {
	lines := strings.Split(strings.TrimSpace(p.output()), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
