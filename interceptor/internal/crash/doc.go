// Package crash holds tests of the interceptor whose workers are processes of their
// own, so that they can be killed and frozen, on real servers that can be killed too.
// It has no code but tests.
package crash
