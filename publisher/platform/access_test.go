package platform

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

// A registration's server at a private address is asked if the platform itself names the host, or allows it.
func TestWhatAPlatformLetsOthersReach(t *testing.T) {
	asked := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for _, test := range []struct {
		name, spec string
		source     Source
		reached    bool
	}{
		{"nobody names it", "{}", Source{}, false},
		{"another port of the host", "{registry: 'oci://127.0.0.1:1/x'}", Source{}, false},
		{"it is allowed", "{sources: {allowPrivate: ['" + host + "']}}", Source{}, true},
		{"its network is allowed", "{sources: {allowPrivate: ['127.0.0.0/8']}}", Source{}, true},
		{"the platform's registry is there", "{registry: 'oci://" + host + "/x'}", Source{}, true},
		{"a workspace's repositories are there", "{workspaces: [{name: team, repositories: ['" + server.URL + "']}]}", Source{}, true},
		{"the settings name it", "{}", Source{Named: []string{"oci://" + host + "/edge"}}, true},
		{"a mirror leads there", "{}", Source{Mirrors: map[string]string{"https://elsewhere.example": server.URL}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked.Store(0)
			test.source.Environment = "dev"
			test.source.Platform = gittest.WriteFiles(t, filepath.Join(t.TempDir(), "platform"), map[string]string{"p.yaml": fmt.Sprintf(`apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: p}
spec: %s
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: app}
spec: {workspace: team, workload: {repo: "%s/app", branch: main}}
`, test.spec, server.URL)})
			loaded, err := Load(t.Context(), test.source)
			require.NoError(t, err)
			require.Len(t, loaded.Unread, 1)
			require.Equal(t, !test.reached, errors.As(loaded.Unread[0].Err, new(*egress.RefusedError)), loaded.Unread[0].Err)
			require.Equal(t, test.reached, asked.Load() > 0)
		})
	}
}

func TestAMistakeInAllowPrivateIsAnError(t *testing.T) {
	dir := gittest.WriteFiles(t, filepath.Join(t.TempDir(), "platform"), map[string]string{
		"p.yaml": "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: p}\nspec: {sources: {allowPrivate: ['https://git.plant-7']}}\n",
	})
	_, err := Load(t.Context(), Source{Platform: dir, Environment: "dev"})
	require.ErrorContains(t, err, `spec.sources.allowPrivate of the Platform: "https://git.plant-7": it is neither a host nor a network`)
}
