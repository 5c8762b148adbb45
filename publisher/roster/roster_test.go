package roster

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// publicKey depends on the seed alone.
func publicKey(t *testing.T, seed byte) string {
	t.Helper()
	key := make([]byte, ed25519.SeedSize)
	key[0] = seed
	pem, err := bundle.MarshalPublicKey(ed25519.NewKeyFromSeed(key).Public())
	require.NoError(t, err)
	return string(pem)
}

func TestARequestChangesOneFileOfTheRoster(t *testing.T) {
	one, two := publicKey(t, 1), publicKey(t, 2)
	request := func(uid, name, key, former string) bundle.EnrollmentRequest {
		r := bundle.EnrollmentRequest{Key: key, Former: former}
		r.Cluster.UID, r.Cluster.Name, r.Cluster.Type, r.Cluster.Ring = uid, name, "drone", "canary"
		return r
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "clusters.yaml")
	take := func(c Change, err error) string {
		t.Helper()
		require.NoError(t, err)
		require.NotNil(t, c.Data)
		require.NoError(t, os.WriteFile(c.File, c.Data, 0o600))
		return c.Text
	}
	require.Equal(t, file+": cluster plant-7 (uid u7) added", take(Add(t.Context(), file, request("u7", "plant-7", one, ""), start)))
	clusters, err := Read(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, clusters, 1)
	require.Equal(t, []string{"plant-7", "u7", "drone", "canary", one}, []string{clusters[0].Name, clusters[0].UID, clusters[0].ClusterType, clusters[0].Ring, clusters[0].PublicKey})
	require.Equal(t, start, clusters[0].RegisteredAt)

	again, err := Add(t.Context(), file, request("u7", "plant-7", one, ""), start)
	require.NoError(t, err)
	require.Equal(t, Change{File: file, Text: file + ": cluster plant-7 is there already"}, again)

	other := filepath.Join(dir, "others.yaml") // the cluster is found in the folder, and changed where it is
	require.Equal(t, file+": cluster plant-7 has a new key", take(Add(t.Context(), other, request("u7", "plant-7", two, one), start)))
	require.NoFileExists(t, other)
	clusters, err = Read(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, two, clusters[0].PublicKey)

	for name, tc := range map[string]struct {
		dir      string
		request  bundle.EnrollmentRequest
		conflict bool
	}{
		"the same uid with another key":             {dir, request("u7", "plant-7", one, ""), true},
		"the same name for another cluster":         {dir, request("u8", "plant-7", one, ""), true},
		"a new key for a cluster that is not there": {dir, request("u8", "plant-8", publicKey(t, 3), one), true},
		"a name that no object can have":            {dir, request("u8", "Plant 8", one, ""), false},
		"a folder that is not there":                {filepath.Join(dir, "gone"), request("u8", "plant-8", one, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			var wrong *Error
			_, err := Add(t.Context(), filepath.Join(tc.dir, "clusters.yaml"), tc.request, start)
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, tc.conflict, wrong.Conflict)
			require.NotEmpty(t, wrong.Hint)
		})
	}
}
