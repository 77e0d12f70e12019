// Package sdk150 tests the interceptor on the oldest Temporal SDK that it supports. It
// is a module of its own, because a module has one version of the SDK, and has no code
// but tests.
package sdk150
