package interceptor_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// sealing is a codec that encrypts whole payloads with AES-GCM under a random nonce:
// the same value never looks the same twice.
type sealing struct {
	gcm   cipher.AEAD
	binds bool   // take the workflow's id as associated data
	to    string // the id that it is bound to
}

func newSealing(binds bool) *sealing {
	block, err := aes.NewCipher([]byte("0123456789abcdef"))
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &sealing{gcm: gcm, binds: binds}
}

// binding is a sealing that the SDK binds to a serialization context.
type binding struct{ *sealing }

func (b binding) WithSerializationContext(sc converter.SerializationContext) converter.PayloadCodec {
	bound := *b.sealing
	switch c := sc.(type) {
	case converter.ActivitySerializationContext:
		bound.to = c.WorkflowID
	case converter.WorkflowSerializationContext:
		bound.to = c.WorkflowID
	}
	return binding{&bound}
}

func (s *sealing) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		text, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		nonce := make([]byte, s.gcm.NonceSize())
		_, _ = rand.Read(nonce)
		out[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/sealed")},
			Data:     s.gcm.Seal(nonce, nonce, text, []byte(s.to)),
		}
	}
	return out, nil
}

func (s *sealing) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != "binary/sealed" {
			out[i] = p
			continue
		}
		n := s.gcm.NonceSize()
		text, err := s.gcm.Open(nil, p.Data[:n], p.Data[n:], []byte(s.to))
		if err != nil {
			return nil, err
		}
		out[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(text, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// converter is the SDK's default one with the codec on it.
func (s *sealing) converter() converter.DataConverter {
	if s.binds {
		return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), binding{s})
	}
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), s)
}

// dial replaces the client of e, and the converter in its options.
func (e *env) dial(data converter.DataConverter, edits ...func(*client.Options)) {
	e.Helper()
	s, err := sharedTemporal()
	require.NoError(e, err)
	e.client = s.ClientForTest(e, append([]func(*client.Options){func(o *client.Options) {
		o.Logger, o.DataConverter = e.logs, data
	}}, edits...)...)
	e.opts.DataConverter = data
}

// dialFailures is dial, for the failure converter; nil is the SDK's.
func (e *env) dialFailures(failures converter.FailureConverter) {
	e.Helper()
	e.dial(e.opts.DataConverter, func(o *client.Options) { o.FailureConverter = failures })
	e.opts.FailureConverter = failures
}
