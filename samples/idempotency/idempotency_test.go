package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func TestAJobIsDoneOnce(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{})
	var out strings.Builder
	require.NoError(t, run(t.Context(), s.Redis, t.TempDir(), &out))
	require.Regexp(t, `delivered +begun +mail-1
delivered again +replayed +mail-1
ten at once +1 begun, 9 replayed
2 orders, 12 deliveries, 2 mails`, out.String())
}
