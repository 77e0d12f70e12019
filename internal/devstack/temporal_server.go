package devstack

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

func startTemporalServer(ctx context.Context, binary string, cfg TemporalConfig) (*Temporal, error) {
	d, err := startDaemon(ctx, binary, "temporal", cfg.launch)
	if err != nil {
		return nil, err
	}
	s := &Temporal{daemon: d, address: d.addr()}
	if cfg.UI {
		s.ui = localAddr(uiPort(d))
	}
	return s, nil
}

// uiPort is the second port that [takePort] has seen to.
func uiPort(d *daemon) int { return d.port + busOffset }

func (c TemporalConfig) launch(ctx context.Context, d *daemon) (*process, error) {
	cmd := exec.Command(d.binary, c.arguments(d)...)
	cmd.Dir = d.dir
	cmd.SysProcAttr = childAttributes()
	// The server leaves a file in its home, and the user's settings are not for it.
	cmd.Env = append(os.Environ(), "HOME="+d.dir)
	proc, err := startLogged(cmd)
	if err != nil {
		return nil, err
	}
	return proc, d.awaitSaid(ctx, proc, "Server:", func() error { return c.answers(ctx, d) })
}

// arguments leaves the ports of metrics and HTTP, which nobody asks for, to the
// server: it takes free ones.
func (c TemporalConfig) arguments(d *daemon) []string {
	args := []string{"server", "start-dev", "--ip", localhost, "--port", strconv.Itoa(d.port), "--log-level", "error"}
	if c.Persistent {
		args = append(args, "--db-filename", filepath.Join(d.dir, "temporal.db"))
	}
	for _, setting := range c.DynamicConfig {
		args = append(args, "--dynamic-config-value", setting)
	}
	for _, attribute := range c.SearchAttributes {
		args = append(args, "--search-attribute", attribute)
	}
	if c.UI {
		return append(args, "--ui-port", strconv.Itoa(uiPort(d)))
	}
	return append(args, "--headless")
}

func (c TemporalConfig) answers(ctx context.Context, d *daemon) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	s := &Temporal{address: d.addr()}
	if err := s.usable(ctx, s.Namespace()); err != nil || !c.UI {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", localAddr(uiPort(d)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// awaitNamespace returns when a namespace can be used: every service of the server
// has to notice a new one.
func (s *Temporal) awaitNamespace(ctx context.Context, namespace string) error {
	return waitFor(ctx, "Temporal knows the namespace "+namespace, func() error {
		ctx, cancel := context.WithTimeout(ctx, controlTimeout)
		defer cancel()
		return s.usable(ctx, namespace)
	})
}

// usable asks for a workflow that is not there. Only a server whose frontend and
// history both know the namespace can say so.
func (s *Temporal) usable(ctx context.Context, namespace string) error {
	options := s.Options()
	options.Namespace = namespace
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return err
	}
	defer c.Close()
	describe := &workflowservice.DescribeNamespaceRequest{Namespace: namespace}
	if _, err := c.WorkflowService().DescribeNamespace(ctx, describe); err != nil {
		return err
	}
	_, err = c.DescribeWorkflow(ctx, "fencekit-devstack-absent", "")
	if absent := new(serviceerror.NotFound); errors.As(err, &absent) {
		return nil
	}
	return err
}
