package hub

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatRunsIsShownInFewCharacters(t *testing.T) {
	sha1, sha256 := strings.Repeat("0123456789", 4), strings.Repeat("0123456789abcdef", 4)
	tests := []struct {
		name, version, revision, want string
	}{
		{"a version", "1.4.0", "dev@sha1:" + sha1, "1.4.0"},
		{"a commit of a branch", "", "dev@sha1:" + sha1, "dev@sha1:012345678901"},
		{"a commit", "", sha1, "012345678901"},
		{"a digest of a tag", "", "latest@sha256:" + sha256, "latest@sha256:0123456789ab"},
		{"a revision that is no hash", "", "release-of-november", "release-of-november"},
		{"neither", "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, DeploymentStatus{Version: test.version, Revision: test.revision}.ShownVersion())
		})
	}
}
