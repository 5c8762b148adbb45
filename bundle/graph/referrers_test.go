package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// shelf has manifests by digest, and the referrers of each.
type shelf struct {
	manifests map[digest.Digest][]byte
	about     map[digest.Digest][]oci.Referrer
}

func (s *shelf) look(d ocispec.Descriptor) ([]oci.Referrer, error) { return s.about[d.Digest], nil }

func (s *shelf) get(d ocispec.Descriptor) ([]byte, error) {
	if data, ok := s.manifests[d.Digest]; ok {
		return data, nil
	}
	return nil, errdef.ErrNotFound
}

// refers adds a referrer of subject with a layer of some size.
func (s *shelf) refers(subject digest.Digest, tag, text string, size int64) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest}
	m := ocispec.Manifest{Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{{Digest: digest.FromString(text), Size: size}}}
	data, _ := json.Marshal(m)
	d.Digest, d.Size = digest.FromBytes(data), int64(len(data))
	s.manifests[d.Digest] = data
	s.about[subject] = append(s.about[subject], oci.Referrer{Tag: tag, Descriptor: d})
	return d
}

func TestWhatIsAboutAnArtifactIsBounded(t *testing.T) {
	root := ocispec.Descriptor{Digest: digest.FromString("root")}
	g := Graph{Manifests: []ocispec.Descriptor{root}}
	gone := errors.New("no connection")
	for _, c := range []struct {
		name    string
		fill    func(*shelf)
		found   int
		leftOut []string
	}{
		{"nothing", func(*shelf) {}, 0, nil},
		{"an SBOM with a signature of its own", func(s *shelf) {
			sbom := s.refers(root.Digest, "", "sbom", 10)
			s.refers(sbom.Digest, "sha256-of.sig", "signature", 10)
		}, 2, nil},
		{"a signature of a signature", func(s *shelf) {
			sig := s.refers(root.Digest, "x.sig", "signature", 10)
			s.refers(sig.Digest, "y.sig", "another", 10)
		}, 1, nil},
		{"two that are about one another", func(s *shelf) {
			a, b := s.refers(root.Digest, "", "a", 1), s.refers(root.Digest, "", "b", 1)
			s.about[a.Digest], s.about[b.Digest] = []oci.Referrer{{Descriptor: b}}, []oci.Referrer{{Descriptor: a}, {Tag: "z.sbom", Descriptor: b}}
		}, 3, nil},
		{"too many", func(s *shelf) {
			for i := range 2 * maxReferrers {
				s.refers(root.Digest, "", fmt.Sprint(i), 1)
			}
		}, maxReferrers, []string{"there are more than 64"}},
		{"too large", func(s *shelf) {
			s.refers(root.Digest, "", "small", 1)
			s.refers(root.Digest, "", "large", maxReferrerBytes)
			s.refers(root.Digest, "", "small too", 1)
		}, 2, []string{"all of them have more than"}},
		{"gone, and no manifest", func(s *shelf) {
			delete(s.manifests, s.refers(root.Digest, "", "gone", 1).Digest)
			s.manifests[s.refers(root.Digest, "", "bad", 1).Digest] = []byte("{")
		}, 0, []string{"not found", "its manifest is not JSON"}},
		{"manifests without end", func(s *shelf) {
			for i := range 3 {
				s.refers(root.Digest, "", fmt.Sprint(i), 1)
				s.about[root.Digest][i].Size = maxReferrerHead/2 + 1
			}
		}, 1, []string{"the manifests of all referrers", "the manifests of all referrers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &shelf{map[digest.Digest][]byte{}, map[digest.Digest][]oci.Referrer{}}
			c.fill(s)
			all, leftOut, err := WalkReferrers(g, s.look, s.get)
			require.NoError(t, err)
			require.Len(t, all, c.found)
			require.LessOrEqual(t, len(leftOut), maxReferrers)
			for i, text := range c.leftOut {
				require.Contains(t, leftOut[i], text)
			}
			require.Equal(t, len(c.leftOut) > 0, len(leftOut) > 0, leftOut)
		})
	}
	s := &shelf{map[digest.Digest][]byte{}, map[digest.Digest][]oci.Referrer{}}
	s.refers(root.Digest, "", "x", 1)
	_, _, err := WalkReferrers(g, s.look, func(ocispec.Descriptor) ([]byte, error) { return nil, gone })
	require.ErrorIs(t, err, gone, "what is not known is no absence")
	_, _, err = WalkReferrers(g, func(ocispec.Descriptor) ([]oci.Referrer, error) { return nil, gone }, s.get)
	require.ErrorIs(t, err, gone)
}
