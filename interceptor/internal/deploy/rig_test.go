//go:build unix

package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor/internal/deploy"
	"github.com/fencekit/fencekit-go/internal/devstack"
)

// The servers of all tests.
var (
	sharedRedis = devstack.Shared(func(ctx context.Context) (*devstack.Redis, error) {
		return devstack.StartRedis(ctx, devstack.RedisConfig{})
	})
	sharedTemporal = devstack.Shared(func(ctx context.Context) (*devstack.Temporal, error) {
		return devstack.StartTemporal(ctx, devstack.TemporalConfig{})
	})
)

// programs is a folder with the releases, compiled.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fencekit-deploy-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir, "./release1", "./release2", "./release3")
	if said, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, said)
	}
	return dir, nil
})

var built atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	_ = devstack.StopShared()
	if built.Load() {
		dir, _ := programs()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// endlessLease is a lease that no test lives to see the end of.
const endlessLease = 10 * time.Minute

// rig is one test's task queue and payment service, and the worker processes on them.
type rig struct {
	*testing.T

	order  deploy.Order
	client client.Client
	*service
}

var rigs atomic.Int64

func newRig(t *testing.T, leaseTTL time.Duration) *rig {
	t.Helper()
	server, err := sharedTemporal()
	require.NoError(t, err)
	redis, err := sharedRedis()
	require.NoError(t, err)
	r := &rig{T: t, client: server.ClientForTest(t), service: newService(t)}
	r.order = deploy.Order{Temporal: server.Addr(), Redis: redis.Addr(), Payments: r.url, LeaseTTL: leaseTTL,
		Queue: fmt.Sprintf("deploy%d-%d", os.Getpid(), rigs.Add(1))}
	return r
}

// spawn starts a worker of a release and returns when it works.
func (r *rig) spawn(release string) *devstack.Child {
	r.Helper()
	built.Store(true)
	dir, err := programs()
	require.NoError(r, err)
	text, err := json.Marshal(r.order)
	require.NoError(r, err)
	c := devstack.ChildForTest(r, devstack.ChildConfig{Path: filepath.Join(dir, release), Env: []string{deploy.OrderEnv + "=" + string(text)}})
	line, err := c.Line(r.patience())
	require.NoError(r, err)
	require.Equal(r, "ready", line)
	return c
}

// stop lets a worker end in peace.
func (r *rig) stop(c *devstack.Child) {
	r.Helper()
	require.NoError(r, c.CloseInput())
	require.NoError(r, c.Wait(r.patience()))
}

// patience is how long anything may take that happens for sure.
func (r *rig) patience() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Minute)
	r.Cleanup(cancel)
	return ctx
}

// payment is an input as it stands in history, whatever release has written it.
type payment map[string]any

// of is the payment for an order as the first release has it, and what is added to it.
func of(order string, added payment) payment {
	p := payment{"Order": order, "Amount": 100}
	for name, value := range added {
		p[name] = value
	}
	return p
}

type pay = deploy.Pay[payment]

// start starts a call. Its workflow task is given up soon, if its worker has died.
func (r *rig) start(p pay) client.WorkflowRun {
	r.Helper()
	if p.Timeout == 0 {
		p.Timeout = time.Minute
	}
	run, err := r.client.ExecuteWorkflow(r.patience(), client.StartWorkflowOptions{
		TaskQueue: r.order.Queue, WorkflowTaskTimeout: 3 * time.Second}, deploy.Workflow, p)
	require.NoError(r, err)
	return run
}

// receipt is the result of a call.
func (r *rig) receipt(run client.WorkflowRun) (receipt string, err error) {
	r.Helper()
	err = run.Get(r.patience(), &receipt)
	require.NoError(r, r.patience().Err())
	return receipt, err
}

// refusal is the type of the error of a call that has failed for good.
func (r *rig) refusal(run client.WorkflowRun) *temporal.ApplicationError {
	r.Helper()
	_, err := r.receipt(run)
	var a *temporal.ApplicationError
	require.ErrorAs(r, err, &a)
	require.True(r, a.NonRetryable(), err)
	return a
}

// service is somebody else's: it charges once for each idempotency key.
type service struct {
	url string

	mu       sync.Mutex
	requests []request
	hanging  map[string]chan struct{} // by order: its first request has no answer
}

// request is a request for payment.
type request struct {
	Order, Key, Release, Outcome string
	Token                        int64
	At                           time.Time
}

func newService(t *testing.T) *service {
	s := &service{hanging: map[string]chan struct{}{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// ServeHTTP answers with the release that has been charged for.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := request{Key: r.Header.Get(deploy.HeaderKey), Release: r.Header.Get(deploy.HeaderRelease),
		Outcome: r.Header.Get(deploy.HeaderOutcome), At: time.Now()}
	var err error
	if q.Token, err = strconv.ParseInt(r.Header.Get(deploy.HeaderToken), 10, 64); err == nil {
		err = json.NewDecoder(r.Body).Decode(&q.Order)
	}
	if err != nil || q.Key == "" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, q)
	heard := s.hanging[q.Order]
	delete(s.hanging, q.Order)
	s.mu.Unlock()
	if heard != nil {
		close(heard)
		<-r.Context().Done() // the worker has gone
		return
	}
	_, _ = w.Write([]byte(q.Release))
}

// hang has the next request of an order charge and get no answer; the channel is closed
// when it has come.
func (s *service) hang(order string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := make(chan struct{})
	s.hanging[order] = heard
	return heard
}

// of are the requests of an order, in order.
func (s *service) of(order string) (found []request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.requests {
		if q.Order == order {
			found = append(found, q)
		}
	}
	return found
}

// charges is how often an order was charged.
func (s *service) charges(order string) int {
	keys := map[string]bool{}
	for _, q := range s.of(order) {
		keys[q.Key] = true
	}
	return len(keys)
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "waited in vain", what)
	}
}
