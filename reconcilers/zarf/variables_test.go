package zarf

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/reconcilers"
)

func TestVariablesArriveAsTheyAre(t *testing.T) {
	require.Empty(t, setVariables(reconcilers.Assignment{}))
	values := map[string]string{"dns": `a,b="c"`, "gateway.address": "10.0.0.1\nx", "empty": "", "quoted": `"q"`}
	var got map[string]string
	flags := pflag.NewFlagSet("zarf", pflag.ContinueOnError)
	flags.StringToStringVar(&got, "set-variables", nil, "") // as zarf has it
	require.NoError(t, flags.Parse(setVariables(reconcilers.Assignment{Values: values})))
	require.Equal(t, map[string]string{
		"WHERRY_SITE": "true", "DNS": values["dns"], "GATEWAY_ADDRESS": values["gateway.address"], "EMPTY": "", "QUOTED": `"q"`,
	}, got)
	require.NoError(t, flags.Parse(setVariables(reconcilers.Assignment{Values: map[string]string{"a": `say "x"`}})))
	require.Equal(t, `say "x"`, got["A"])
}
