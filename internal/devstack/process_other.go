//go:build !unix

package devstack

import (
	"errors"
	"os"
	"syscall"
)

type signal int

const (
	killSignal signal = iota
	freezeSignal
	thawSignal
)

func childAttributes() *syscall.SysProcAttr { return nil }

// signalGroup can only kill here: there is no way to freeze a process.
func signalGroup(p *os.Process, s signal) error {
	if s == killSignal {
		return p.Kill()
	}
	return errors.ErrUnsupported
}

func awaitStopped(int) error { return errors.ErrUnsupported }
