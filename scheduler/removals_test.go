package scheduler

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBoundOnRemovals(t *testing.T) {
	for spec, c := range map[string]struct {
		text          string
		few, tooMany  int // of 10
		fewOfTwo, two bool
	}{
		"{}":                  {"a third, or one", 3, 4, false, true},
		"{maxRemoved: 0}":     {"0", 0, 1, true, true},
		"{maxRemoved: 5}":     {"5", 5, 6, false, false},
		"{maxRemoved: 50%}":   {"50 %", 5, 6, false, true},
		"{maxRemoved: '20%'}": {"20 %", 2, 3, true, true},
		"{maxRemoved: 100%}":  {"100 %", 10, 11, false, false},
	} {
		m := NewModel("dev")
		require.NoError(t, load(m, "", "a.yaml", "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: x}\nspec: "+spec+"\n"), spec)
		require.Equal(t, c.text, m.maxRemoved.String(), spec)
		require.False(t, m.maxRemoved.Exceeded(c.few, 10), spec)
		require.True(t, m.maxRemoved.Exceeded(c.tooMany, 10), spec)
		require.Equal(t, c.fewOfTwo, m.maxRemoved.Exceeded(1, 2), spec)
		require.Equal(t, c.two, m.maxRemoved.Exceeded(2, 2), spec)
	}
	for _, value := range []string{"many", "-1", "0.5", "true", "120%", "'%'", "null", "[1]"} {
		err := load(NewModel("dev"), "", "a.yaml", "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: x}\nspec: {maxRemoved: "+value+"}\n")
		require.ErrorContains(t, err, "a.yaml:4: spec.maxRemoved must be a number such as 5, or a share such as 20%, not ", value)
	}
}
