package timeline

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However they lie, labels stay within bounds and do not overlap.
func TestPackKeepsLabelsApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const left, right = 100, 1000
		var labels []label
		for i := range rapid.IntRange(1, 20).Draw(t, "n") {
			labels = append(labels, label{
				x:    rapid.Float64Range(left, right).Draw(t, "x"),
				text: rapid.StringN(1, 40, -1).Draw(t, "text") + fmt.Sprint(i),
			})
		}
		rows := pack(labels, left, right)
		for i, a := range labels {
			require.GreaterOrEqual(t, a.left, float64(left))
			require.LessOrEqual(t, a.left+a.width(), float64(right)+1e-6)
			require.Less(t, a.row, rows)
			for _, b := range labels[i+1:] {
				require.True(t, a.row != b.row || a.left+a.width() < b.left || b.left+b.width() < a.left, "%v and %v", a, b)
			}
		}
	})
}
