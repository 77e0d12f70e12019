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
	err := p.checkShown(args, explicit)
	if err == nil {
		l.taken, err = p.take(args, explicit)
	}
	if err == nil {
		l.Input, err = p.localInput(args, explicit)
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
func (p *plan) checkShown(args []any, explicit string) error {
	if p.Key.set || explicit != "" {
		return nil
	}
	in, err := p.keyable(args)
	if err == nil {
		err = primitives.CheckShown(in)
	}
	return err
}

// localInput is the digest of the arguments of a local activity.
func (p *plan) localInput(args []any, explicit string) (string, error) {
	whole, err := p.whole(args)
	switch {
	case explicit != "":
		return "explicit " + explicit + " " + whole.String(), nil
	case p.Key.set:
		picked, err := p.pickedKey(args)
		return picked + " " + whole.String(), err
	}
	return whole.String(), err
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
