//go:build unix && !linux

package devstack

import "syscall"

// childAttributes knows no Pdeathsig outside Linux: there a parent that is killed
// before it stops its servers leaves them running.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped cannot look without taking the child's end from whoever waits for it.
func awaitStopped(int) error { return nil }
