//go:build unix

package main

import (
	"syscall"
	"time"
)

// ownCPU is the processor time that this process has used.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
