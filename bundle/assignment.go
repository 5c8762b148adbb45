package bundle

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// AssignmentsPath and ArtifactsPath are the two files of a tree that are wherry's own.
const (
	MetaDir         = ".wherry"
	AssignmentsPath = MetaDir + "/assignments.ndjson"
	ArtifactsPath   = MetaDir + "/artifacts.ndjson"
)

// CopiesFiles reports whether an adapter puts the files of an assignment in place and decodes none, or only within bounds of its
// own. The manifests of all others are bounded in sum before anything decodes them.
func CopiesFiles(adapter string) bool { return adapter == "ansible" || adapter == "directory" }

// Assignment is a line of .wherry/assignments.ndjson: one deployment target on the bundle's cluster
// type. Its files are in the tree's folder Name.
type Assignment struct {
	// Name is the deployment target's full name, <workload>-<target>.
	Name      string `json:"name"`
	Workspace string `json:"workspace,omitempty"`
	// Registration names the WorkloadRegistration whose source the workload came from; empty for the
	// platform's own. Where that source cannot be read, its assignments are held.
	Registration string `json:"registration,omitempty"`
	Application  string `json:"application,omitempty"`
	Workload     string `json:"workload"`
	Target       string `json:"target"`
	Namespace    string `json:"namespace,omitempty"`
	// ServiceAccount, as NAMESPACE/NAME, is impersonated to apply the objects. Empty means the agent's own account,
	// unless the site requires an account for each assignment.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	Version        string `json:"version,omitempty"`
	// Policies names the scheduling policies that selected the pair, sorted.
	Policies []string `json:"policies,omitempty"`
	// Config names the ConfigMaps that make up the configuration, in order of precedence.
	Config []ConfigSource `json:"config,omitempty"`
	// ConfigDigest identifies the composed configuration; empty where there is none.
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	// Adapter names the reconciler: kubernetes, flux, argo, zarf, ansible or directory.
	Adapter string `json:"adapter"`
	// Wave orders assignments, lower waves first; DependsOn names the assignments that have to be compliant first.
	Wave      int      `json:"wave,omitempty"`
	DependsOn []string `json:"dependsOn,omitempty"`
	// Drift is "report" if drift is not corrected, OnFailure "hold" if a failed release is not rolled back, OnRemove
	// "orphan" if the applied objects outlive the assignment. Empty is the default of each.
	Drift     string `json:"drift,omitempty"`
	OnFailure string `json:"onFailure,omitempty"`
	OnRemove  string `json:"onRemove,omitempty"`
	// Health lists the conditions, of package manifests, that objects have to meet.
	Health []string `json:"health,omitempty"`
	// RestartOnConfig asks that workloads restart when the configuration that they use changes.
	RestartOnConfig bool  `json:"restartOnConfig,omitempty"`
	HeldFrom        *Held `json:"heldFrom,omitempty"`
	// Fetched lists the OCI artifacts that the adapter directory fetches and puts beside the files.
	Fetched []FetchedArtifact `json:"fetched,omitempty"`
	// Delivery is Embedded if the folder ManifestsDir of the assignment has what its target points at, and ChartsDir the
	// charts of its HelmReleases. Empty means that the engine fetches them.
	Delivery string `json:"delivery,omitempty"`
	// Carry says which artifacts of the assignment the agent brings to its store before it applies it: CarryImages,
	// CarryAll, or empty for none.
	Carry string `json:"carry,omitempty"`
	// SiteValues names the site values that the assignment uses, sorted.
	SiteValues []string `json:"siteValues,omitempty"`
	// Floating is true if the engine follows a source for which .wherry/artifacts.ndjson has no line, such as a Bucket or an
	// object of another owner. [Floating] also counts the sources in that file without a commit or digest.
	Floating bool `json:"floating,omitempty"`
	// Content identifies the files of the folder; see ContentDigest.
	Content digest.Digest `json:"content"`
}

// Floating returns the names of the assignments whose content may change on a cluster without a new release, sorted, as their engine
// follows a branch, a tag, a range of versions, or a source that is not listed. The artifacts are those of the same tree.
func Floating(assignments []Assignment, artifacts []Artifact) []string {
	follows := usersOf(artifacts, func(a Artifact) bool { return a.Unresolved && a.isFollowed() })
	return namesOf(assignments, func(a Assignment) bool { return a.Floating || follows[a.Name] })
}

// Unpinned returns the names of the assignments that [Floating] does not, but need an artifact without a known digest, sorted: a chart of one
// version, a package or an image with a tag. They change if somebody puts another artifact in its place.
func Unpinned(assignments []Assignment, artifacts []Artifact) []string {
	unresolved, floating := usersOf(artifacts, func(a Artifact) bool { return a.Unresolved }), Floating(assignments, artifacts)
	return namesOf(assignments, func(a Assignment) bool {
		_, floats := slices.BinarySearch(floating, a.Name)
		return unresolved[a.Name] && !floats
	})
}

func usersOf(artifacts []Artifact, fits func(Artifact) bool) map[string]bool {
	users := map[string]bool{}
	for _, a := range artifacts {
		if fits(a) {
			for _, name := range a.UsedBy {
				users[name] = true
			}
		}
	}
	return users
}

func namesOf(assignments []Assignment, fits func(Assignment) bool) (names []string) {
	for _, a := range assignments {
		if fits(a) {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Values of Assignment.Delivery and Assignment.Carry.
const (
	Embedded    = "embedded"
	CarryImages = "images"
	CarryAll    = "all"
)

// The folders of an assignment with embedded delivery, below its own.
const (
	ManifestsDir = "manifests"
	ChartsDir    = "charts"
)

// FetchedArtifact is an OCI artifact that is too large to travel in a bundle.
type FetchedArtifact struct {
	// Reference is oci://HOST/REPOSITORY. A tag or digest after it is for people; only Digest counts.
	Reference string `json:"reference"`
	// Digest is the digest of the artifact's manifest.
	Digest digest.Digest `json:"digest"`
}

// Repository is Reference without scheme, tag and digest: HOST/REPOSITORY.
func (f FetchedArtifact) Repository() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(f.Reference, "oci://"), "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// Desired identifies all inputs of a reconciler: Content, the artifacts that are fetched beside it, and the settings that
// change the result. It is Content itself if there are no others. An assignment whose Desired has changed has to be applied
// again.
func (a Assignment) Desired() digest.Digest {
	var more []string
	for _, f := range a.Fetched {
		more = append(more, "fetched "+f.Repository()+" "+f.Digest.String())
	}
	for _, condition := range a.Health {
		more = append(more, "health "+condition)
	}
	if a.RestartOnConfig {
		more = append(more, "restart "+a.ConfigDigest.String())
	}
	if a.ServiceAccount != "" {
		more = append(more, "as "+a.ServiceAccount)
	}
	if len(more) == 0 {
		return a.Content
	}
	return digest.FromString(strings.Join(append([]string{a.Content.String()}, more...), "\n"))
}

// DesiredWith identifies Desired together with something else that the reconciler gets, such as the values of a site. It is
// Desired itself if there is nothing else.
func (a Assignment) DesiredWith(other digest.Digest) digest.Digest {
	if other == "" {
		return a.Desired()
	}
	return digest.FromString(a.Desired().String() + "\nvalues " + other.String())
}

// ConfigSource is a ConfigMap that gave values. It has no path: if it had, moving a file would make a new release of the
// same content.
type ConfigSource struct {
	Name string `json:"name"`
}

// Held marks an assignment whose new content could not be rendered and which keeps its old content.
type Held struct {
	// Sequence and BaseCommit belong to the release in which the content was last rendered. They stay the same
	// while the assignment is held.
	Sequence   int64  `json:"sequence"`
	BaseCommit string `json:"baseCommit,omitempty"`
	// Reason is a code such as TemplateFailed, without any text of the input.
	Reason string `json:"reason"`
}

// ContentDigest identifies the files of one assignment, given by their paths below its folder: the
// digest over, for each by path, its path, a NUL, its mode in octal, a space, its digest and a newline.
func ContentDigest(files []File) digest.Digest {
	list := make([]digested, len(files))
	for i, f := range files {
		list[i] = digested{f.Path, f.mode(), digest.FromBytes(f.Data)}
	}
	return digestAll(list)
}

// ContentDigestOf is ContentDigest for the files below dir in fsys, which it does not hold in memory. A missing dir
// counts as one without files.
func ContentDigestOf(fsys fs.FS, dir string) (digest.Digest, error) {
	var list []digested
	var copies copyBuffer
	err := fs.WalkDir(fsys, dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == dir {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		f, err := fsys.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		content, err := copies.digest(f)
		list = append(list, digested{name[len(dir)+1:], File{Executable: info.Mode()&0o100 != 0}.mode(), content})
		return err
	})
	return digestAll(list), err
}

// digested is a file whose content has been read.
type digested struct {
	path    string
	mode    fs.FileMode
	content digest.Digest
}

func digestAll(files []digested) digest.Digest {
	slices.SortFunc(files, func(a, b digested) int { return cmp.Compare(a.path, b.path) })
	d := digest.Canonical.Digester()
	for _, f := range files {
		fmt.Fprintf(d.Hash(), "%s\x00%o %s\n", f.path, f.mode, f.content)
	}
	return d.Digest()
}

// MarshalAssignments returns the content of .wherry/assignments.ndjson, one line per assignment. It returns an error if
// the list exceeds MaxListBytes, or one line the bound of ParseAssignments.
func MarshalAssignments(as []Assignment) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, a := range as {
		start := b.Len()
		if err := enc.Encode(a); err != nil {
			return nil, fmt.Errorf("assignment %s: %w", a.Name, err)
		}
		if n := b.Len() - start; n > maxAssignmentLine {
			return nil, fmt.Errorf("assignment %s: a line of %d bytes: %w (at most %d)", a.Name, n, ErrTooLarge, maxAssignmentLine)
		}
	}
	if b.Len() > MaxListBytes {
		return nil, fmt.Errorf("list of %d assignments: %d bytes: %w (at most %d)", len(as), b.Len(), ErrTooLarge, MaxListBytes)
	}
	return b.Bytes(), nil
}

// maxAssignmentLine bounds one line with its end, in bytes.
const maxAssignmentLine = 1 << 20

// ParseAssignments parses the output of MarshalAssignments and refuses names that are no single folder. Its errors are
// of type *Refusal.
func ParseAssignments(data []byte) ([]Assignment, error) {
	var as []Assignment
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxAssignmentLine)
	for n := 1; lines.Scan(); n++ {
		var a Assignment
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, Refuse(BadContent, "%s:%d: %v", AssignmentsPath, n, err)
		}
		if a.Name == "" || strings.HasPrefix(a.Name, ".") || strings.ContainsAny(a.Name, "/\\\x00") {
			return nil, Refuse(BadContent, "%s:%d: assignment name %q is not a folder name", AssignmentsPath, n, a.Name)
		}
		if seen[a.Name] {
			return nil, Refuse(BadContent, "%s:%d: assignment %q is listed twice", AssignmentsPath, n, a.Name)
		}
		for _, f := range a.Fetched {
			if err := f.Digest.Validate(); err != nil {
				return nil, Refuse(BadContent, "%s:%d: artifact %s of assignment %q: %v", AssignmentsPath, n, f.Reference, a.Name, err)
			}
		}
		seen[a.Name] = true
		as = append(as, a)
	}
	if err := lines.Err(); err != nil {
		return nil, Refuse(BadContent, "%s: %v", AssignmentsPath, err)
	}
	return as, nil
}

// digestLike matches a whole digest, and a commit.
var digestLike = lazyregexp.New(`(?:^|@)(?:[a-z0-9]+:)?[0-9a-f]{40,}$`)

// ShownVersion returns a workload's version for a list: empty if it is a digest or a commit, which people cannot read.
func ShownVersion(version string) string {
	if digestLike.MatchString(version) {
		return ""
	}
	return version
}
