//go:build unix

package devstack

import (
	"errors"
	"os"
	"syscall"
)

type signal = syscall.Signal

const (
	killSignal   = syscall.SIGKILL
	freezeSignal = syscall.SIGSTOP
	thawSignal   = syscall.SIGCONT
)

// signalGroup sends s to the group that p leads.
func signalGroup(p *os.Process, s signal) error {
	err := syscall.Kill(-p.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
