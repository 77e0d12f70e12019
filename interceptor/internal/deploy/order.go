package deploy

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// OrderEnv names the variable that holds a worker's [Order], as JSON.
const OrderEnv = "FENCEKIT_DEPLOY_ORDER"

// Order is what a worker process is told.
type Order struct {
	Temporal, Redis string // where they are
	Payments        string // URL of the service that charges
	Queue           string // of tasks, and the prefix in Redis
	LeaseTTL        time.Duration
}

// The activities. All are one body; what differs is the policy.
const (
	Default  = "default"  // the zero policy
	Resource = "resource" // a resource, and else the zero policy
	Keyed    = "keyed"    // a key function under ScopeExecution
	ByHeader = "header"   // ScopeRun, called by WithKey
	Whole    = "whole"    // ScopeNamespace, the key is the whole input
	Business = "business" // ScopeNamespace, the key is the order's number
	Moved    = "moved"    // the same, but the releases have different key functions
)

// Workflow is the name of the workflow.
const Workflow = "pay"

// Pay is its input: one call of an activity.
type Pay[P any] struct {
	Activity string
	Local    bool
	Key      string // by WithKey
	Timeout  time.Duration
	Payment  P
}

// The headers of a request for payment, which tell the service who asks.
const (
	HeaderKey     = "Idempotency-Key"
	HeaderRelease = "X-Release"
	HeaderOutcome = "X-Outcome"
	HeaderToken   = "X-Token"
)

// retrySoon is the time between two attempts.
const retrySoon = 100 * time.Millisecond

func activityOptions(timeout time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{StartToCloseTimeout: timeout, ScheduleToCloseTimeout: time.Hour, RetryPolicy: retries}
}

func localOptions(timeout time.Duration) workflow.LocalActivityOptions {
	return workflow.LocalActivityOptions{StartToCloseTimeout: timeout, ScheduleToCloseTimeout: time.Hour, RetryPolicy: retries}
}
