package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
)

// generation publishes release n of the site, whose image has the layers, and returns a package of it without the layers that are
// left out. Unnamed, the package does not name the number of its release.
func (s *imageSite) generation(n int64, unnamed bool, layers []string, leftOut ...string) *packagetest.Package {
	s.t.Helper()
	return s.generationOn("", n, unnamed, layers, leftOut...)
}

// generationOn is generation with the name of the release that it builds on.
func (s *imageSite) generationOn(base string, n int64, unnamed bool, layers []string, leftOut ...string) *packagetest.Package {
	s.t.Helper()
	image := s.image("app", "linux/amd64", layers...)
	s.release(n, map[string]string{"web-x/f": fmt.Sprint(n)}, needs{"web-x": {"app:1": image}}, nil)
	refs := bundleRefs(s)
	if !unnamed {
		named := refs[0]
		named.Name = s.stream.Repository() + fmt.Sprintf("/s0-%d", n)
		refs = append(refs, named)
	}
	p := s.packed(func(c *airgap.Contents) {
		for _, text := range leftOut {
			c.LeftOut = append(c.LeftOut, airgap.ContentsBlob{Digest: digest.FromBytes(layer(text, 1000)), Size: 1000})
		}
		for i := range c.Artifacts {
			c.Artifacts[i].UsedBy = []string{"dev/drone"}
		}
		for i := range c.Releases {
			c.Releases[i].BaseName = base
		}
	}, refs, s.imageRefs(map[string]ocispec.Descriptor{"app:1": image}))
	p.Entries = slices.DeleteFunc(p.Entries, func(e packagetest.Entry) bool {
		return slices.ContainsFunc(leftOut, func(text string) bool {
			return strings.HasSuffix(e.Name, digest.FromBytes(layer(text, 1000)).Encoded())
		})
	})
	return p
}

// takesFolder imports a folder with these files.
func (s *imageSite) takesFolder(files map[string][]byte) (r ImportResult) {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, data := range files {
		require.NoError(s.t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	s.agent(func(a *Agent) {
		a.source = nil
		r = a.Import(s.t.Context(), ImportRequest{Paths: []string{dir}})
	})
	return r
}

// packaged are the outcomes with the packages.
func packaged(r ImportResult) (all []string) {
	for _, s := range r.Streams {
		all = append(all, strings.TrimSpace(s.Package+" "+string(s.Outcome)+" "+string(s.Reason)))
	}
	return all
}

// ran are the releases that have begun to run, by history.
func (s *imageSite) ran(t *testing.T) (all []string) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		for _, r := range openReports(t, a) {
			if d := r.Observed.Digest.Encoded(); d != "" && (len(all) == 0 || all[len(all)-1] != d) {
				all = append(all, d)
			}
		}
	})
	return all
}

// A medium with three releases, each of which builds on the one before, and with other files: all goes in, and the newest one is
// applied.
func TestThreeGenerationsOnOneMedium(t *testing.T) {
	s := newImageSite(t)
	one := s.generation(1, false, []string{"base", "one"})
	two := s.generation(2, false, []string{"base", "one", "two"}, "base", "one")
	three := s.generation(3, false, []string{"base", "two", "three"}, "base", "two")
	r := s.takesFolder(map[string][]byte{
		"site.tar": one.Bytes(), "a-site.tar": two.Bytes(), "b-site.tar": three.Bytes(), "reports.tar": nil, "photos.tar": []byte("photos"),
	})
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, []string{"b-site.tar taken", "a-site.tar taken", "site.tar taken"}, packaged(r))
	requireFile(t, s.site.host, "web-x/f", "3")
	require.Len(t, s.ran(t), 1, "the older ones are not applied")
	require.Contains(t, s.blobsHere(), digest.FromBytes(layer("base", 1000)).Encoded())
	require.NotContains(t, s.blobsHere(), digest.FromBytes(layer("one", 1000)).Encoded(), "what no release needs any more goes")

	again := s.takesFolder(map[string][]byte{"site.tar": one.Bytes(), "a-site.tar": two.Bytes(), "b-site.tar": three.Bytes()})
	require.Equal(t, Idle, again.Verdict, again.Error)
	require.Equal(t, []string{"b-site.tar here"}, packaged(again))
}

func TestAnOlderPackageIsCopiedOnlyIfItIsOfUse(t *testing.T) {
	s := newImageSite(t)
	one, two := s.generation(1, false, []string{"one"}), s.generation(2, false, []string{"two"})
	r := s.takesFolder(map[string][]byte{"1.tar": one.Bytes(), "2.tar": two.Bytes()})
	require.Equal(t, []string{"2.tar taken"}, packaged(r))
	require.Equal(t, Done, r.Verdict, r.Error)
	require.NotContains(t, s.blobsHere(), digest.FromBytes(layer("one", 1000)).Encoded())
	requireFile(t, s.site.host, "web-x/f", "2")
}

// Of a damaged package and an older one that is whole, the site runs the older one.
func TestAnOlderPackageStandsInForADamagedOne(t *testing.T) {
	for name, change := range map[string]func(p *packagetest.Package){
		"a layer of an image": func(p *packagetest.Package) {
			p.Get(packagetest.BlobName(digest.FromBytes(layer("two", 1000))))[7] ^= 1
		},
		"a tree": func(p *packagetest.Package) {
			p.Get(p.Part("dev/drone layer"))[60] ^= 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newImageSite(t)
			one, two := s.generation(1, false, []string{"one"}), s.generation(2, false, []string{"two"})
			change(two)
			r := s.takesFolder(map[string][]byte{"1.tar": one.Bytes(), "2.tar": two.Bytes()})
			require.Equal(t, []string{"1.tar taken", "2.tar refused DigestMismatch"}, packaged(r))
			require.Equal(t, Done, r.Verdict, r.Error)
			require.True(t, r.Damaged)
			require.Equal(t, bundle.Compliant, r.Status.State)
			requireFile(t, s.site.host, "web-x/f", "1")
		})
	}
}

// A medium that comes too early names the one that has to come first.
func TestMediaInTheWrongOrder(t *testing.T) {
	s := newImageSite(t)
	one := s.generation(1, false, []string{"one"})
	two := s.generation(2, false, []string{"one", "two"}, "one")
	three := s.generationOn("2 (0aa1f2b3)", 3, false, []string{"two", "three"}, "two")
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(one)))
	r := s.takes(three)
	require.Equal(t, []string{"dev/drone lacks its base LacksBase"}, outcomes(r))
	require.Regexp(t, `^builds on release 2 \(0aa1f2b3\), but release 1 \([0-9a-f]{8}\) is here: import the medium with release 2 \([0-9a-f]{8}\) first, or ask `, r.Streams[0].Message)
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(two)))
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(three)))
}

// A package that comes again repairs what has been lost of it.
func TestTheSamePackageRepairsTheStore(t *testing.T) {
	s := newImageSite(t)
	one := s.generation(1, false, []string{"base", "one"})
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(one)))
	require.Equal(t, []string{"dev/drone here"}, outcomes(s.takes(one)))
	lost := digest.FromBytes(layer("one", 1000)).Encoded()
	require.NoError(t, os.Remove(filepath.Join(s.dir, "store", "blobs", "sha256", lost)))
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(one)))
	require.Contains(t, s.blobsHere(), lost)
}

// A release that nobody trusted has signed beside a good one: the good one runs, and the reports have the other.
func TestAnUntrustedPackageBesideAGoodOne(t *testing.T) {
	s := newImageSite(t)
	one, two := s.generation(1, false, []string{"one"}), s.generation(2, false, []string{"two"})
	two.ChangeIndex(func(index *ocispec.Index) {
		index.Manifests = slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool {
			return strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], ".sig")
		})
	})
	r := s.takesFolder(map[string][]byte{"1.tar": one.Bytes(), "2.tar": two.Bytes()})
	require.Equal(t, []string{"1.tar taken", "2.tar refused Unsigned"}, packaged(r))
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	requireFile(t, s.site.host, "web-x/f", "1")
	s.agent(func(a *Agent) {
		require.Contains(t, fmt.Sprintf("%+v", openReports(t, a)), "Unsigned")
	})
}

// Names are not signed: packages that are taken in a wrong order lead to the newest release all the same.
func TestTheOrderOfPackagesIsThatOfTheirSignedReleases(t *testing.T) {
	s := newImageSite(t)
	one, two := s.generation(1, true, []string{"one"}), s.generation(2, true, []string{"one", "two"})
	r := s.takesFolder(map[string][]byte{"1.tar": two.Bytes(), "2.tar": one.Bytes()})
	require.Equal(t, []string{"1.tar taken", "2.tar taken"}, packaged(r))
	require.Equal(t, Done, r.Verdict, r.Error)
	requireFile(t, s.site.host, "web-x/f", "2")
	require.Len(t, s.ran(t), 1)
}

// The package of another ship on the same medium is neither copied nor called wrong.
func TestAPackageForOthersIsPassedOver(t *testing.T) {
	s := newImageSite(t)
	own := s.generation(1, false, []string{"one"})
	image, office := s.image("till", "linux/amd64", "till"), s.of("office")
	office.release(9, map[string]string{"desk-x/f": "7"}, needs{"desk-x": {"till:1": image}}, nil)
	others := s.packed(nil, bundleRefs(office), s.imageRefs(map[string]ocispec.Descriptor{"till:1": image}))
	for _, names := range [][2]string{{"1.tar", "2.tar"}, {"2.tar", "1.tar"}} {
		r := s.takesFolder(map[string][]byte{names[0]: own.Bytes(), names[1]: others.Bytes()})
		require.NotContains(t, []Verdict{Refused, Broken}, r.Verdict, r.Error)
		require.Len(t, r.Streams, 1)
		require.True(t, r.Streams[0].Outcome.Good())
		require.Equal(t, bundle.Compliant, r.Status.State)
		require.NotContains(t, s.blobsHere(), digest.FromBytes(layer("till", 1000)).Encoded())
	}
}
