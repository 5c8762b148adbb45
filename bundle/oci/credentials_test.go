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

func TestCredentialsOfPullSecrets(t *testing.T) {
	t.Parallel()
	named := func(user string) string { return `{"username":"` + user + `","password":"secret"}` }
	const legacy = `{"https://registry.plant-7:5000/v1/":{"auth":"YWdlbnQ6c2VjcmV0","email":"a@b"},"*.example.com":{"username":"any","password":"secret"}}`
	for name, c := range map[string]struct{ file, host, user string }{
		"the older form":                        {legacy, "registry.plant-7:5000", "agent"},
		"a part of the name, in the older form": {legacy, "edge.example.com", "any"},
		"a part of the name":                    {`{"auths":{"*.example.com":` + named("any") + `}}`, "edge.example.com", "any"},
		"half of a part":                        {`{"auths":{"edge-*.example.com":` + named("any") + `}}`, "edge-7.example.com", "any"},
		"no more than one part":                 {`{"auths":{"*.example.com":` + named("any") + `}}`, "a.edge.example.com", ""},
		"and no less":                           {`{"auths":{"*.example.com":` + named("any") + `}}`, "example.com", ""},
		"another port":                          {`{"auths":{"*.example.com":` + named("any") + `}}`, "edge.example.com:5000", ""},
		"the same port":                         {`{"auths":{"https://*.example.com:5000/team":` + named("any") + `}}`, "edge.example.com:5000", "any"},
		"the name itself goes before":           {`{"auths":{"*.example.com":` + named("any") + `,"edge.example.com":` + named("edge") + `}}`, "edge.example.com", "edge"},
		"the longer name goes before":           {`{"auths":{"*.example.com":` + named("any") + `,"ed*.example.com":` + named("ed") + `}}`, "edge.example.com", "ed"},
		"docker's own, in the older form":       {`{"https://index.docker.io/v1/":` + named("docker") + `}`, "registry-1.docker.io", "docker"},
		"a name that is not a pattern":          {`{"auths":{"[.example.com":` + named("any") + `}}`, "edge.example.com", ""},
		"none":                                  {`{}`, "edge.example.com", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(file, []byte(c.file), 0o600))
			ask, err := oci.Credentials(file)
			require.NoError(t, err)
			got, err := ask(t.Context(), c.host)
			require.NoError(t, err)
			require.Equal(t, c.user, got.Username)
			require.Equal(t, c.user != "", got.Password == "secret")
		})
	}
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(`["secret"]`), 0o600))
	_, err := oci.Credentials(file)
	require.ErrorContains(t, err, "holds no credentials")
	require.NotContains(t, err.Error(), `"secret"`)
}
