package publisher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/copier"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

// mirror is a second destination, whose releases are those of w's key.
func (w *world) mirror(kind string) *world {
	m := newWorld(w.t, kind)
	m.key, m.now = w.key, w.now
	return m
}

// copyTo copies the environment dev.
func (w *world) copyTo(m *world, opts copier.Options) (*copier.Copied, error) {
	opts.From, opts.To = w.opts.OCI, m.opts.OCI
	return copier.Environment(w.t.Context(), w.loc, "dev", m.loc, opts)
}

func (w *world) mustCopyTo(m *world, opts copier.Options) *copier.Copied {
	w.t.Helper()
	done, err := w.copyTo(m, opts)
	require.NoError(w.t, err)
	return done
}

func (w *world) copyBundleTo(m *world, reference string, opts copier.Options) (*copier.Copied, error) {
	opts.From, opts.To = w.opts.OCI, m.opts.OCI
	return copier.Bundle(w.t.Context(), w.reference(reference), m.loc, opts)
}

// allTags maps all tags of the place to their manifests.
func (w *world) allTags() map[string]digest.Digest {
	w.t.Helper()
	all := map[string]digest.Digest{}
	for _, name := range []string{"bundles/dev/drone", "bundles/dev/large", "bundles/dev/small", "environments/dev", "trust"} {
		repo := w.repository(name)
		tags, err := repo.Tags(w.t.Context())
		require.NoError(w.t, err)
		for _, tag := range tags {
			desc, err := repo.Resolve(w.t.Context(), tag)
			require.NoError(w.t, err)
			all[name+":"+tag] = desc.Digest
		}
	}
	return all
}

func results(done *copier.Copied) map[string]releases.Outcome {
	all := map[string]releases.Outcome{}
	for _, i := range done.Items {
		all[i.Repository+":"+i.Tag] = i.Result
	}
	return all
}

func resultsAs(done *copier.Copied, want releases.Outcome) map[string]releases.Outcome {
	all := results(done)
	for name := range all {
		all[name] = want
	}
	return all
}

func refused(t *testing.T, err error, want bundle.Reason) {
	t.Helper()
	var refusal *bundle.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, want, refusal.Reason)
}

func TestACopyIsTheSameAndASecondOneWritesNothing(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{"registry": "layout", "layout": "registry"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, from)
			w.result.Rings = []string{"canary", "broad"}
			w.reads("c1", "f1")
			w.mustPublish()
			w.now, w.opts.Rings = w.now.AddDate(0, 0, 1), []string{"broad"}
			w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v2")
			w.mustPublish()
			w.now, w.opts.Rings = w.now.AddDate(0, 0, 1), nil
			w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v3")
			w.mustPublish() // now canary and latest of drone differ
			m := w.mirror(to)
			done := w.mustCopyTo(m, copier.Options{Keys: trustIn(w.key).Keys})
			require.Equal(t, resultsAs(done, copier.OutcomeCopied), results(done))
			require.Empty(t, done.Warnings)
			require.Len(t, done.Items, 5)

			want := w.allTags()
			maps.DeleteFunc(want, func(tag string, d digest.Digest) bool { // the first release of each
				named := slices.ContainsFunc(done.Items, func(i copier.Item) bool {
					return i.Digest == d || strings.HasSuffix(tag, bundle.SignatureTag(i.Digest))
				})
				return !named
			})
			require.Equal(t, want, m.allTags())
			require.NoError(t, m.complete())
			require.NotEmpty(t, m.ledger().Workloads)
			require.Equal(t, w.ledger(), m.ledger(), "the record's layer comes along")

			before := m.state()
			done = w.mustCopyTo(m, copier.Options{})
			require.Equal(t, resultsAs(done, releases.OutcomeUnchanged), results(done))
			require.Equal(t, before, m.state())
		})
	}
}

func TestACopyOfAnEnvironmentBringsItsDecisions(t *testing.T) {
	w := newWorld(t, "layout")
	w.publishes("v1")
	w.mustPublish()
	m := &world{t: t, loc: oci.Location{Dir: filepath.Join(t.TempDir(), "mirror")}}
	person := keytest.New(t)
	decide := func(loc oci.Location, action bundle.Action, at time.Time) {
		_, err := decisions.Write(t.Context(), loc, oci.Options{}, bundle.Decision{Action: action, Platform: "default", Environment: "dev"}, person, at)
		require.NoError(t, err)
	}
	decide(w.loc, bundle.Pause, w.now)
	repo := w.repository(bundle.EnvironmentRepository("dev"))
	desc, err := repo.Resolve(t.Context(), bundle.LatestTag)
	require.NoError(t, err)
	require.NoError(t, repo.Tag(t.Context(), desc, "gate-nonsense"))
	for _, want := range []int{1, 0} {
		done, err := decisions.CopyEnvironment(t.Context(), w.loc, "dev", m.loc, copier.Options{})
		require.NoError(t, err)
		require.Equal(t, want, done.Decisions)
		require.Contains(t, strings.Join(done.Warnings, "\n"), "gate-nonsense is passed over")
	}
	decide(m.loc, bundle.Resume, w.now.Add(time.Hour))
	done, err := decisions.CopyEnvironment(t.Context(), w.loc, "dev", m.loc, copier.Options{})
	require.NoError(t, err)
	require.Zero(t, done.Decisions, "the later one of the same person stays")
	found, err := decisions.Read(t.Context(), m.loc, oci.Options{}, "dev", nil)
	require.NoError(t, err)
	require.Len(t, found, 1)
	d, _, err := bundle.ReadDecision(found[0].Envelope)
	require.NoError(t, err)
	require.Equal(t, bundle.Resume, d.Action)
}

func TestOneBundleIsCopiedWithTheTagsThatNameIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	_, first := w.mustPublish()
	w.now = w.now.AddDate(0, 0, 1)
	w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v2")
	_, second := w.mustPublish()

	old, newest := row(t, first, "drone"), row(t, second, "drone")
	m := w.mirror("layout")
	done, err := w.copyBundleTo(m, "bundles/dev/drone@"+old.Digest.String(), copier.Options{})
	require.NoError(t, err)
	own := fmt.Sprintf("s0-%d", old.Sequence)
	require.Equal(t, own, done.Items[0].Tag)
	require.Empty(t, done.Items[0].Moving, "nothing moves for a release that no tag names")
	for _, ref := range []string{"bundles/dev/drone", "bundles/dev/drone/latest"} {
		done, err = w.copyBundleTo(m, ref, copier.Options{})
		require.NoError(t, err)
		require.Equal(t, newest.Digest, done.Items[0].Digest)
		require.Equal(t, []string{"latest"}, done.Items[0].Moving)
	}
	require.NoError(t, m.complete())

	for _, ref := range []string{"environments/dev", "environments/dev:latest"} {
		_, err = w.copyBundleTo(m, ref, copier.Options{})
		require.ErrorAs(t, err, new(*usage.Error))
	}
	_, err = w.copyBundleTo(m, "bundles/dev/none", copier.Options{})
	require.ErrorIs(t, err, errdef.ErrNotFound)
	_, err = copier.Environment(t.Context(), w.loc, "prod", m.loc, copier.Options{})
	require.ErrorIs(t, err, errdef.ErrNotFound)
}

func TestACopyRepairsWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	v := w.verified("drone", "latest")
	untag := func(part string) func(*testing.T, *world) {
		return func(t *testing.T, m *world) {
			file := filepath.Join(m.dir, "index.json")
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var index ocispec.Index
			require.NoError(t, json.Unmarshal(data, &index))
			before := len(index.Manifests)
			index.Manifests = slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool {
				return strings.HasPrefix(d.Annotations[ocispec.AnnotationRefName], "bundles/dev/drone/"+part)
			})
			require.Len(t, index.Manifests, before-1)
			data, err = json.Marshal(index)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, data, 0o600))
		}
	}
	for name, damage := range map[string]func(*testing.T, *world){
		"a signature's tag":  untag("sha256-"),
		"the release's tag":  untag("s0-"),
		"the moving tag":     untag("latest"),
		"a layer":            func(t *testing.T, m *world) { require.NoError(t, os.Remove(m.blob(v.Tree.Digest))) },
		"the manifest":       func(t *testing.T, m *world) { require.NoError(t, os.Remove(m.blob(v.Descriptor.Digest))) },
		"what was signed":    func(t *testing.T, m *world) { m.tagJunk("bundles/dev/drone", bundle.SignatureTag(v.Descriptor.Digest)) },
		"what latest names":  func(t *testing.T, m *world) { m.tagJunk("bundles/dev/drone", "latest") },
		"what its tag names": func(t *testing.T, m *world) { m.tagJunk("bundles/dev/drone", v.Release.Tag()) },
	} {
		t.Run(name, func(t *testing.T) {
			m := w.mirror("layout")
			w.mustCopyTo(m, copier.Options{})
			whole := m.allTags()
			damage(t, m)
			done := w.mustCopyTo(m, copier.Options{})
			want := resultsAs(done, releases.OutcomeUnchanged)
			want["bundles/dev/drone:"+v.Release.Tag()] = copier.OutcomeUpdated
			if name == "the manifest" {
				want["bundles/dev/drone:"+v.Release.Tag()] = copier.OutcomeCopied
			}
			require.Equal(t, want, results(done))
			require.Equal(t, whole, m.allTags())
			require.NoError(t, m.complete())
		})
	}
}

// tagJunk has a tag name something that nobody has signed.
func (w *world) tagJunk(repository, tag string) {
	w.t.Helper()
	repo := w.repository(repository)
	config := bundle.NewBlob("application/vnd.test.v1", []byte("junk"))
	data, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config.Descriptor, Layers: []ocispec.Descriptor{config.Descriptor}})
	require.NoError(w.t, err)
	m := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	for _, b := range []bundle.Blob{config, m} {
		require.NoError(w.t, releases.PushBlob(w.t.Context(), repo, b))
	}
	require.NoError(w.t, repo.Tag(w.t.Context(), m.Descriptor, tag))
}

func TestATagMovesForwardOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	m := w.mirror("layout")
	m.now = w.now.AddDate(0, 0, 1)
	m.mustPublish() // to the mirror, behind w's back
	newer := m.verified("drone", "latest")
	done := w.mustCopyTo(m, copier.Options{Keys: trustIn(w.key).Keys})
	require.Equal(t, 4, done.Kept())
	require.Equal(t, []copier.KeptTag{{Tag: "latest", Newer: newer.Release.Tag(), Digest: newer.Descriptor.Digest}}, done.Items[0].Kept)
	require.Equal(t, newer.Descriptor, m.verified("drone", "latest").Descriptor)
	older := w.verified("drone", "latest")
	require.Equal(t, older.Descriptor, m.verified("drone", older.Release.Tag()).Descriptor, "what is older is there all the same")

	done = w.mustCopyTo(m, copier.Options{Force: true})
	require.Zero(t, done.Kept())
	require.Equal(t, older.Descriptor, m.verified("drone", "latest").Descriptor)

	w.now = m.now.AddDate(0, 0, 1)
	w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v2")
	w.mustPublish()
	require.Zero(t, w.mustCopyTo(m, copier.Options{}).Kept())
	require.Equal(t, w.verified("drone", "latest").Descriptor, m.verified("drone", "latest").Descriptor)
}

func TestAStrangersReleaseAtTheDestinationDoesNotCountWhereKeysAreGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	stranger := newWorld(t, "layout")
	stranger.now = w.now.AddDate(10, 0, 0)
	stranger.mustPublish()
	require.Equal(t, 4, w.mustCopyTo(stranger, copier.Options{}).Kept(), "who does not ask takes it for newer")
	require.Zero(t, w.mustCopyTo(stranger, copier.Options{Keys: trustIn(w.key).Keys}).Kept())
	stranger.key = w.key
	require.Equal(t, w.verified("drone", "latest").Descriptor, stranger.verified("drone", "latest").Descriptor)
}

func TestWhatIsNotTrustedIsNotCopied(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		want   bundle.Reason
		keys   bool
		damage func(*world)
	}{
		{"another key", bundle.UntrustedKey, true, func(w *world) { w.key = keytest.New(w.t) }},
		{"junk under latest", bundle.BadContent, false, func(w *world) { w.tagJunk("bundles/dev/drone", "latest") }},
		{"junk as a signature", bundle.Unsigned, false, func(w *world) {
			empty, _ := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: ocispec.DescriptorEmptyJSON})
			b, repo := bundle.NewBlob(ocispec.MediaTypeImageManifest, empty), w.repository("bundles/dev/drone")
			require.NoError(w.t, releases.PushBlob(w.t.Context(), repo, bundle.Blob{Descriptor: ocispec.DescriptorEmptyJSON, Data: ocispec.DescriptorEmptyJSON.Data}))
			require.NoError(w.t, releases.PushBlob(w.t.Context(), repo, b))
			require.NoError(w.t, repo.Tag(w.t.Context(), b.Descriptor, bundle.SignatureTag(w.verified("drone", "latest").Descriptor.Digest)))
		}},
		{"the release of another type", bundle.WrongClusterType, true, func(w *world) { w.transplant("large", "drone", "latest") }},
		{"a release that lacks signatures", bundle.BelowThreshold, false, func(w *world) {
			v := w.verified("drone", "latest")
			repo := w.repository("bundles/dev/drone")
			require.NoError(w.t, repo.Tag(w.t.Context(), v.Descriptor, "pending-"+strings.TrimPrefix(v.Release.Tag(), "s")))
			w.dropTag("bundles/dev/drone/" + v.Release.Tag())
		}},
		{"a layer that was changed", bundle.DigestMismatch, false, func(w *world) {
			layer := w.blob(w.verified("drone", "latest").Tree.Digest)
			data, err := os.ReadFile(layer)
			require.NoError(w.t, err)
			data[len(data)-1] ^= 1
			require.NoError(w.t, os.WriteFile(layer, data, 0o600))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "layout")
			w.mustPublish()
			tc.damage(w)
			opts := copier.Options{}
			if tc.keys {
				opts.Keys = trustIn(w.key).Keys
			}
			m := w.mirror("layout")
			_, err := w.copyTo(m, opts)
			refused(t, err, tc.want)
			if tc.want != bundle.DigestMismatch {
				require.NoFileExists(t, filepath.Join(m.dir, "index.json"), "nothing was written")
			}
			for tag := range m.allTags() {
				require.NotContains(t, tag, "drone")
			}
		})
	}
}

// transplant puts a release, with its signature, where that of another type belongs.
func (w *world) transplant(from, to, tag string) {
	w.t.Helper()
	v, src, dst := w.verified(from, tag), w.repository("bundles/dev/"+from), w.repository("bundles/dev/"+to)
	sig, err := src.Resolve(w.t.Context(), bundle.SignatureTag(v.Descriptor.Digest))
	require.NoError(w.t, err)
	require.NoError(w.t, dst.Tag(w.t.Context(), sig, bundle.SignatureTag(v.Descriptor.Digest)))
	require.NoError(w.t, dst.Tag(w.t.Context(), v.Descriptor, tag))
}

// dropTag takes a ref name out of a layout.
func (w *world) dropTag(name string) {
	w.t.Helper()
	file := filepath.Join(w.dir, "index.json")
	data, err := os.ReadFile(file)
	require.NoError(w.t, err)
	require.Contains(w.t, string(data), `"`+name+`"`)
	data = bytes.ReplaceAll(data, []byte(`"`+name+`"`), []byte(`"elsewhere/tag"`))
	require.NoError(w.t, os.WriteFile(file, data, 0o600))
}

func TestAnotherPlatformsMirrorIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	m := w.mirror("layout")
	m.result.Platform = "other"
	m.mustPublish()
	before := m.state()
	_, err := w.copyTo(m, copier.Options{})
	require.ErrorAs(t, err, new(*usage.Error))
	require.ErrorContains(t, err, `is of the platform "other"`)
	require.Equal(t, before, m.state())
}

func TestACopyThatFailsAtAnyStepLeavesNothingIncomplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.result.ClusterTypes = w.result.ClusterTypes[:1]
	w.mustPublish()
	for budget := int64(0); ; budget++ {
		m := w.mirror("registry")
		m.front = func(rw http.ResponseWriter, r *http.Request) bool {
			fails := r.Method != http.MethodGet && r.Method != http.MethodHead && m.writes.Load() > budget
			if fails {
				rw.WriteHeader(http.StatusInternalServerError)
			}
			return fails
		}
		_, err := w.copyTo(m, copier.Options{})
		require.NoError(t, m.complete())
		if err == nil {
			require.Greater(t, budget, int64(20))
			break
		}
		var failed *copier.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, m.loc, failed.At)
		require.ErrorIs(t, err, oci.ErrUnreachable)
		m.front = nil
		w.mustCopyTo(m, copier.Options{})
		require.Equal(t, w.allTags(), m.allTags())
	}
}
