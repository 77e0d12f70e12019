package primitives

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// What is shared is looked at once, however many ways lead there.
func TestSharedValuesAreCheckedOnce(t *testing.T) {
	t.Parallel()
	type node struct{ A, B any }
	last := &node{}
	for range 60 { // 2^60 ways
		last = &node{last, last}
	}
	require.NoError(t, CheckShown([]any{last}, 0))
	_, err := NewInput([]any{last}, 1<<16)
	require.ErrorContains(t, err, "over the limit")
}

// N11: what JSON does not show of an argument is named.
func TestFieldsThatJSONDoesNotShow(t *testing.T) {
	t.Parallel()
	type money struct {
		Currency string
		cents    int64
	}
	type base struct{ ID string }
	type other struct{ ID string }
	type unexported struct{ Name string }
	for path, v := range map[string]any{
		"/0/cents": money{"EUR", 1},
		"/0/Secret": struct {
			Secret string `json:"-"`
		}{"s"},
		"/0/Price/cents": struct{ Price *money }{},
		"/0/*/*/cents":   []map[string]money{},
		"/0/v/cents":     map[string]any{"v": &money{}},
		"/0/ID": struct {
			base
			other
		}{},
		"/0/User/username": url.URL{},
	} {
		var e *KeyError
		require.ErrorAs(t, CheckShown([]any{v}, 0), &e, path)
		require.Contains(t, e.Path+" ", path+" ")
	}
	shadowed := struct {
		base
		ID string
	}{}
	require.Error(t, CheckShown([]any{shadowed}, 0), "an outer field hides the embedded one")
	for _, v := range []any{
		nil, 1, "a", time.Now(), netip.MustParseAddr("::1"), big.NewInt(1), ptr(time.Now()), []time.Time{}, map[string]any{"t": time.Now()},
		timestamppb.Now(), &commonpb.Payload{}, struct{ unexported }{}, struct {
			mu sync.Mutex
			_  int
			A  int
			no struct{}
		}{}, json.RawMessage("1"), struct{ T reflect.Kind }{},
	} {
		require.NoError(t, CheckShown([]any{v}, 0), "%T", v)
	}
}

// A struct that an embedded field writes shows nothing else.
func TestAFormFromAnEmbeddedField(t *testing.T) {
	t.Parallel()
	type alone struct{ time.Time }
	type beside struct {
		time.Time
		Cents int64
	}
	type pointer struct {
		*pointerForm
		cents int64 //nolint:unused // that it is not shown is the point
	}
	require.NoError(t, CheckShown([]any{alone{}, ownBeside{}, &ownBeside{}, map[string]alone{}}, 0))
	for path, v := range map[string]any{
		"/0/Cents": beside{}, "/0/v/Cents": map[string]any{"v": &beside{}}, "/0/cents": pointer{}, "/0/*/Cents": []beside{},
	} {
		var e *KeyError
		require.ErrorAs(t, CheckShown([]any{v}, 0), &e, path)
		require.Equal(t, path, e.Path)
	}
}

type ownBeside struct {
	time.Time
	Cents int64
}

func (o ownBeside) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%d", o.Cents), nil }
