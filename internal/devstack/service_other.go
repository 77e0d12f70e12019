//go:build !unix

package devstack

import "syscall"

const stopSignal = killSignal

func serviceAttributes(string) (*syscall.SysProcAttr, error) { return childAttributes(), nil }
