package reconcilers

import (
	"strings"

	"github.com/opencontainers/go-digest"
)

// ChartMediaType is the type of the layer that holds a chart, in registries that Helm writes.
const ChartMediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// ServedRepository returns the repository of an assignment's artifacts, without the platform's name. It is the assignment's
// name, or a digest of a name that no repository can have.
func ServedRepository(assignment string) string {
	name := "assignments/" + assignment
	if !validRepository(assignment) {
		name = "assignments/sha256-" + digest.FromString(assignment).Encoded()[:32]
	}
	return name
}

// validRepository reports whether a name is one path component of a repository; see OCI distribution-spec v1.1, "Pulling manifests".
func validRepository(name string) bool {
	const lower = "abcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || len(name) > 128 || !strings.ContainsRune(lower, rune(name[0])) || !strings.ContainsRune(lower, rune(name[len(name)-1])) {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case strings.IndexByte(lower, c) >= 0, c == '-':
		case c == '.' || c == '_':
			if strings.IndexByte(lower, name[i+1]) < 0 || strings.IndexByte(lower, name[i-1]) < 0 {
				return false
			}
		default:
			return false
		}
	}
	return true
}
