package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

func TestAFailoverCostsSecondsAndNoToken(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out strings.Builder
	err := run(ctx, &out)
	if errors.Is(err, devstack.ErrNoRedis) && !devstack.RequireReal() {
		t.Skip(err)
	}
	require.NoError(t, err, out.String())
	require.Regexp(t, `granted again after .*, token \d+`, out.String())
}
