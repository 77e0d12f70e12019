package interceptor_test

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// line is the connection of a worker that may be frozen: what the server has sent lies in
// its socket until the worker thaws.
type line struct {
	e      *env
	socket chan *task    // what lies there
	thawed chan struct{} // closed when it reads on
	mute   bool          // the server does not answer questions
	asked  atomic.Int64
}

func (l *line) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	if path.Base(method) == "DescribeWorkflowExecution" {
		l.asked.Add(1)
		if l.mute {
			return status.Error(codes.PermissionDenied, "no questions")
		}
	}
	err := invoke(ctx, method, req, reply, cc, o...)
	if got, ok := reply.(*workflowservice.PollActivityTaskQueueResponse); ok && err == nil && len(got.GetTaskToken()) > 0 {
		l.socket <- got
		select {
		case <-l.thawed:
		case <-l.e.Context().Done():
		}
	}
	return err
}

// frozen starts a worker for e's activities only, which is frozen as soon as it has one.
func (e *env) frozen(register func(worker.Registry), edits ...func(*worker.Options)) *line {
	e.Helper()
	l := &line{e: e, socket: make(chan *task, 9), thawed: make(chan struct{})}
	s, err := sharedTemporal()
	require.NoError(e, err)
	c := s.ClientForTest(e, func(o *client.Options) {
		o.Logger = e.logs
		o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(l.call))
	})
	o := worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 1,
		Interceptors: []sdk.WorkerInterceptor{e.interceptor()}}
	for _, edit := range edits {
		edit(&o)
	}
	w := worker.New(c, e.queue, o)
	register(w)
	e.insist(w.Start)
	e.Cleanup(w.Stop)
	return l
}

// workflowsOnly is for a worker beside a frozen one.
func workflowsOnly(o *worker.Options) { o.LocalActivityWorkerOnly = true }

func (l *line) thaw() { close(l.thawed) }

// givenUp are the refusals of attempts that Temporal had given up.
func (h *heard) givenUp() (found []primitives.Event) {
	for _, e := range h.kind(primitives.EventRefused) {
		if errors.Is(e.Err, interceptor.ErrGivenUp) {
			found = append(found, e)
		}
	}
	return found
}

// N16: attempts that Temporal has given up while they lay in the socket of a frozen
// worker. Others have done the work meanwhile, in activities of their own that share
// nothing with them but the resource, so the late ones would get higher tokens.
func TestAnAttemptThatWasGivenUpDoesNotBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*plan)
		lose func(*env, client.WorkflowRun, *task) // has Temporal give it up
	}{
		"timed out": {
			func(p *plan) { p.Options.RetryPolicy.MaximumAttempts = 1 },
			func(e *env, run client.WorkflowRun, _ *task) { require.Error(e, run.Get(e.ctx(), nil)) },
		},
		"no heartbeat": {
			func(p *plan) {
				p.Options.StartToCloseTimeout, p.Options.HeartbeatTimeout = forever, 2*time.Second
				p.Options.RetryPolicy.MaximumAttempts = 1
			},
			func(e *env, run client.WorkflowRun, _ *task) { require.Error(e, run.Get(e.ctx(), nil)) },
		},
		"schedule to close": {
			func(p *plan) {
				p.Options.StartToCloseTimeout, p.Options.ScheduleToCloseTimeout = forever, 2*time.Second
			},
			func(e *env, run client.WorkflowRun, _ *task) { require.Error(e, run.Get(e.ctx(), nil)) },
		},
		"waits for its retry": {
			func(p *plan) { p.Options.RetryPolicy.InitialInterval = forever },
			func(e *env, run client.WorkflowRun, of *task) {
				e.pending(run, func(attempt int32, _ time.Time) bool { return attempt == of.GetAttempt()+1 })
			},
		},
		"terminated": {
			nil,
			func(e *env, run client.WorkflowRun, of *task) {
				e.terminate(run)
				eventually(e, "half of its time", func() bool { return time.Since(of.GetStartedTime().AsTime()) > 1500*time.Millisecond })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("sign", interceptor.Policy{Resource: resource("account/1")}),
				interceptor.For("sign again", interceptor.Policy{Resource: resource("account/1")}))
			db, late := e.bank(), e.watch()
			sign := func(ctx context.Context, name string) error { return db.sign(ctx, name) }
			l := e.frozen(named("sign", sign))
			e.worker(func(worker.Registry) {}, workflowsOnly)
			p := staged("sign", "a stale attempt", 2*time.Second)
			if c.edit != nil {
				c.edit(&p)
			}
			run := e.start(p)
			of := await(t, l.socket, "an attempt for the frozen worker")
			c.lose(e, run, of)

			other := *e
			other.queue += "-other"
			winner := other.watch()
			other.worker(named("sign again", sign))
			_, err := other.run(staged("sign again", "the winner", time.Minute))
			require.NoError(t, err)
			require.Len(t, winner.began(primitives.Begun), 1)
			before := e.keys()

			l.thaw()
			eventually(t, "the late attempt", func() bool { return len(late.givenUp())+len(late.kind(primitives.EventCompleted)) > 0 })
			_, owner := db.account()
			require.Equal(t, "the winner", owner)
			require.ElementsMatch(t, before, e.keys(), "Redis is not touched")
			require.Empty(t, late.kind(primitives.EventBegan))
			require.Len(t, e.logs.with("the body was not run: given_up"), 1)
		})
	}
}

// pending waits until an activity that is open stands as ok says.
func (e *env) pending(run client.WorkflowRun, ok func(attempt int32, started time.Time) bool) {
	e.Helper()
	eventually(e, "the activity to be given up", func() bool {
		d, err := e.client.DescribeWorkflow(e.ctx(), run.GetID(), run.GetRunID())
		if err != nil {
			return false
		}
		for _, a := range d.RawResponse.GetPendingActivities() {
			return ok(a.GetAttempt(), a.GetLastStartedTime().AsTime())
		}
		return false
	})
}

// N16: a reset gives the newer attempt the same number. The late one neither begins nor
// tells Temporal anything, which would take it for the newer one.
func TestAnAttemptFromBeforeAResetDoesNotBegin(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{}))
	seen, s := e.watch(), newStage(e, "sign")
	l := e.frozen(s.register)
	e.worker(func(worker.Registry) {}, workflowsOnly)
	p := staged("sign", "x", 2*time.Second)
	p.Options.RetryPolicy.InitialInterval = 30 * time.Minute
	run := e.start(p)
	old := await(t, l.socket, "an attempt for the frozen worker")
	e.pending(run, func(attempt int32, _ time.Time) bool { return attempt == 2 })

	e.insist(func() error { // the newer attempt shall last
		_, err := e.client.WorkflowService().UpdateActivityOptions(e.ctx(), &workflowservice.UpdateActivityOptionsRequest{
			Namespace: "default", Execution: execution(run),
			Activity:        &workflowservice.UpdateActivityOptionsRequest_Id{Id: old.GetActivityId()},
			ActivityOptions: &activitypb.ActivityOptions{StartToCloseTimeout: durationpb.New(forever)},
			UpdateMask:      &fieldmaskpb.FieldMask{Paths: []string{"start_to_close_timeout"}},
		})
		return err
	})
	e.worker(s.register)
	e.reset(run, entered(old))
	newer := s.next()
	require.Equal(t, old.GetAttempt(), newer.info.Attempt)
	l.thaw()
	eventually(t, "the late attempt", func() bool { return len(seen.givenUp()) > 0 })
	newer.give("newer")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "newer", out)
	s.over()
}

// N16, the controls: attempts that Temporal still wants begin, however old they look.
func TestALateAttemptThatIsWantedBegins(t *testing.T) {
	t.Parallel()
	// A local clock that is ahead by more than the attempt's time: all that the guard can
	// see of it is that the time is over. The server's own times stay as they are.
	ahead := before(&outward{info: func(i *activity.Info) { i.StartToCloseTimeout = time.Nanosecond }})
	for name, c := range map[string]struct {
		ahead   bool
		timeout time.Duration
		hold    time.Duration // in the socket
		paused  bool
		mute    bool
		asked   int64
	}{
		"in time":                  {timeout: forever},
		"late":                     {timeout: 12 * time.Second, hold: 6200 * time.Millisecond, asked: 1},
		"late and paused":          {timeout: 6 * time.Second, hold: 7 * time.Second, paused: true, asked: 1},
		"a clock that is ahead":    {timeout: forever, ahead: true, asked: 1},
		"Temporal does not answer": {timeout: forever, ahead: true, mute: true, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("work", interceptor.Policy{}))
			seen := e.watch()
			l := e.frozen(named("work", func(context.Context, string) (string, error) { return "done", nil }), func(o *worker.Options) {
				if c.ahead {
					ahead(o)
				}
			})
			l.mute = c.mute
			e.worker(func(worker.Registry) {}, workflowsOnly)
			run := e.start(staged("work", "x", c.timeout))
			of := await(t, l.socket, "an attempt")
			if c.paused {
				e.pause(run, entered(of))
			}
			eventually(t, "it to be as late as it should", func() bool { return time.Since(of.GetStartedTime().AsTime()) >= c.hold })
			l.thaw()
			var out string
			require.NoError(t, run.Get(e.ctx(), &out))
			require.Equal(t, "done", out)
			require.Empty(t, seen.givenUp())
			require.Equal(t, c.asked, l.asked.Load())
			require.Len(t, e.logs.with("could not say whether"), map[bool]int{true: 1}[c.mute])
		})
	}
}

// N16: the SDK's test environment has no server to ask, and ends the process of whoever
// asks its mock.
func TestALateAttemptInTheTestEnvironmentBegins(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{}))
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(e.logs)
	a := suite.NewTestActivityEnvironment()
	a.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{
		&outward{info: func(i *activity.Info) { i.StartedTime = time.Unix(0, 0) }}, e.interceptor()}})
	a.RegisterActivityWithOptions(func(context.Context, string) error { return nil }, registerAs("work"))
	_, err := a.ExecuteActivity("work", "x")
	require.NoError(t, err)
	require.Empty(t, e.logs.with("could not say whether"))
}

// outward is an interceptor that changes what an activity is told from outside.
type outward struct {
	sdk.WorkerInterceptorBase

	info func(*activity.Info)
}

func (o *outward) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	i := &outwardIn{outward: o}
	i.Next = next
	return i
}

type outwardIn struct {
	sdk.ActivityInboundInterceptorBase

	outward *outward
}

func (i *outwardIn) Init(next sdk.ActivityOutboundInterceptor) error {
	o := &outwardOut{outward: i.outward}
	o.Next = next
	return i.Next.Init(o)
}

type outwardOut struct {
	sdk.ActivityOutboundInterceptorBase

	outward *outward
}

func (o *outwardOut) GetInfo(ctx context.Context) activity.Info {
	info := o.Next.GetInfo(ctx)
	o.outward.info(&info)
	return info
}
