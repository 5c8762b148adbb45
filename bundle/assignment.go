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
)

// AssignmentsPath and ArtifactsPath are the two files of a tree that are wherry's own.
const (
	MetaDir         = ".wherry"
	AssignmentsPath = MetaDir + "/assignments.ndjson"
	ArtifactsPath   = MetaDir + "/artifacts.ndjson"
)

// Assignment is a line of .wherry/assignments.ndjson: one deployment target on the bundle's cluster
// type. Its files are in the tree's folder Name.
type Assignment struct {
	// Name is the deployment target's full name, <workload>-<target>.
	Name        string `json:"name"`
	Workspace   string `json:"workspace,omitempty"`
	Application string `json:"application,omitempty"`
	Workload    string `json:"workload"`
	Target      string `json:"target"`
	Namespace   string `json:"namespace,omitempty"`
	Version     string `json:"version,omitempty"`
	// Policies names the scheduling policies that selected the pair, sorted.
	Policies []string `json:"policies,omitempty"`
	// Config names the ConfigMaps that the configuration was composed of, in order of precedence.
	Config []ConfigSource `json:"config,omitempty"`
	// ConfigDigest identifies the composed configuration; empty where there is none.
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	// Adapter names the reconciler: kubernetes, flux, argo, zarf, ansible or directory.
	Adapter   string   `json:"adapter"`
	Wave      int      `json:"wave,omitempty"`
	DependsOn []string `json:"dependsOn,omitempty"`
	HeldFrom  *Held    `json:"heldFrom,omitempty"`
	// Content identifies the files of the folder; see ContentDigest.
	Content digest.Digest `json:"content"`
}

// ConfigSource is a ConfigMap that gave values, and where it stands in the platform repository.
type ConfigSource struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Held marks an assignment whose new content could not be rendered and which keeps what the named
// release had.
type Held struct {
	Sequence   int64  `json:"sequence"`
	BaseCommit string `json:"baseCommit,omitempty"`
	Reason     string `json:"reason"`
}

// ContentDigest identifies the files of one assignment, given by their paths below its folder: the
// digest over, for each by path, its path, a NUL, its mode in octal, a space, its digest and a newline.
func ContentDigest(files []File) digest.Digest {
	d := digest.Canonical.Digester()
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) }) {
		fmt.Fprintf(d.Hash(), "%s\x00%o %s\n", f.Path, f.mode(), digest.FromBytes(f.Data))
	}
	return d.Digest()
}

// MarshalAssignments writes one line per assignment.
func MarshalAssignments(as []Assignment) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, a := range as {
		if err := enc.Encode(a); err != nil {
			return nil, fmt.Errorf("assignment %s: %w", a.Name, err)
		}
	}
	return b.Bytes(), nil
}

// ParseAssignments reads what MarshalAssignments wrote and refuses names that are no single folder.
func ParseAssignments(data []byte) ([]Assignment, error) {
	var as []Assignment
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var a Assignment
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, refuse(BadContent, "%s:%d: %v", AssignmentsPath, n, err)
		}
		if a.Name == "" || strings.HasPrefix(a.Name, ".") || strings.ContainsAny(a.Name, "/\\\x00") {
			return nil, refuse(BadContent, "%s:%d: assignment name %q is no folder name", AssignmentsPath, n, a.Name)
		}
		if seen[a.Name] {
			return nil, refuse(BadContent, "%s:%d: assignment %q is listed twice", AssignmentsPath, n, a.Name)
		}
		seen[a.Name] = true
		as = append(as, a)
	}
	if err := lines.Err(); err != nil {
		return nil, refuse(BadContent, "%s: %v", AssignmentsPath, err)
	}
	return as, nil
}
