// Package fence is the vocabulary that the lock side and the storage side of
// fencekit share: the fencing [Token], the context that carries it, and the
// errors with which a store refuses a stale holder.
//
// A lease on its own cannot stop a holder that was frozen past the lease's end
// and wakes up writing. A fencing token can: every grant of a lease carries a
// number higher than all grants before it, every write carries the number, and
// the store refuses a write whose number is lower than one it has already seen.
// The idea is described by Martin Kleppmann, "How to do distributed locking"
// (2016), and earlier as the sequencer of Burrows, "The Chubby lock service"
// (OSDI 2006).
//
// Code that writes takes the token from its context, by the resource it guards:
//
//	tok, err := fence.ForResource(ctx, "account/42")
//	if err != nil {
//		return err // ErrNoToken: never write unfenced
//	}
//	// UPDATE ... SET ..., fence_token = $1 WHERE id = $2 AND fence_token <= $1
//
// The package imports the standard library only, so a store adapter that uses
// it links neither Redis nor Temporal.
package fence
