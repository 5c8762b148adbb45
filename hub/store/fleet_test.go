package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListsShowVersionsAndNoDigests(t *testing.T) {
	sha1, sha256 := strings.Repeat("0123456789", 4), strings.Repeat("0123456789abcdef", 4)
	tests := []struct {
		name, version, revision, want string
	}{
		{"a version", "1.4.0", "dev@sha1:" + sha1, "1.4.0"},
		{"a version with the commit that it was built from", "1.4.0-3ddc827101b7", "", "1.4.0-3ddc827101b7"},
		{"no version, but a revision", "", "sha256:" + sha256, ""},
		{"a digest in place of a version", "sha256:" + sha256, "", ""},
		{"a tag and a digest in place of a version", "latest@sha256:" + sha256, "", ""},
		{"a commit in place of a version", sha1, "", ""},
		{"neither", "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, DeploymentStatus{Version: test.version, Revision: test.revision}.ShownVersion())
		})
	}
}
