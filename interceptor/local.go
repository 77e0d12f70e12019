package interceptor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/interceptor"

	"github.com/fencekit/fencekit-go/primitives"
)

// localHeader is the header that tells a local activity which call it is. The SDK keeps
// it, in memory only, for all attempts of the call.
const localHeader = "fencekit-call"

const localVersion = "fencekit/call/1"

// mostOfLocal is the largest input of a local activity that is hashed, in bytes of JSON. It
// is hashed in workflow code, which may take a second at most. Temporal takes no more of a
// regular one by default.
const mostOfLocal = 2 << 20

// localCall identifies a call of a local activity. The ids of local activities are no
// identity: they repeat beside those of regular ones, and attempts of one call can have
// different ones. So the call is told where the workflow's code makes it: by what it
// asks for, and by its number among the run's equal calls. Attempts share the caller's
// values, which a body may change, so what the policy takes from them is taken there too.
type localCall struct {
	Version string `json:"version"`
	Type    string `json:"type"`
	Input   string `json:"input"`  // digest of the arguments
	Number  int    `json:"number"` // among the run's calls of this type and input, from 1
	taken
	Refused string `json:"refused,omitempty"` // why the call has no safe key
}

// localCalls counts the local calls of one run, by type and input. Workflow code is
// replayed from its start, so the counts are the same each time.
type localCalls map[[2]string]int

// header identifies a call that workflow code makes, for an activity that is guarded. It
// never fails the workflow: what is wrong with the call is for the activity to say.
func (n localCalls) header(p *plan, name string, args []any, explicit string) *commonpb.Payload {
	l := localCall{Version: localVersion, Type: name}
	in := input{plan: p, args: args, most: mostOfLocal}
	var err error
	if l.taken, err = in.take(explicit); err == nil {
		l.Input, err = in.local(explicit)
	}
	if hidden := in.checkShown(explicit); hidden != nil {
		err = hidden
	}
	if err != nil {
		l.Refused = err.Error()
	}
	n[[2]string{name, l.Input}]++
	l.Number = n[[2]string{name, l.Input}]
	return l.payload()
}

func (l localCall) payload() *commonpb.Payload {
	text, err := json.Marshal(l)
	if err != nil { // of strings and numbers: never
		text = nil
	}
	return &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     text,
	}
}

// checkShown refuses arguments of which a local body sees more than JSON shows, unless the
// policy or the workflow says what counts.
func (in *input) checkShown(explicit string) error {
	if in.plan.Key.set || explicit != "" {
		return nil
	}
	list, err := in.plan.keyable(in.args)
	if err == nil {
		err = primitives.CheckShown(list, in.most)
	}
	return err
}

// local is the digest of the arguments of a local activity, and of what picks a key.
func (in *input) local(explicit string) (string, error) {
	digest, err := in.digest()
	whole := digest.Fingerprint().String()
	switch {
	case explicit != "":
		return "explicit " + explicit + " " + whole, nil
	case in.plan.Key.set:
		picked, err := in.pickedKey()
		return picked + " " + whole, err
	}
	return whole, err
}

// localFromHeader is the call that the workflow's code has made. A header that is not
// whole and of this version is no identity, and nothing stands for it.
func localFromHeader(ctx context.Context, name string) (l localCall, err error) {
	p, ok := sdk.Header(ctx)[localHeader]
	if !ok {
		return l, errors.New("a local activity is identified where its workflow calls it: register the interceptor for " +
			"workflows too, in worker.Options.Interceptors or as a plugin; in a test, use testsuite.New of this module")
	}
	return parseLocal(p.GetData(), name)
}

func parseLocal(text []byte, name string) (l localCall, err error) {
	fault := func(reason string) error { return fmt.Errorf("the header %s %s", localHeader, reason) }
	if json.Unmarshal(text, &l) != nil {
		return l, fault("is not what this interceptor writes")
	}
	switch {
	case l.Version != localVersion:
		return l, fault(fmt.Sprintf("is of version %.40q, not %q", l.Version, localVersion))
	case l.Type != name:
		return l, fault("is of a call of another activity")
	case l.Refused != "":
		return l, errors.New(l.Refused)
	case l.Input == "" || l.Number < 1:
		return l, fault("lacks the input or the number of the call")
	}
	return l, nil
}
