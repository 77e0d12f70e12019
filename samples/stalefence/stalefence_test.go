package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func TestStaleHolderIsRefused(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Postgres: true})
	var out strings.Builder
	require.NoError(t, run(t.Context(), s, &out))
	for _, line := range []string{
		`second  writes to Redis`, `second  writes to Postgres`,
		`first   is refused by Redis: token \d+, it has seen \d+`, `first   is refused by Postgres: token \d+, it has seen \d+`,
		`in the end: Redis "by second", Postgres "by second"`,
	} {
		require.Regexp(t, line, out.String())
	}
}
