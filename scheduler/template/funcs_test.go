package template

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/Masterminds/sprig/v3"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

func TestOnlyPureFunctionsAreThere(t *testing.T) {
	pure, suspicious := functions(), regexp.MustCompile(`env|rand|date|now|time|gen|crypt|uuid|shuffle|host|ago|AES|[pP]assw|^os[A-Z]`)
	for name := range sprig.TxtFuncMap() {
		if suspicious.MatchString(name) {
			require.NotContains(t, slices.Collect(maps.Keys(pure)), name)
		}
	}
}

// Templates of existing platforms may hold the name of the type of their data.
func TestTheDataHasKalypsosName(t *testing.T) {
	l := NewLibrary(nil, nil)
	d := Data{}
	got, err := NewEvaluator(l).evaluate(t.Context(), l.text("t", "{{ typeOf . }}", finding.Position{}), &Input{Data: &d, Config: configOf(map[string]any{})})
	require.NoError(t, err)
	require.Equal(t, "scheduler.dataType", string(got))
}
