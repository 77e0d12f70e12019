package interceptor_test

import (
	"bytes"
	"encoding/gob"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

type (
	// reading is a value that JSON cannot carry, if it holds no number.
	reading struct{ Celsius float64 }
	// film is a large value with a short encoding: it is black.
	film []byte
)

// gobs is a user's payload converter, for readings and films.
type gobs struct{}

func (gobs) Encoding() string { return "binary/gob" }

func (gobs) ToPayload(value any) (*commonpb.Payload, error) {
	if f, ok := value.(film); ok {
		value = len(f)
	} else if _, ok := value.(reading); !ok {
		return nil, nil //nolint:nilnil // the SDK's word for a value of another's
	}
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(value)
	return &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/gob")}, Data: b.Bytes()}, err
}

func (gobs) FromPayload(p *commonpb.Payload, into any) error {
	from := gob.NewDecoder(bytes.NewReader(p.GetData()))
	f, ok := into.(*film)
	if !ok {
		return from.Decode(into)
	}
	var n int
	err := from.Decode(&n)
	*f = make(film, n)
	return err
}

func (gobs) ToString(p *commonpb.Payload) string { return fmt.Sprint(len(p.GetData()), " bytes") }

// binary is a data converter that writes messages as they are on the wire, with what this
// release does not know of them, and readings and films as gobs.
func binary() converter.DataConverter {
	return converter.NewCompositeDataConverter(
		converter.NewNilPayloadConverter(), converter.NewByteSlicePayloadConverter(), gobs{},
		converter.NewProtoPayloadConverter(), converter.NewProtoJSONPayloadConverter(), converter.NewJSONPayloadConverter())
}
