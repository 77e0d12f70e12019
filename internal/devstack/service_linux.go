package devstack

import "syscall"

// tuneService makes the parent's death an immediate shutdown: a killed postgres
// would leave its shared memory behind.
func tuneService(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
