// Package interceptor guards Temporal activities: it runs each logical operation to a
// result once, keeps two workers from working on the same thing, and gives the body a
// fencing token by which a database refuses whoever has lost its lease. It is an adapter
// of primitives.Guard, registered on a worker.
//
// Temporal runs an activity at least once. An attempt that timed out may still be
// running; a crash can fall between an effect and its report; two workflows can ask for
// the same work. Name the activities for which that matters:
//
//	kit, err := interceptor.New(interceptor.Options{
//		Redis: rdb,
//		Guards: []interceptor.Guard{
//			interceptor.For(acts.AnalyzeBatch, interceptor.Policy{
//				Scope:    interceptor.ScopeNamespace, // once, whichever workflow asks
//				Key:      interceptor.KeyFrom(func(in BatchInput) any { return in.BatchID }),
//				Resource: interceptor.ResourceFrom(func(in BatchInput) string { return "batch/" + in.BatchID }),
//			}),
//		},
//	})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{kit.Plugin()}})
//
// or, without the plugin, worker.Options{Interceptors: []interceptor.WorkerInterceptor{kit}}
// and Options.DataConverter, if the client has one of its own.
//
// # Key, scope, resource
//
// The key says what is the same operation. The default, [ScopeExecution], is one call
// with its retries: the same call made twice by a workflow runs twice, also under one
// ActivityID. It is told by what the server keeps of the call, and no size, shape or
// release of the input changes it. The wider scopes make the key of Temporal's namespace,
// the activity type, the scope's ids and the input, or the part of it that [KeyFrom]
// picks; never of the attempt. [ScopeNamespace] is a business key: one result for
// everybody, for as long as Retention. Continue-as-new makes a new run, so a monthly fee
// under ScopeNamespace is charged in the first month only: put the month into the key. A
// workflow can set the key of one call itself: see [WithKey].
//
// A struct's field at its zero value counts as no field, so that a release may add one.
// Beside a picked key the rest of the input must be equal, too, or the call fails as
// [TypeMismatch]; Policy.Compare says otherwise for what is volatile.
//
// The resource says what the operation changes. Operations on one resource run one after
// another and share its fencing tokens, so use one name for everything that writes the
// same rows.
//
// What cannot be keyed safely in a wider scope, or in a local activity (NaN, invalid UTF-8, an untyped number of
// 2^53 or more, a struct that shows nothing, an empty key) fails the activity with
// [TypeKeyError] before the body runs.
//
// # Local activities
//
// A local activity has no id that would identify it, so its call is identified in
// workflow code, by its input and its number among equal calls of the run, in a header
// that stands in no history. Register the interceptor as a plugin, or on the worker that
// runs both; the functions of Policy.Key, Compare and Resource then run in workflow code,
// and must be pure. The body sees fields that JSON does not show (unexported ones, say):
// without a Key such an argument is refused as [TypeKeyError], which names the field. An
// attempt takes over from one in the same process only.
//
// # What a call meets
//
// If the operation is done, its stored payloads are returned as they were encoded, and
// the body does not run. If another call is at work, the attempt fails with [TypeBusy],
// benign, with a NextRetryDelay of what is left of that one's lease, or, with unlimited
// attempts, of about as long as the call has waited so far, if that is less; or it
// waits, under Policy.Wait. Calls of other operations on one resource come back one after
// another: each is given a turn behind those who were refused before, as long as its body
// will likely take. A turn is advice, and a newcomer may be quicker; so limited attempts
// must be as many as the callers that may meet. A retry of the same call takes over at once from the
// attempt that Temporal has given up, with a higher token: the old attempt's context
// ends, and its writes are refused by whatever checks tokens. If Redis cannot answer,
// the attempt fails with [TypeUnavailable] and the body does not run.
//
// An attempt that Temporal has given up before it began, in the socket of a frozen worker
// say, does not begin: it would get the highest token. If an attempt comes late by the
// local clock, Temporal is asked, and its answer counts; see [ErrGivenUp].
//
// # What a body may do
//
// Take the token with fence.FromContext, or leave that to package pgxfence. Stop when
// the context ends: a lost lease is a cause that matches fence.ErrLeaseLost. Send
// [IdempotencyKey] to those who take one. Heartbeat as ever: the kit never does it for
// the body, because a heartbeat without details wipes the last ones. Return
// activity.ErrResultPending, and have somebody else [Interceptor.Complete] it; see
// [Pending]. Errors go to Temporal as they are, never wrapped, and let the next attempt
// run the body again; a result is stored even after the attempt's deadline.
//
// # What was undone
//
// In a saga, a compensation takes back what a step has done. If the step has a business
// key, its record says that it is done, so the same saga submitted again would be replayed
// what was taken back. The body of the compensation says what it undoes:
//
//	func (a *Bank) UndoWithdraw(ctx context.Context, t Transfer) error {
//		undone, err := interceptor.Undo(ctx, a.Withdraw, t)
//		if err != nil {
//			return err
//		}
//		// Take back what undone.Key is known by, once.
//	}
//
// When the compensation completes, the withdrawal is undone in the same step: its memo is
// dropped, the next call runs, and a result of the old run that comes late is refused. A
// compensation that fails or loses its lease to somebody undoes nothing, and one whose end
// cannot be stored fails, so that it is repeated. Guard it under the resource of the step
// and in the default scope: see [Undo] for the rules.
//
// A run after that is something new to everybody else, too: its Attempt.Key and its
// [IdempotencyKey] are made of the token under which the operation was undone, so neither a
// payment API nor a ledger takes it for the old one. Keys that a body makes up itself must
// do the same. Undone.Key and Undone.IdempotencyKey are those of the old run: by them the
// compensation finds out what there is to take back.
//
// Redis remembers what was undone for the Retention of the compensation, or of what is left
// of the step's record if that is longer; aborted runs, Clear and Forget leave it as it is.
// Once Redis has forgotten, the step runs under its first key again: a payment API, Once and
// Policy.Ledger then answer with what was taken back, and no money moves. So keep it for
// longer than anybody submits the same again; after a loss of Redis's data, submit with a
// new business key, or delete the undone rows of fencekit.ledger.
//
// Two sagas with one business key must not run at a time: what one undoes, the other goes
// on with. Make the workflow's id of the business key. An attempt of the old step that
// begins only after the undo, though Temporal has given it up, runs as any new call does.
//
// # Order of interceptors
//
// The SDK calls interceptors in the order of the list. The key is made from the
// arguments as this one sees them, so what changes arguments goes before it if the key
// shall follow, and so does a tracing interceptor whose span shall get the attributes.
// What stands behind it does not run on a replay, and sees the token. A local activity is
// keyed where its call leaves the workflow, and there the SDK goes through the list from
// its end: what changes the arguments of local calls goes behind this one, or the key does
// not see it.
//
// What looks at results, or changes them (redaction), goes behind it: it gets the body's
// own value, and what it returns is what is stored, replayed and sent. Before it, the
// result of a guarded activity is a *commonpb.Payloads, on a run and on a replay alike: it
// has been encoded already, and a codec that encrypts does not give the same bytes twice.
// [Interceptor.DecodeResult] reads it there. A changed result then reaches Temporal only;
// Redis keeps the whole one.
//
// # Seen from outside
//
// Metrics ([MetricCalls] and its neighbours) go through the worker's metrics handler,
// attributes on the current OpenTelemetry span, and a line for each event to the
// activity's logger. None of them shows a part of the input. A replay is
// fencekit_calls{outcome="replayed"}; Options.Observer is told the same.
package interceptor
