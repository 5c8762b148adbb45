package oci_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestCredentialsOfAFile(t *testing.T) {
	t.Parallel()
	const entry = `{"registry.plant-7:5000":{"username":"u","password":"p","auth":"YWdlbnQ6c2VjcmV0"},"https://index.docker.io/v1/":{"auth":"ZG9ja2VyOnNlY3JldA=="}}`
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(`{"auths":`+entry+`}`), 0o600))
	ask, err := oci.Credentials(file)
	require.NoError(t, err)
	for host, want := range map[string]auth.Credential{
		"registry.plant-7:5000": {Username: "agent", Password: "secret"},
		"registry-1.docker.io":  {Username: "docker", Password: "secret"},
		"registry.other":        {},
	} {
		got, err := ask(t.Context(), host)
		require.NoError(t, err)
		require.Equal(t, want, got, host)
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"auths":{}}`), 0o600))
	got, err := ask(t.Context(), "registry.plant-7:5000")
	require.NoError(t, err)
	require.Equal(t, auth.EmptyCredential, got, "the file is read again")
}
