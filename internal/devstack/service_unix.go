//go:build unix

package devstack

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// stopSignal asks Postgres for a fast shutdown and PgBouncer for an orderly one.
const stopSignal = syscall.SIGINT

// serviceAttributes is childAttributes for a server that refuses to run as root:
// as root, it runs as another user, who becomes the owner of dir.
func serviceAttributes(dir string) (*syscall.SysProcAttr, error) {
	attr := childAttributes()
	tuneService(attr)
	if os.Geteuid() != 0 {
		return attr, nil
	}
	uid, gid, err := serviceUser()
	if err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	return attr, os.Chown(dir, int(uid), int(gid))
}

func serviceUser() (uid, gid uint32, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return 0, 0, fmt.Errorf("devstack: running as root needs a user postgres or nobody: %w", err)
		}
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	group, err := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), err
}
