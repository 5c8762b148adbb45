package published

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestAnEnvironmentIsMissedWhereThereAreOthers(t *testing.T) {
	loc := oci.Location{Dir: "out"}
	for name, test := range map[string]struct {
		repositories []string
		want         string
	}{
		"nothing is there yet":        {nil, ""},
		"a trust document alone":      {[]string{"trust"}, ""},
		"what is not wherry's":        {[]string{"environments", "bundles/prod", "a/bundles/prod/edge"}, ""},
		"its record is there":         {[]string{"environments/dev", "environments/stage"}, ""},
		"a first release, unrecorded": {[]string{"bundles/dev/edge", "environments/stage"}, ""},
		"others alone": {
			[]string{"bundles/stage/edge", "environments/prod", "environments/stage", "trust"},
			"nothing was ever published in environment dev at oci-layout:out: it has prod, stage",
		},
	} {
		err := CheckEnvironment("dev", loc, test.repositories)
		if test.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.EqualError(t, err, test.want, name)
	}
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("environments/e%02d", i))
	}
	require.ErrorContains(t, CheckEnvironment("dev", loc, many), ": it has e00, e01, e02, e03, e04, e05, e06, e07, e08, e09 and 2 more")
}
