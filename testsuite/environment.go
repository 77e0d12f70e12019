package testsuite

import (
	"context"

	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	sdktest "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
)

// ActivityEnvironment is the SDK's, with the guard wired in and an identity space of its
// own. Attempt is always 1 in it; for redeliveries see [Kit.Execute].
func (k *Kit) ActivityEnvironment() *sdktest.TestActivityEnvironment {
	k.t.Helper()
	return k.activityEnvironment(context.Background(), k.newIdentity().within)
}

// WorkflowEnvironment is the SDK's, with the guard wired in and an identity space of its
// own. Mind its mocks (OnActivity): one that returns values replaces the guard too, so
// that nothing is guarded; one that returns a function is guarded like the activity; and
// a local activity that is mocked by a function passes through the interceptors twice.
// Mock what the activity calls rather than the activity.
func (k *Kit) WorkflowEnvironment() *sdktest.TestWorkflowEnvironment {
	k.t.Helper()
	env := k.suite().NewTestWorkflowEnvironment()
	env.SetTestTimeout(patience) // the SDK's 3s end tests on a busy machine
	if c := k.opts.Interceptor.DataConverter; c != nil {
		env.SetDataConverter(c)
	}
	if c := k.opts.Interceptor.FailureConverter; c != nil {
		env.SetFailureConverter(c)
	}
	env.SetWorkerOptions(k.workerOptions(context.Background(), k.newIdentity().within))
	for _, r := range k.registrations() {
		env.RegisterActivityWithOptions(r.activity, r.options)
	}
	return env
}

func (k *Kit) suite() *sdktest.WorkflowTestSuite {
	s := &sdktest.WorkflowTestSuite{}
	s.SetLogger(k.logger())
	return s
}

func (k *Kit) activityEnvironment(base context.Context, rewrite func(activity.Info) activity.Info) *sdktest.TestActivityEnvironment {
	env := k.suite().NewTestActivityEnvironment()
	env.SetTestTimeout(patience)
	if c := k.opts.Interceptor.DataConverter; c != nil {
		env.SetDataConverter(c)
	}
	if c := k.opts.Interceptor.FailureConverter; c != nil {
		env.SetFailureConverter(c)
	}
	env.SetWorkerOptions(k.workerOptions(base, rewrite))
	for _, r := range k.registrations() {
		env.RegisterActivityWithOptions(r.activity, r.options)
	}
	return env
}

func (k *Kit) workerOptions(base context.Context, rewrite func(activity.Info) activity.Info) worker.Options {
	chain := []sdk.WorkerInterceptor{&identifier{rewrite: rewrite}}
	chain = append(chain, k.opts.Before...)
	chain = append(chain, k.Interceptor())
	chain = append(chain, k.opts.After...)
	chain = append(chain, &bodyWatch{})
	return worker.Options{BackgroundActivityContext: base, Interceptors: chain}
}

func (k *Kit) registrations() []registration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registered[:len(k.registered):len(k.registered)]
}

func (k *Kit) logger() log.Logger {
	if k.opts.Logger != nil {
		return k.opts.Logger
	}
	return silent{}
}

// silent is a logger for nobody.
type silent struct{}

// Debug implements log.Logger.
func (silent) Debug(string, ...any) {}

// Info implements log.Logger.
func (silent) Info(string, ...any) {}

// Warn implements log.Logger.
func (silent) Warn(string, ...any) {}

// Error implements log.Logger.
func (silent) Error(string, ...any) {}
