package agent

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// medium is a file of airgap/export, taken apart.
type medium struct {
	names []string
	data  map[string][]byte
}

// carried is release n on a medium. It was exported in good faith, and the registry has gone.
func (s *siege) carried(n int64) (*medium, digest.Digest) {
	s.t.Helper()
	offered := s.release(n, "a: 6")
	raw, err := os.ReadFile(s.export(s.stream))
	require.NoError(s.t, err)
	m := &medium{data: map[string][]byte{}}
	r := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return m, offered.Digest
		}
		require.NoError(s.t, err)
		m.names = append(m.names, h.Name)
		m.data[h.Name], err = io.ReadAll(r)
		require.NoError(s.t, err)
	}
}

// index changes the file's index.
func (m *medium) index(t testing.TB, change func(*ocispec.Index)) {
	t.Helper()
	var index ocispec.Index
	require.NoError(t, json.Unmarshal(m.data[ocispec.ImageIndexFile], &index))
	change(&index)
	data, err := json.Marshal(index)
	require.NoError(t, err)
	m.data[ocispec.ImageIndexFile] = data
}

// latest is the index's entry of the bundle.
func latestOf(index *ocispec.Index) *ocispec.Descriptor {
	for i, d := range index.Manifests {
		if strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], "/"+bundle.LatestTag) {
			return &index.Manifests[i]
		}
	}
	panic("no bundle")
}

// file writes the medium, with more behind it.
func (m *medium) file(s *siege, more ...member) string {
	members := []member{}
	for _, name := range m.names {
		members = append(members, file(name, string(m.data[name])))
	}
	raw, _ := s.tarOf(append(members, more...)...)
	return s.file(raw)
}

func blobName(d digest.Digest) string {
	return filepath.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// Whoever carries a medium can change any byte of it. Each file is imported through the running agent.
func TestAttackByTheMedium(t *testing.T) {
	// broken is what an import says of a file that is none; nothing is offered by it.
	const broken = ""
	for _, tc := range []struct {
		name string
		make func(s *siege) (path string, offered digest.Digest)
		want bundle.Reason
		late bool
	}{
		{name: "an older release", want: bundle.OlderRelease, make: func(s *siege) (string, digest.Digest) {
			m, offered := s.carried(4)
			return m.file(s), offered
		}},
		{name: "a changed layer", want: bundle.DigestMismatch, late: true, make: func(s *siege) (string, digest.Digest) {
			m, offered := s.carried(6)
			m.data[blobName(s.manifestOf(offered).Layers[0].Digest)][60] ^= 1
			return m.file(s), offered
		}},
		{name: "a changed manifest", want: bundle.DigestMismatch, make: func(s *siege) (string, digest.Digest) {
			m, offered := s.carried(6)
			m.data[blobName(offered)][20] ^= 1
			return m.file(s), offered
		}},
		{name: "a blob twice, first changed", want: bundle.DigestMismatch, make: func(s *siege) (string, digest.Digest) {
			m, offered := s.carried(6)
			good := string(m.data[blobName(offered)])
			m.data[blobName(offered)][20] ^= 1
			return m.file(s, file(blobName(offered), good)), offered
		}},
		{name: "a bundle without its signature", want: bundle.Unsigned, make: func(s *siege) (string, digest.Digest) {
			m, offered := s.carried(6)
			m.index(s.t, func(i *ocispec.Index) {
				for j, d := range i.Manifests {
					if strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], ".sig") {
						i.Manifests = append(i.Manifests[:j], i.Manifests[j+1:]...)
						return
					}
				}
			})
			return m.file(s), offered
		}},
		{name: "another release's signature", want: bundle.DigestMismatch, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			other, _ := s.carried(7)
			var foreign ocispec.Descriptor
			other.index(s.t, func(i *ocispec.Index) { foreign = *latestOf(i) })
			m.data[blobName(foreign.Digest)] = other.data[blobName(foreign.Digest)]
			m.names = append(m.names, blobName(foreign.Digest))
			m.index(s.t, func(i *ocispec.Index) {
				latestOf(i).Digest, latestOf(i).Size = foreign.Digest, foreign.Size
				for j, d := range i.Manifests {
					if strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], ".sig") {
						i.Manifests[j].Annotations[ocispec.AnnotationRefName] = s.stream.Repository() + "/" + bundle.SignatureTag(foreign.Digest)
					}
				}
			})
			return m.file(s), foreign.Digest
		}},
		{name: "an index without digests", want: broken, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			m.index(s.t, func(i *ocispec.Index) { latestOf(i).Digest = "sha256:../../../etc/passwd" })
			return m.file(s), ""
		}},
		{name: "an index with a huge type", want: broken, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			m.index(s.t, func(i *ocispec.Index) { latestOf(i).MediaType = strings.Repeat("x", 1<<20) })
			return m.file(s), ""
		}},
		{name: "an index with a too large manifest", want: bundle.TooLarge, make: func(s *siege) (string, digest.Digest) {
			m, offered := s.carried(6)
			m.index(s.t, func(i *ocispec.Index) { latestOf(i).Size = 1 << 60 })
			return m.file(s), offered
		}},
		{name: "another cluster type's bundle under this name", want: bundle.WrongClusterType, make: func(s *siege) (string, digest.Digest) {
			d := s.draft(6, evil)
			d.Release.ClusterType = "large"
			s.publish(d)
			return s.export(s.stream), s.resolve(bundle.LatestTag).Digest
		}},
		{name: "an index cut short", want: broken, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			m.data[ocispec.ImageIndexFile] = m.data[ocispec.ImageIndexFile][:40]
			return m.file(s), ""
		}},
		{name: "a foreign index", want: broken, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			m.data[ocispec.ImageIndexFile] = []byte(`{"schemaVersion":2,"manifests":[]}`)
			return m.file(s), ""
		}},
		{name: "an index of a million entries", want: broken, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			m.data[ocispec.ImageIndexFile] = []byte(`{"manifests":[` + strings.Repeat("{},", 1_000_000) + `{}]}`)
			return m.file(s), ""
		}},
		{name: "a file cut short", want: broken, make: func(s *siege) (string, digest.Digest) {
			m, _ := s.carried(6)
			path := m.file(s)
			require.NoError(s.t, os.Truncate(path, 1500))
			return path, ""
		}},
		{name: "a linked index", want: broken, make: func(s *siege) (string, digest.Digest) {
			raw, _ := s.tarOf(file(ocispec.ImageLayoutFile, `{"imageLayoutVersion":"1.0.0"}`), link(tar.TypeSymlink, ocispec.ImageIndexFile, "/etc/passwd"))
			return s.file(raw), ""
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := besiege(t)
			before := s.memory()
			path, offered := tc.make(s)
			s.registry.away.Store(true)
			for range 2 {
				r, err := s.client.Import(t.Context(), ImportRequest{Paths: []string{path}})
				require.NoError(t, err)
				if tc.want == broken {
					require.Equal(t, Broken, r.Verdict)
					require.NotEmpty(t, r.Error)
					require.Less(t, len(r.Error), bundle.MaxMessageBytes)
					require.Equal(t, bundle.Compliant, r.Status.State)
					s.requireHost("a: 1")
					continue
				}
				if tc.want == bundle.OlderRelease { // no state but that of the medium
					require.Equal(t, Idle, r.Verdict, r.Error)
					require.Equal(t, bundle.Compliant, r.Status.State)
					require.Equal(t, []string{"dev/drone older OlderRelease"}, outcomes(r))
					s.requireHost("a: 1")
					continue
				}
				s.requireRefused(r.Result, tc.want, offered)
			}
			if !tc.late {
				require.Equal(t, before, s.memory())
			}
			s.registry.away.Store(false)
			s.end(9)
		})
	}
}

// The order of a file's entries says nothing, and so nothing can be done with it.
func TestAttackByReorderingTheMedium(t *testing.T) {
	s := besiege(t)
	m, offered := s.carried(6)
	for i, j := 0, len(m.names)-1; i < j; i, j = i+1, j-1 {
		m.names[i], m.names[j] = m.names[j], m.names[i]
	}
	s.registry.away.Store(true)
	r, err := s.client.Import(t.Context(), ImportRequest{Paths: []string{m.file(s, link(tar.TypeSymlink, "blobs/sha256/x", "/etc/passwd"), file("../../x", "evil"))}})
	require.NoError(t, err)
	require.Equal(t, offered, r.Status.Release.Running.Digest, r.Error)
	s.requireHost("a: 6")
	s.registry.away.Store(false)
	s.end(9)
}
