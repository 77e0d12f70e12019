package devstack

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// nodeConfig makes a daemon a Redis server, or a Sentinel.
type nodeConfig struct {
	conf     []string // lines after the dev stack's own, so they win
	sentinel bool
}

// startNode starts a server on a free port.
func startNode(ctx context.Context, binary string, sentinel bool, conf []string) (*daemon, error) {
	return startDaemon(ctx, binary, "redis", nodeConfig{conf: conf, sentinel: sentinel}.launch)
}

func (c nodeConfig) launch(ctx context.Context, d *daemon) (*process, error) {
	args := []string{filepath.Join(d.dir, "redis.conf")}
	if c.sentinel {
		args = append(args, "--sentinel")
	}
	if err := c.write(args[0], d); err != nil {
		return nil, err
	}
	proc, err := startProcess(d.dir, d.binary, args...)
	if err != nil {
		return nil, err
	}
	said := "Ready to accept connections"
	if c.sentinel {
		said = "Sentinel ID is"
	}
	return proc, d.awaitSaid(ctx, proc, said, func() error { return ping(ctx, d.addr()) })
}

// write writes the configuration unless an earlier start has: Sentinel keeps its
// state in that file.
func (c nodeConfig) write(path string, d *daemon) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	lines := []string{
		"bind " + localhost,
		"port " + strconv.Itoa(d.port),
		"dir " + strconv.Quote(d.dir),
	}
	if !c.sentinel {
		lines = append(lines, `save ""`, "appendonly no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0")
	}
	lines = append(lines, c.conf...)
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// ping succeeds if a server answers that could serve a client that has its
// password.
func ping(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	for _, alive := range []string{"+PONG", "-NOAUTH", "-NOPERM"} {
		if strings.HasPrefix(line, alive) {
			return nil
		}
	}
	return fmt.Errorf("PING was answered %q", strings.TrimSpace(line))
}
