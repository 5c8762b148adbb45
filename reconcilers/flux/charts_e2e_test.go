//go:build e2e

package flux_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// newCharts serves an index of one version of the chart shop.
func newCharts(t *testing.T) *httptest.Server {
	t.Helper()
	const about = "apiVersion: v2\nname: shop\nversion: 6.1.0\n"
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "shop/Chart.yaml", Mode: 0o644, Size: int64(len(about))}))
	_, err := archive.Write([]byte(about))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	require.NoError(t, zip.Close())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/index.yaml":
			fmt.Fprint(w, "apiVersion: v1\nentries: {shop: [{apiVersion: v2, name: shop, version: 6.1.0, urls: [shop-6.1.0.tgz]}]}\n")
		case "/shop-6.1.0.tgz":
			_, _ = w.Write(packed.Bytes())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestChartsAreFetched(t *testing.T) {
	s := newSite(t)
	const text = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: $NAME-shop}
spec: {interval: 1h, url: $URL}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: $NAME-registry}
spec: {type: oci, url: oci://registry.invalid/charts}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: $NAME-shop}
spec: {interval: 1h, chart: shop, version: $VERSION, sourceRef: {kind: HelmRepository, name: $NAME-shop}}
`
	url := newCharts(t).URL
	of := func(version string) string {
		return strings.NewReplacer("$URL", url, "$VERSION", version).Replace(text)
	}
	a := s.Assignment(t, of("6.x"))
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, a.Content.String(), res.Revision, "charts are fetched, and nothing is released")
	require.True(t, res.Floating)

	s.Stands(t, s.Assignment(t, of("7.x")), bundle.Failed, "InvalidChartReference", "HelmChart/"+namespace+"/"+s.Name+"-shop: ")
	absent := s.Assignment(t, strings.Replace(of("6.x"), url, url+"/absent", 1))
	res = s.Observed(t, absent, s.R.Apply(t.Context(), absent), func(res reconcilers.Result) bool { // the chart may fail first
		return res.State == bundle.Failed && strings.Contains(res.Message, "HelmRepository/"+namespace+"/"+s.Name+"-shop: ")
	})
	require.NotEmpty(t, res.Reason)
	s.Removed(t, a)
}
