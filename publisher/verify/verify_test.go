package verify

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The order of fields is part of what -o json prints.
func TestWhatWasVerifiedHasItsFieldsInOneOrder(t *testing.T) {
	for _, want := range []string{
		`{"kind":"bundle","reference":"r","digest":"sha256:1","keys":["k"],"identity":{"subject":"i","issuer":"j"},"platform":"p","environment":"e",` +
			`"clusterType":"c","rings":["a"],"epoch":1,"sequence":2,"number":3,"issuedAt":"2026-11-23T00:00:00Z","expiresAt":"2026-11-24T00:00:00Z",` +
			`"baseCommit":"b","environmentCommit":"f","content":{"diffID":"sha256:2","size":4,"files":6},"assignments":0,` +
			`"held":[{"name":"n","sequence":1,"reason":"R"}],"deltas":[{"digest":"sha256:3","size":5,"from":"sha256:4"}]}`,
		`{"kind":"environment","reference":"r","digest":"sha256:1","keys":[],"platform":"p","environment":"e","epoch":1,"sequence":2,` +
			`"issuedAt":"2026-11-23T00:00:00Z","clusterTypes":{"c":"sha256:2"},"ringReleases":{"c":{"a":"sha256:2"}},"incomplete":["c"]}`,
	} {
		var v Trusted
		require.NoError(t, json.Unmarshal([]byte(want), &v))
		got, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
