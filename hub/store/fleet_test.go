package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestListsShowVersionsAndNoDigests(t *testing.T) {
	sha1, sha256 := strings.Repeat("0123456789", 4), strings.Repeat("0123456789abcdef", 4)
	tests := []struct {
		name, version, revision, want string
	}{
		{"a version", "1.4.0", "dev@sha1:" + sha1, "1.4.0"},
		{"a version with the commit that it was built from", "1.4.0-3ddc827101b7", "", "1.4.0-3ddc827101b7"},
		{"no version, but a digest", "", "sha256:" + sha256, ""},
		{"no version, but a commit", "", "main@sha1:" + sha1, "- (main@0123456)"},
		{"no version, but a commit of no branch", "", sha1, "- (0123456)"},
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

// The lists are an interface: fields are only ever added, in their order.
func TestJSONOfRows(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	who := Identity{UID: "u", Name: "n", Platform: "p", Type: "t", Environment: "e", Ring: "r", Labels: map[string]string{"k": "v"}}
	const identity = `"uid":"u","name":"n","platform":"p","type":"t","environment":"e","ring":"r","labels":{"k":"v"},`
	for _, tt := range []struct {
		name string
		row  any
		want string
	}{
		{"an empty cluster", ClusterStatus{}, `{"uid":"","name":"","type":"","environment":"","state":""}`},
		{
			"a cluster",
			ClusterStatus{Identity: who, State: Stale, LastState: "compliant", Reason: "a", Message: "b", Since: at, LastSeen: at, Seq: 1, SharedSince: at, SharedHow: "c"},
			`{` + identity + `"state":"stale","lastState":"compliant","reason":"a","message":"b","since":"2026-11-21T12:00:00Z","seq":1,` +
				`"lastSeen":"2026-11-21T12:00:00Z","sharedSince":"2026-11-21T12:00:00Z","sharedHow":"c"}`,
		},
		{
			"a registration",
			Registration{Cluster: Cluster{Identity: who, ExpectedInterval: time.Hour}, KeyIDs: []string{"kid"}, AddedAt: at, ExpectedSeconds: 3600, Newest: Order{1, 2}},
			`{` + identity + `"keyIDs":["kid"],"addedAt":"2026-11-21T12:00:00Z","expectedSeconds":3600}`,
		},
		{
			"a token",
			Token{ID: "i", TokenScope: TokenScope{Type: "t", Uses: 1, ExpiresAt: at}, Left: 1, State: TokenGood, CreatedAt: at},
			`{"id":"i","type":"t","uses":1,"expiresAt":"2026-11-21T12:00:00Z","left":1,"state":"good","createdAt":"2026-11-21T12:00:00Z"}`,
		},
	} {
		got, err := json.Marshal(tt.row)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(got), tt.name)
	}
}
