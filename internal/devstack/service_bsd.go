//go:build unix && !linux

package devstack

import "syscall"

func tuneService(*syscall.SysProcAttr) {}
