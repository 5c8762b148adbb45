package scheduler

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatADirectoryFetchesIsNamedByDigest(t *testing.T) {
	sha := "sha256:" + strings.Repeat("0a", 32)
	const pin = "annotations: {wherry.dev/pin: commit}, "
	for name, c := range map[string]struct {
		annotation, onType, manifests string
		failure                       string // empty where it is rendered
	}{
		"a digest":                      {"wherry.dev/adapter: directory", "", `type: oci, repo: "oci://r.example/eye", digest: "` + sha + `"`, ""},
		"a tag and a digest":            {"wherry.dev/adapter: directory", "", `repo: "oci://r.example:5000/eye:1@` + sha + `"`, ""},
		"a tag that is pinned":          {"wherry.dev/adapter: directory", pin, `type: oci, repo: "oci://r.example/eye:1"`, ""},
		"a tag":                         {"wherry.dev/adapter: directory", "", `repo: "oci://r.example/eye:1"`, "manifests.repo: the adapter directory fetches oci://r.example/eye:1, and only by digest (add digest: sha256:…, or wherry.dev/pin: commit to the ClusterType)"},
		"a digest cut short":            {"wherry.dev/adapter: directory", pin, `url: "oci://r.example/eye", digest: "sha256:0a"`, `manifests: "sha256:0a" is not a digest (write sha256: and 64 hexadecimal digits)`},
		"a digest that was forgotten":   {"wherry.dev/adapter: directory", pin, `url: "oci://r.example/eye@"`, `manifests: "" is not a digest (write sha256: and 64 hexadecimal digits)`},
		"no registry":                   {"wherry.dev/adapter: directory", pin, `type: oci, repo: "r.example/eye"`, `manifests.repo: "r.example/eye" names no repository of a registry (write oci://HOST/REPOSITORY)`},
		"no repository":                 {"wherry.dev/adapter: directory", pin, `repo: "oci://r.example"`, `manifests.repo: "oci://r.example" names no repository of a registry (write oci://HOST/REPOSITORY)`},
		"files in git":                  {"wherry.dev/adapter: directory", "", `repo: "https://example.com/app", branch: dev`, ""},
		"an engine that fetches itself": {"wherry.dev/adapter: flux", "", `type: oci, repo: "oci://r.example/eye:1"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			workload := strings.Replace(secondApp("b", c.annotation), `repo: "https://example.com/app", branch: dev, path: ./t1`, c.manifests, 1)
			ct := render(t, strings.Replace(basics, "name: edge, ", "name: edge, "+c.onType, 1), workload).ClusterTypes[0]
			if c.failure == "" {
				require.Empty(t, ct.Failures)
				require.Len(t, ct.Assignments, 1)
				return
			}
			require.Empty(t, ct.Assignments)
			require.Equal(t, NoDigest, ct.Failures[0].Reason)
			require.EqualError(t, ct.Failures[0].Err, `app.yaml:7: target "t1" of workload "b" (registration "reg"): `+c.failure)
		})
	}
}
