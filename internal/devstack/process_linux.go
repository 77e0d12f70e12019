package devstack

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes makes the kernel kill the child when its parent dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped leaves the child's end to whoever waits for it.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return os.ErrProcessDone
		default:
			return err
		}
	}
}
