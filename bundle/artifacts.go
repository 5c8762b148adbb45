package bundle

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// ArtifactType is the kind of an Artifact.
type ArtifactType string

// The types of artifacts.
const (
	// ArtifactImage is a container image.
	ArtifactImage ArtifactType = "image"
	// ArtifactChart is a Helm chart, of a registry or of a chart repository.
	ArtifactChart ArtifactType = "chart"
	// ArtifactOCI is a set of manifests in a registry.
	ArtifactOCI ArtifactType = "oci"
	// ArtifactGit is a set of manifests in a git repository.
	ArtifactGit ArtifactType = "git"
	// ArtifactZarf is a Zarf package.
	ArtifactZarf ArtifactType = "zarf"
)

// Artifact is a line of .wherry/artifacts.ndjson: something outside the bundle that assignments need.
type Artifact struct {
	Type ArtifactType `json:"type"`
	// Name is the repository without scheme, tag and digest, for a chart of a chart repository its name.
	Name string `json:"name"`
	// Reference is the full reference in the manifests: docker.io/library/nginx:1.29, oci://HOST/REPOSITORY:TAG,
	// URL#BRANCH of a git repository, URL/CHART:VERSION of a chart repository.
	Reference string `json:"reference"`
	// Digest is the digest of an OCI manifest or of a chart's archive, or a commit as sha1:…; empty while Unresolved.
	Digest string `json:"digest,omitempty"`
	// Size is the size of all manifests, configs and layers, of all platforms, in bytes. Zero means unknown.
	Size int64 `json:"size,omitempty"`
	// Unresolved is true if the reference has no known digest, so that its content may change.
	Unresolved bool `json:"unresolved,omitempty"`
	// UsedBy names the assignments that need it, sorted.
	UsedBy []string `json:"usedBy"`
}

// MergeArtifacts returns list sorted, with each artifact once and the assignments of all its entries in UsedBy.
func MergeArtifacts(list []Artifact) []Artifact {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Artifact) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Reference, b.Reference), cmp.Compare(a.Digest, b.Digest))
	})
	merged := list[:0]
	for _, a := range list {
		if n := len(merged); n > 0 && merged[n-1].Type == a.Type && merged[n-1].Reference == a.Reference && merged[n-1].Digest == a.Digest {
			last := &merged[n-1]
			last.UsedBy, last.Size = append(last.UsedBy, a.UsedBy...), max(last.Size, a.Size)
			continue
		}
		a.UsedBy = slices.Clone(a.UsedBy)
		merged = append(merged, a)
	}
	for i := range merged {
		slices.Sort(merged[i].UsedBy)
		merged[i].UsedBy = slices.Compact(merged[i].UsedBy)
	}
	return merged
}

// ArtifactsOf returns the artifacts in list that an assignment with the given name needs, as used by it alone.
func ArtifactsOf(list []Artifact, name string) []Artifact {
	var own []Artifact
	for _, a := range list {
		if slices.Contains(a.UsedBy, name) {
			a.UsedBy = []string{name}
			own = append(own, a)
		}
	}
	return own
}

// oneVersion matches the version of a chart, and no range of versions.
var oneVersion = lazyregexp.New(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)

// isFollowed reports whether an engine looks for newer content of an artifact by itself. Images and packages are fetched once.
func (a Artifact) isFollowed() bool {
	switch a.Type {
	case ArtifactImage, ArtifactZarf:
		return false
	case ArtifactChart:
		return !oneVersion.MatchString(a.Reference[strings.LastIndexByte(a.Reference, ':')+1:])
	}
	return true
}

// InRegistry returns the repository of an artifact that lies in a registry, as HOST/REPOSITORY, and the tag that its
// reference has, if any. The repository is empty for other artifacts. Both are as the reference has them, unchecked.
func (a Artifact) InRegistry() (repository, tag string) {
	name, oci := strings.CutPrefix(a.Reference, "oci://")
	if !oci && a.Type != ArtifactImage {
		return "", ""
	}
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i], name[i+1:]
	}
	return name, ""
}

// Carries reports whether agents bring an artifact of a to their store. Sources in git and charts of chart repositories
// lie in no registry; the manifests and charts of an assignment with embedded delivery are in its files.
func (a Assignment) Carries(artifact Artifact) bool {
	switch {
	case a.Carry == "":
		return false
	case artifact.Type == ArtifactImage:
		return true
	case a.Carry == CarryImages, artifact.Type == ArtifactGit:
		return false
	case a.Delivery == Embedded:
		return artifact.Type == ArtifactZarf
	}
	repository, _ := artifact.InRegistry()
	return repository != ""
}

// MarshalArtifacts returns the content of .wherry/artifacts.ndjson, one line per artifact, and its summary for the
// release document. Both are zero if list is empty: the tree has no such file then.
func MarshalArtifacts(list []Artifact) ([]byte, Artifacts, error) {
	if len(list) == 0 {
		return nil, Artifacts{}, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	sum := Artifacts{Count: len(list)}
	for _, a := range list {
		if err := enc.Encode(a); err != nil {
			return nil, Artifacts{}, fmt.Errorf("artifact %s: %w", a.Reference, err)
		}
		sum.Bytes += a.Size
	}
	sum.Digest = digest.FromBytes(b.Bytes())
	return b.Bytes(), sum, nil
}

// ParseArtifacts parses the output of MarshalArtifacts. Its errors are of type *Refusal.
func ParseArtifacts(data []byte) ([]Artifact, error) {
	var list []Artifact
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxArtifactLine)
	for n := 1; lines.Scan(); n++ {
		var a Artifact
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, Refuse(BadContent, "%s:%d: %v", ArtifactsPath, n, err)
		}
		if a.Type == "" || a.Reference == "" || a.Size < 0 {
			return nil, Refuse(BadContent, "%s:%d: an artifact needs a type, a reference and no negative size", ArtifactsPath, n)
		}
		list = append(list, a)
	}
	if err := lines.Err(); err != nil {
		return nil, Refuse(BadContent, "%s: %v", ArtifactsPath, err)
	}
	return list, nil
}

// maxArtifactLine bounds one line: an image that each of 100,000 assignments uses.
const maxArtifactLine = 16 << 20
