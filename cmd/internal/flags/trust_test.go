package flags

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestTrustDocumentsAreAtTheLocationOfABundle(t *testing.T) {
	for text, want := range map[string]string{
		"oci://127.0.0.1:5000/edge/bundles/dev/drone":    "oci://127.0.0.1:5000/edge",
		"oci://127.0.0.1:5000/a/b/environments/dev":      "oci://127.0.0.1:5000/a/b",
		"oci://127.0.0.1:5000/bundles/dev/drone:12":      "oci://127.0.0.1:5000",
		"oci-layout:/srv/out/bundles/dev/drone":          "oci-layout:/srv/out",
		"oci-layout:/srv/out/environments/dev":           "oci-layout:/srv/out",
		"oci://127.0.0.1:5000/bundles/x/bundles/dev/web": "oci://127.0.0.1:5000/bundles/x",
	} {
		ref, err := oci.ParseReference(text)
		require.NoError(t, err, text)
		loc, err := LocationOf(ref)
		require.NoError(t, err, text)
		parsed, err := oci.Parse(want)
		require.NoError(t, err, want)
		require.Equal(t, parsed, loc, text)
	}
	ref, err := oci.ParseReference("oci://127.0.0.1:5000/somewhere/else")
	require.NoError(t, err)
	_, err = LocationOf(ref)
	require.ErrorContains(t, err, "LOCATION/bundles/ENVIRONMENT/TYPE")
}
