package testsuite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModuleOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"github.com/acme/shop/internal/bank.(*Bank).Close-fm": "github.com/acme/shop/",
		"github.com/acme/shop.Close":                          "github.com/acme/shop",
		"shop/bank.Close":                                     "shop/bank",
		"main.Close":                                          "main",
		"github.com/acme/shop/bank.":                          "github.com/acme/shop/",
	} {
		require.Equal(t, want, moduleOf(path), path)
	}
}
