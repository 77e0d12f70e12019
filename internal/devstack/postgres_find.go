package devstack

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// postgresFolders lists where the server's programs may be, best first.
func postgresFolders() []string {
	var dirs []string
	if dir := os.Getenv("FENCEKIT_POSTGRES_BIN"); dir != "" {
		dirs = append(dirs, dir)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		slices.Sort(found)
		slices.Reverse(found)
		dirs = append(dirs, found...)
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}
