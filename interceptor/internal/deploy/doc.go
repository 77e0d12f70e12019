// Package deploy holds tests of the interceptor over a rolling deploy, on real servers:
// a worker process of one release is killed in the middle of an activity, and one of
// another release goes on. The releases are programs of their own, whose activities take
// structs of different shapes. They share all that is in this package.
package deploy
