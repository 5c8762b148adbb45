package publisher

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
)

func TestPublishingEqualContentChangesNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		outcomes, first := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomePublished, "small": releases.OutcomePublished, "record": releases.OutcomePublished}, outcomes)
		require.NoError(t, w.complete())
		before := w.state()

		w.now = w.now.Add(time.Hour)
		outcomes, second := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomeUnchanged}, outcomes)
		require.Equal(t, before, w.state())
		require.Equal(t, row(t, first, "drone").Digest, row(t, second, "drone").Digest)
		require.Equal(t, first.Record.Digest, second.Record.Digest)
	})
}

func TestOnlyWhatChangedIsPublished(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, first := w.mustPublish()
		w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v2")
		outcomes, second := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		require.Equal(t, row(t, first, "drone").Sequence+1, row(t, second, "drone").Sequence, "the clock stood still")
		require.NoError(t, w.complete())

		record := w.environmentRecord()
		for _, ct := range second.ClusterTypes {
			require.Equal(t, ct.Digest, record.ClusterTypes[ct.ClusterType])
		}
		old := w.verified("drone", (bundle.Release{Sequence: row(t, first, "drone").Sequence}).Tag())
		require.Equal(t, row(t, first, "drone").Digest, old.Descriptor.Digest, "the earlier release stays")
	})
}

func TestANewCommitWithEqualContentSignsTheRecordAlone(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		w.result.BaseCommit = "decaf"
		outcomes, _ := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		require.Equal(t, "decaf", w.environmentRecord().BaseCommit)
	})
}

func TestWhatABundleHolds(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.opts.EnvironmentCommit, w.opts.Source = "beef", "https://example.org/platform"
		w.opts.Created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
		_, p := w.mustPublish()
		v := w.verified("drone", "latest")
		require.Equal(t, bundle.Release{
			Schema: 1, Platform: "edge", Environment: "dev", ClusterType: "drone", Sequence: w.now.Unix(), Number: 1,
			IssuedAt: w.now, ExpiresAt: w.now.Add(90 * 24 * time.Hour), BaseCommit: "c0ffee", EnvironmentCommit: "beef",
			Content: v.Release.Content,
		}, v.Release)
		require.Equal(t, row(t, p, "drone").Digest, v.Descriptor.Digest)
		require.Equal(t, v.Descriptor.Digest, w.verified("drone", v.Release.Tag()).Descriptor.Digest)

		require.Equal(t, bundle.MediaTypeBundle, v.Manifest.ArtifactType)
		require.NotEmpty(t, v.Manifest.Config.Data, "the release document travels in the manifest")
		require.Len(t, v.Manifest.Layers, 1)
		require.Equal(t, map[string]string{
			ocispec.AnnotationCreated: "2026-01-02T02:04:05Z", ocispec.AnnotationRevision: "c0ffee", ocispec.AnnotationTitle: "dev/drone",
			ocispec.AnnotationSource: "https://example.org/platform", ocispec.AnnotationVersion: v.Release.Tag(),
		}, v.Manifest.Annotations)

		root, err := os.OpenRoot(t.TempDir())
		require.NoError(t, err)
		body, err := w.repository("bundles/dev/drone").Fetch(t.Context(), v.Tree)
		require.NoError(t, err)
		require.NoError(t, bundle.Unpack(body, root, v.Release.Content))
		require.NoError(t, body.Close())
		require.Equal(t, 5, v.Release.Content.Files, "empty files are left out")
		data, err := root.ReadFile("web-live/platform-config.yaml")
		require.NoError(t, err)
		require.Equal(t, "text: v1\n", string(data))
		data, err = root.ReadFile(bundle.AssignmentsPath)
		require.NoError(t, err)
		list, err := bundle.ParseAssignments(data)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, []bundle.ConfigSource{{Name: "common"}}, list[0].Config, "where a ConfigMap stands is no content")
		require.NoError(t, list[0].Content.Validate())
	})
}

func TestStrictPublishesNothingUnlessEverythingCanBe(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		before := w.state()
		w.opts.Strict = true
		w.result.ClusterTypes[0].Assignments = nil // needs AllowEmpty
		w.result.ClusterTypes[1].Assignments[0] = assignment("large", "web-live", "v2")
		outcomes, _ := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeFailed, "large": releases.OutcomeSkipped, "small": releases.OutcomeSkipped, "record": releases.OutcomeSkipped}, outcomes)
		require.Equal(t, before, w.state())
	})
}

func TestAClusterTypeIsEmptiedOnPurposeOnly(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, first := w.mustPublish()
		require.Equal(t, 1, w.verified("small", "latest").Release.Content.Files, "one that never had assignments is released empty")
		w.result.ClusterTypes[0].Assignments = nil
		outcomes, p := w.mustPublish()
		require.Equal(t, releases.OutcomeFailed, outcomes["drone"])
		require.Contains(t, row(t, p, "drone").Reason, "--allow-empty")
		require.Equal(t, row(t, first, "drone").Digest, w.verified("drone", "latest").Descriptor.Digest)

		w.opts.AllowEmpty = true
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Equal(t, 1, w.verified("drone", "latest").Release.Content.Files)

		w.opts.AllowEmpty = false
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"], "an empty one may stay empty")
	})
}

func TestAClusterTypeThatLeftIsReleasedEmptyOnce(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, first := w.mustPublish()
		w.result.ClusterTypes = w.result.ClusterTypes[1:]
		outcomes, p := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeFailed, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		require.Contains(t, row(t, p, "drone").Reason, "--allow-empty")
		require.Equal(t, row(t, first, "drone").Digest, w.environmentRecord().ClusterTypes["drone"], "the record still knows it")
		require.Equal(t, []string{"drone"}, w.environmentRecord().Incomplete, "and says that it is not as it should be")

		w.opts.AllowEmpty = true
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Equal(t, 1, w.verified("drone", "latest").Release.Content.Files)
		require.NotContains(t, w.environmentRecord().ClusterTypes, "drone")

		w.opts.AllowEmpty = false
		outcomes, _ = w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomeUnchanged}, outcomes)
	})
}

func TestAReleaseIsRenewedInTheLastThirdOfItsLife(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.opts.ValidFor = 30 * 24 * time.Hour
		w.result.ClusterTypes[1].Annotations = map[string]string{"wherry.dev/valid-for": "300d"}
		w.mustPublish()
		for _, tc := range []struct {
			days int
			want releases.Outcome
		}{{19, releases.OutcomeUnchanged}, {20, releases.OutcomePublished}, {39, releases.OutcomeUnchanged}, {100, releases.OutcomePublished}} {
			w.now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).AddDate(0, 0, tc.days)
			outcomes, _ := w.mustPublish()
			require.Equal(t, tc.want, outcomes["drone"], "after %d days", tc.days)
			require.Equal(t, releases.OutcomeUnchanged, outcomes["large"], "after %d days", tc.days)
		}
		require.Equal(t, w.now.Add(w.opts.ValidFor), w.verified("drone", "latest").Release.ExpiresAt)
	})
}

// The platforms of a cluster type travel in its release, and others make a new one.
func TestPlatformsOfAClusterTypeAreReleased(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		require.Empty(t, w.verified("drone", "latest").Release.Platforms)
		for _, c := range []struct {
			value string
			want  releases.Outcome
		}{{"linux/arm64,linux/amd64", releases.OutcomePublished}, {"linux/amd64,linux/arm64", releases.OutcomeUnchanged}, {"linux/arm64", releases.OutcomePublished}, {"", releases.OutcomePublished}} {
			for i := range w.result.ClusterTypes {
				if w.result.ClusterTypes[i].Name == "drone" {
					w.result.ClusterTypes[i].Annotations = map[string]string{"wherry.dev/platforms": c.value}
				}
			}
			outcomes, _ := w.mustPublish()
			require.Equal(t, c.want, outcomes["drone"], c.value)
			if c.value == "linux/amd64,linux/arm64" {
				require.Equal(t, []string{"linux/amd64", "linux/arm64"}, w.verified("drone", "latest").Release.Platforms)
			}
		}
	})
}

func TestTheMomentOfTheNextRenewal(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		day := func(n int) time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).AddDate(0, 0, n) }
		w.opts.ValidFor = 30 * 24 * time.Hour
		w.result.ClusterTypes[1].Annotations = map[string]string{"wherry.dev/valid-for": "300d"}
		_, done := w.mustPublish()
		require.Equal(t, day(20), done.RenewAt)
		w.now = day(5)
		_, done = w.mustPublish()
		require.Equal(t, day(20), done.RenewAt, "what is unchanged is renewed when it has to be")
		w.now = done.RenewAt
		outcomes, done := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Equal(t, day(40), done.RenewAt)
		w.opts.RenewBefore = 24 * time.Hour
		_, done = w.mustPublish()
		require.Equal(t, day(49), done.RenewAt)
	})
}

func TestSequence(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		noon := w.now
		for _, step := range []struct {
			name string
			now  time.Time
			want int64
		}{
			{"the first follows the clock", noon, noon.Unix()},
			{"a clock that went back does not matter", noon.Add(-48 * time.Hour), noon.Unix() + 1},
			{"nor one before 1970", time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC), noon.Unix() + 2},
			{"and it follows the clock again", noon.Add(time.Minute), noon.Unix() + 60},
		} {
			w.now = step.now
			w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", step.name)
			_, p := w.mustPublish()
			require.Equal(t, step.want, row(t, p, "drone").Sequence, step.name)
		}
	})
}

func TestReleasesOfAnotherKeyAreNeitherTrustedNorDeleted(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, theirs := w.mustPublish()
		w.key = keytest.New(t)
		w.result.ClusterTypes[1].Assignments = nil
		outcomes, ours := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomeFailed, "small": releases.OutcomePublished, "record": releases.OutcomePublished}, outcomes,
			"what says itself that it has no assignments has none to lose")
		require.Len(t, ours.Warnings, 4, "one for each repository")
		require.Contains(t, ours.Warnings[0], "not a record that this key has signed")
		require.Equal(t, row(t, theirs, "drone").Sequence+1, row(t, ours, "drone").Sequence, "their tag is not taken away")
		require.Equal(t, row(t, ours, "drone").Digest, w.verified("drone", "latest").Descriptor.Digest)
	})
}

func TestATagProvesNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, first := w.mustPublish()
		w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v2")
		_, second := w.mustPublish()
		repo, old := w.repository("bundles/dev/drone"), w.verified("drone", (bundle.Release{Sequence: row(t, first, "drone").Sequence}).Tag())
		// Somebody who can write, but not sign, offers the old release as the newest.
		require.NoError(t, repo.Tag(t.Context(), old.Descriptor, "s0-9223372036854775807"))
		require.NoError(t, repo.Tag(t.Context(), old.Descriptor, "latest"))
		outcomes, third := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"], "its tag is set right")
		require.Equal(t, row(t, second, "drone").Digest, row(t, third, "drone").Digest)
		require.Equal(t, row(t, second, "drone").Digest, w.verified("drone", "latest").Descriptor.Digest)
	})
}

func TestALostTreeIsPublishedAgain(t *testing.T) {
	w := newWorld(t, "layout")
	w.mustPublish()
	v := w.verified("drone", "latest")
	require.NoError(t, os.Remove(filepath.Join(w.dir, "blobs", "sha256", v.Tree.Digest.Encoded())))
	require.Error(t, w.complete())
	outcomes, _ := w.mustPublish()
	require.Equal(t, releases.OutcomePublished, outcomes["drone"])
	require.Equal(t, v.Release.Sequence+1, w.verified("drone", "latest").Release.Sequence)
}

func TestAnotherPlatformsPrefixIsRefused(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		before := w.state()
		w.result.Platform = "other"
		_, err := w.publish()
		var bad *usage.Error
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, `of the platform "edge", this one is "other"`)
		require.Equal(t, before, w.state())
	})
}

func TestThePlatformsName(t *testing.T) {
	for _, tc := range []struct{ name, object, option, want string }{
		{"is the Platform object's", "edge", "other", "edge"},
		{"else the option", "", "other", "other"},
		{"else default", "", "", "default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "layout")
			w.result.Platform, w.opts.Platform = tc.object, tc.option
			_, p := w.mustPublish()
			require.Equal(t, tc.want, p.Platform)
			require.Equal(t, tc.want, w.verified("drone", "latest").Release.Platform)
		})
	}
}

func TestBadOptionsAndNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*world)
		want string
	}{
		{"an environment in upper case", func(w *world) { w.result.Environment = "Dev" }, "registries allow lower case only"},
		{"a ring with a slash", func(w *world) { w.opts.Rings = []string{"a/b"} }, `"a/b" is not a ring`},
		{"a ring of a platform that names none", func(w *world) { w.opts.Rings = []string{"canary"} }, `unknown ring "canary": the platform names no rings`},
		{"an empty ring", func(w *world) { w.opts.Rings = []string{""} }, `"" is not a ring`},
		{"a negative validity", func(w *world) { w.opts.ValidFor = -1 }, "is negative"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "layout")
			tc.set(w)
			_, err := w.publish()
			var bad *usage.Error
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, map[string]string{"writes": "0"}, w.state())
		})
	}
	w := newWorld(t, "layout")
	w.result.ClusterTypes[0].Name = "Drone"
	w.result.ClusterTypes[1].Annotations = map[string]string{"wherry.dev/valid-for": "soon"}
	outcomes, p := w.mustPublish()
	require.Equal(t, map[string]releases.Outcome{"Drone": releases.OutcomeFailed, "large": releases.OutcomeFailed, "small": releases.OutcomePublished, "record": releases.OutcomePublished}, outcomes)
	require.Contains(t, row(t, p, "Drone").Reason, "lower case only")
	require.Contains(t, row(t, p, "large").Reason, `"soon" is not a duration`)
}

func TestTheRecordIsAnArtifactLikeABundle(t *testing.T) {
	w := newWorld(t, "registry")
	_, p := w.mustPublish()
	repo := w.repository("environments/dev")
	desc, err := repo.Resolve(t.Context(), "latest")
	require.NoError(t, err)
	require.Equal(t, p.Record.Digest, desc.Digest)
	data, err := bundle.ReadBlob(t.Context(), repo, desc, bundle.MaxManifestBytes)
	require.NoError(t, err)
	var m ocispec.Manifest
	require.NoError(t, json.NewDecoder(bytes.NewReader(data)).Decode(&m))
	require.Equal(t, bundle.MediaTypeEnvironment, m.ArtifactType)
	record := w.environmentRecord()
	require.Equal(t, bundle.EnvironmentRecord{
		Schema: 1, Platform: "edge", Environment: "dev", Sequence: w.now.Unix(), IssuedAt: w.now, BaseCommit: "c0ffee",
		ClusterTypes: map[string]digest.Digest{
			"drone": row(t, p, "drone").Digest, "large": row(t, p, "large").Digest, "small": row(t, p, "small").Digest,
		},
	}, record)
}
