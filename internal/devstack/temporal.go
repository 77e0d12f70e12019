package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/types/known/durationpb"
)

// TemporalConfig says what kind of Temporal server is needed. The zero value takes
// any.
type TemporalConfig struct {
	// Own asks for a server process that nobody else uses: one to freeze, kill and
	// restart. TEMPORAL_ADDRESS is passed over. Default false; true whenever
	// Persistent, DynamicConfig or SearchAttributes is set.
	Own bool

	// Persistent keeps the server's state in a file, so that it survives Kill and
	// Restart; [Temporal.Stop] deletes it. Default false: a restart forgets all.
	Persistent bool

	// UI serves the web interface too, at [Temporal.UIURL]. A server at
	// TEMPORAL_ADDRESS has what it has. Default false.
	UI bool

	// DynamicConfig holds settings such as "limit.maxIDLength=300", the value in
	// JSON. Default none.
	DynamicConfig []string

	// SearchAttributes holds what the namespace is to have, such as
	// "CustomerId=Keyword". Default none.
	SearchAttributes []string

	// Progress is told when the server has to be built first, which takes minutes.
	// Default standard error.
	Progress io.Writer
}

func (c TemporalConfig) own() bool {
	return c.Own || c.Persistent || len(c.DynamicConfig) > 0 || len(c.SearchAttributes) > 0
}

// Temporal is one running Temporal server. Its methods may be called from several
// goroutines.
//
// Those that change the server (Kill, Freeze, Thaw, Restart) need a process that
// StartTemporal started; for any other they do nothing and return an error that
// matches [errors.ErrUnsupported].
type Temporal struct {
	address string
	ui      string  // its host:port, empty unless it was asked for
	daemon  *daemon // nil unless it is a process of ours
	clients closers
}

// StartTemporal starts a Temporal server or finds one, in the order that the
// package documentation gives, and returns when its default namespace can be used.
// The caller stops it with [Temporal.Stop]. ctx bounds the start, and the build that
// may have to come first.
func StartTemporal(ctx context.Context, cfg TemporalConfig) (*Temporal, error) {
	if address := os.Getenv("TEMPORAL_ADDRESS"); address != "" && !cfg.own() {
		return connectTemporal(ctx, address)
	}
	progress := cfg.Progress
	if progress == nil {
		progress = os.Stderr
	}
	binary, err := TemporalBinary(ctx, progress)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	return startTemporalServer(ctx, binary, cfg)
}

// TemporalForTest is [StartTemporal] for a test, which stops the server at its end
// and is skipped where there is none, unless [RequireReal] says to fail. It takes at
// most one config.
func TemporalForTest(t TB, cfg ...TemporalConfig) *Temporal {
	t.Helper()
	return startForTest(t, StartTemporal, one(t, cfg))
}

// addressPatience is how long a server that should be there may take to answer.
const addressPatience = 15 * time.Second

func connectTemporal(ctx context.Context, address string) (*Temporal, error) {
	ctx, cancel := context.WithTimeout(ctx, addressPatience)
	defer cancel()
	s := &Temporal{address: address}
	if err := s.usable(ctx, s.Namespace()); err != nil {
		return nil, fmt.Errorf("devstack: TEMPORAL_ADDRESS %s: %w", address, err)
	}
	return s, nil
}

// Addr is the server's host:port. It stays the same over a restart.
func (s *Temporal) Addr() string { return s.address }

// Namespace is the namespace that is there from the start: "default".
func (s *Temporal) Namespace() string { return client.DefaultNamespace }

// UIURL is where the web interface is, or "" if this server has none of ours.
func (s *Temporal) UIURL() string {
	if s.ui == "" {
		return ""
	}
	return "http://" + s.ui
}

// Options returns the options that reach the server, with a logger that says
// nothing, for callers that build a client of their own and close it themselves.
func (s *Temporal) Options() client.Options {
	return client.Options{
		HostPort:  s.address,
		Namespace: s.Namespace(),
		Logger:    log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		// The SDK connects within 5 s or fails; a machine may stall for longer.
		ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: time.Minute},
	}
}

// Client returns a new client with [Temporal.Options], as changed by edits. It
// connects at its first call, so an error means bad options. [Temporal.Stop] closes
// it; closing it earlier is fine.
func (s *Temporal) Client(edits ...func(*client.Options)) (client.Client, error) {
	options := s.Options()
	for _, edit := range edits {
		edit(&options)
	}
	c, err := client.NewLazyClient(options)
	if err != nil {
		return nil, fmt.Errorf("devstack: Temporal client: %w", err)
	}
	s.clients.add(closeFunc(c.Close))
	return c, nil
}

// ClientForTest is [Temporal.Client] for a test, which fails if that does.
func (s *Temporal) ClientForTest(t TB, edits ...func(*client.Options)) client.Client {
	t.Helper()
	c, err := s.Client(edits...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// closeFunc makes a closer of a Close that returns nothing.
type closeFunc func()

// Close calls f.
func (f closeFunc) Close() error {
	f()
	return nil
}

// namespaceRetention is the shortest that the server allows.
const namespaceRetention = 24 * time.Hour

// CreateNamespace registers a namespace and returns when workflows can run in it.
// The error for a name that is there already matches
// [go.temporal.io/api/serviceerror.NamespaceAlreadyExists] with [errors.As].
func (s *Temporal) CreateNamespace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	namespaces, err := client.NewNamespaceClient(s.Options())
	if err != nil {
		return fmt.Errorf("devstack: create namespace %s: %w", name, err)
	}
	defer namespaces.Close()
	err = namespaces.Register(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(namespaceRetention),
	})
	if err != nil {
		return fmt.Errorf("devstack: create namespace %s: %w", name, err)
	}
	return s.awaitNamespace(ctx, name)
}

// Kill ends the server at once, as kill -9 does, and returns when it is gone.
// Killing a killed server is fine.
func (s *Temporal) Kill() error {
	if s.daemon == nil {
		return s.notOwn("Kill")
	}
	return s.daemon.kill()
}

// Freeze stops the server with SIGSTOP: connections stay open and nothing
// answers, as behind a network partition. [Temporal.Thaw] ends it.
func (s *Temporal) Freeze() error {
	if s.daemon == nil {
		return s.notOwn("Freeze")
	}
	return s.daemon.freeze()
}

// Thaw lets a frozen server go on, with everything that was sent to it meanwhile.
func (s *Temporal) Thaw() error {
	if s.daemon == nil {
		return s.notOwn("Thaw")
	}
	return s.daemon.thaw()
}

// Restart kills the server, unless that has happened already, and starts it again
// on the same port. Its workflows are gone, unless TemporalConfig.Persistent was
// set. Clients connect again by themselves, within seconds.
func (s *Temporal) Restart(ctx context.Context) error {
	if s.daemon == nil {
		return s.notOwn("Restart")
	}
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	return s.daemon.restart(ctx)
}

// Stop closes the clients, ends the server if it is ours and deletes its folder.
// Stopping twice is fine. Workers are to be stopped before.
func (s *Temporal) Stop() error {
	s.clients.closeAll()
	if s.daemon == nil {
		return nil
	}
	return s.daemon.remove()
}

func (s *Temporal) notOwn(method string) error {
	return fmt.Errorf("devstack: %s: the Temporal at %s is no process of this one; set TemporalConfig.Own: %w",
		method, s.Addr(), errors.ErrUnsupported)
}
