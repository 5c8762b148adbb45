package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestTextsOfAReportAreMadePlainAndBounded(t *testing.T) {
	id := bundle.ReportID(nil)
	r := bundle.Report{
		Kind: bundle.Event, State: bundle.Compliant,
		Observed: &bundle.ReportRelease{Digest: id, BaseCommit: "c0\x1bffee", EnvironmentCommit: "fa\x00cade"},
		Items:    []bundle.Item{{Assignment: "a-x", State: bundle.Compliant, Application: "ti\x07ll", SiteValues: "sha\x1b256"}},
	}
	require.NoError(t, Clean(&r))
	require.Equal(t, "c0ffee", r.Observed.BaseCommit)
	require.Equal(t, "facade", r.Observed.EnvironmentCommit)
	require.Equal(t, "till", r.Items[0].Application)
	require.EqualValues(t, "sha256", r.Items[0].SiteValues)

	r.Observed.EnvironmentCommit = strings.Repeat("f", 1<<20)
	require.NoError(t, Clean(&r))
	require.Len(t, r.Observed.EnvironmentCommit, bundle.MaxMessageBytes)
	r.Items[0].Application = strings.Repeat("a", MaxText+1)
	require.ErrorContains(t, Clean(&r), "item 0: a value has 513 bytes")
}
