//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package devstack

import (
	"os"
	"syscall"
)

// tryLock takes the lock on an open file, which ends when the file is closed or its
// process has ended, however that came.
func tryLock(file *os.File) error {
	return os.NewSyscallError("flock", syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
}
