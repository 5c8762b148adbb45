package publisher

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestAReleaseSumsUpWhatItsWorkloadsNeed(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		drone := &w.result.ClusterTypes[0].Assignments[0]
		drone.Files[2].Data = []byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{image: nginx}, {image: 'nginx@" + anyDigest + "'}]}\n")
		drone.Pinned = []scheduler.Pinned{{Type: "image", Reference: "docker.io/library/nginx@" + anyDigest, Digest: anyDigest, Size: 7}}
		drone.Version, drone.Application, drone.OnRemove, drone.DependsOn = "1.2.0", "shop", "orphan", []string{"db-live"}
		w.mustPublish()

		list := `{"type":"image","name":"docker.io/library/nginx","reference":"docker.io/library/nginx:latest","unresolved":true,"usedBy":["web-live"]}` + "\n" +
			`{"type":"image","name":"docker.io/library/nginx","reference":"docker.io/library/nginx@` + anyDigest + `","digest":"` + anyDigest + `","size":7,"usedBy":["web-live"]}` + "\n"
		v := w.verified("drone", "latest")
		require.Equal(t, bundle.Artifacts{Digest: digest.FromString(list), Count: 2, Bytes: 7}, v.Release.Artifacts)
		require.Equal(t, bundle.Artifacts{}, w.verified("large", "latest").Release.Artifacts)
		tree, err := published.OpenTree(t.Context(), w.repository("bundles/dev/drone"), v.Tree, v.Release.Content)
		require.NoError(t, err)
		defer tree.Close()
		web := tree.Assignments[slices.IndexFunc(tree.Assignments, func(a bundle.Assignment) bool { return a.Name == "web-live" })]
		require.Equal(t, []string{"1.2.0", "shop", "orphan", "db-live"}, append([]string{web.Version, web.Application, web.OnRemove}, web.DependsOn...))

		before := w.state()
		outcomes, _ := w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])
		require.Equal(t, before, w.state())

		drone.Pinned[0].Size = 8
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Equal(t, int64(8), w.verified("drone", "latest").Release.Artifacts.Bytes)
	})
}

func TestWhatIsHeldStillNeedsWhatItNeeded(t *testing.T) {
	w := newWorld(t, "layout")
	drone := w.clusterType("drone")
	for i := range drone.Assignments {
		drone.Assignments[i].Files[2].Data = []byte(fluxGitRepository("https://example.com/app", "branch: dev"))
		drone.Assignments[i].Pinned = []scheduler.Pinned{{Type: "git", Reference: "https://example.com/app#dev", Digest: "sha1:12", Size: 7}}
		drone.Assignments[i].Version = "1.0"
	}
	w.mustPublish()
	for i := range drone.Assignments {
		drone.Assignments[i].Pinned[0].Digest = "sha1:34"
	}
	w.fail("drone", "db-live")
	w.mustPublish()
	i, err := catalog.Inspect(t.Context(), oci.Reference{Location: w.loc, Repository: "bundles/dev/drone"}, w.opts.OCI)
	require.NoError(t, err)
	artifact := bundle.Artifact{Type: "git", Name: "example.com/app", Reference: "https://example.com/app#dev", Digest: "sha1:12", Size: 7, UsedBy: []string{"db-live"}}
	rendered := artifact
	rendered.Digest, rendered.UsedBy = "sha1:34", []string{"web-live"}
	require.Equal(t, []bundle.Artifact{artifact, rendered}, i.Artifacts)
	require.Equal(t, "1.0", i.Assignments[0].Version)
	require.NotNil(t, i.Assignments[0].HeldFrom)
}

func TestWhatAsksForPinsIsNotPublishedWithoutThem(t *testing.T) {
	w := newWorld(t, "layout")
	w.result.ClusterTypes[0].Annotations = map[string]string{scheduler.PinAnnotation: scheduler.PinCommit}
	w.result.ClusterTypes[0].Assignments[0].Files[2].Data = []byte(fluxGitRepository("https://example.com/app", "branch: dev"))
	p, err := w.publish()
	require.NoError(t, err)
	require.Equal(t, releases.OutcomeFailed, row(t, p, "drone").Result)
	require.Equal(t, "annotation wherry.dev/pin: https://example.com/app#dev, which web-live names, is not resolved", row(t, p, "drone").Reason)
	require.Equal(t, releases.OutcomePublished, row(t, p, "large").Result)
}

func TestTheListSaysWhatADirectoryFetches(t *testing.T) {
	w := newWorld(t, "layout")
	drone := &w.result.ClusterTypes[0].Assignments[0]
	drone.Adapter, drone.Manifests = "directory", map[string]string{"type": "oci", "repo": "oci://r.example/models/eye", "digest": anyDigest}
	// A Flux source of the same name is for another reader.
	drone.Files[2].Data = []byte("apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: x}\nspec: {url: oci://r.example/models/eye, ref: {tag: '1'}}\n")
	w.mustPublish()
	reference := oci.Reference{Location: w.loc, Repository: "bundles/dev/drone"}
	of := func() bundle.Assignment {
		i, err := catalog.Inspect(t.Context(), reference, w.opts.OCI)
		require.NoError(t, err)
		return i.Assignments[slices.IndexFunc(i.Assignments, func(a bundle.Assignment) bool { return a.Name == drone.Name })]
	}
	before := of()
	require.Equal(t, []bundle.FetchedArtifact{{Reference: "oci://r.example/models/eye@" + anyDigest, Digest: anyDigest}}, before.Fetched)

	other := digest.FromString("a newer model")
	drone.Manifests["digest"], drone.Manifests["tag"] = other.String(), "2"
	outcomes, _ := w.mustPublish()
	require.Equal(t, releases.OutcomePublished, outcomes["drone"])
	after := of()
	require.Equal(t, []bundle.FetchedArtifact{{Reference: "oci://r.example/models/eye:2", Digest: other}}, after.Fetched)
	require.Equal(t, before.Content, after.Content, "no file differs")
	require.NotEqual(t, before.Desired(), after.Desired())

	delete(drone.Manifests, "digest")
	p, err := w.publish()
	require.NoError(t, err)
	require.Equal(t, "web-live: manifests.repo of the workload: oci://r.example/models/eye:2 has no digest, and the adapter directory fetches by digest only",
		row(t, p, "drone").Reason)
	drone.Pinned = []scheduler.Pinned{{Type: "oci", Reference: "oci://r.example/models/eye:2", Digest: anyDigest}}
	w.mustPublish()
	require.Equal(t, digest.Digest(anyDigest), of().Fetched[0].Digest)
}

const anyDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func fluxGitRepository(url, ref string) string {
	return "apiVersion: source.toolkit.fluxcd.io/v1beta2\nkind: GitRepository\nmetadata:\n  name: app\nspec:\n  url: " + url + "\n  ref:\n    " + ref + "\n"
}
