package airgap_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestAllTrustDocumentsTravelWithABundleOfAnEpoch(t *testing.T) {
	for _, tc := range []struct {
		name     string
		epoch    int64
		versions int64
	}{
		{"with a trust document", 1, 2},
		{"with a pinned key, a trust document being there", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from := oci.Location{Dir: filepath.Join(t.TempDir(), "layout")}
			documents, err := from.Repository(bundle.TrustRepository, oci.Options{})
			require.NoError(t, err)
			key, root, issued := agenttest.NewKey(), agenttest.NewKey(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			first := agenttest.NewTrust(drone.Platform, issued, root, key)
			require.NoError(t, first.Publish(t.Context(), documents))
			require.NoError(t, first.Next(issued).Publish(t.Context(), documents))
			d := agenttest.New(drone, 7, issued, map[string]string{"shop-main/a": "1"}, key)
			d.Release.Epoch = tc.epoch
			repo, err := from.Repository(drone.Repository(), oci.Options{})
			require.NoError(t, err)
			_, err = d.Publish(t.Context(), repo)
			require.NoError(t, err)

			var a, b bytes.Buffer
			require.NoError(t, export.Bundle(t.Context(), from, "dev", "drone", &a))
			require.NoError(t, export.Bundle(t.Context(), from, "dev", "drone", &b))
			require.Equal(t, a.Bytes(), b.Bytes(), "the same content, the same file")
			carried := opened(t, a.Bytes(), bundle.TrustRepository)
			var chain bundle.TrustChain
			for more := true; more; {
				chain, more, err = chain.Next(t.Context(), carried)
				require.NoError(t, err)
			}
			require.Len(t, chain, int(tc.versions))
			_, err = carried.Resolve(t.Context(), bundle.TrustTag(tc.versions+1))
			require.ErrorIs(t, err, errdef.ErrNotFound)
		})
	}
}
