// Package conformance is the behaviour of a guard as a table of named cases, for whoever
// builds another store: on another database, or in another language behind an adapter.
// Package primitives passes it, on Redis in memory and on a real one.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t testing.TB) conformance.Store { return openMyStore(t) })
//	}
//
// What a store may leave out is an interface of its own, such as [Suspender]; a case that
// needs one is skipped where the store has not got it.
//
// A [Store] is asked for nothing that primitives does not have. Its errors are told
// apart by errors.Is with the sentinels of primitives and fence; an adapter for another
// language maps its own to them.
package conformance
