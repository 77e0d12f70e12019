package interceptor_test

import (
	"context"
	"sync/atomic"

	sdk "go.temporal.io/sdk/interceptor"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// mender ends a fault when an attempt has failed by it.
type mender struct {
	sdk.WorkerInterceptorBase

	hit *atomic.Pointer[devstack.Hit]
}

func (m *mender) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	i := &mending{mender: m}
	i.Next = next
	return i
}

type mending struct {
	sdk.ActivityInboundInterceptorBase

	mender *mender
}

func (m *mending) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (any, error) {
	result, err := m.Next.ExecuteActivity(ctx, in)
	if hit := m.mender.hit.Swap(nil); hit != nil {
		hit.Remove()
	}
	return result, err
}
