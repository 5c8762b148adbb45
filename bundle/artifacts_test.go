package bundle

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func TestArtifactsReadBackAsWritten(t *testing.T) {
	image := Artifact{Type: ArtifactImage, Name: "docker.io/library/nginx", Reference: "docker.io/library/nginx:1.29", Digest: "sha256:aa", Size: 40, UsedBy: []string{"web-dev"}}
	other := image
	other.UsedBy, other.Size = []string{"app-dev", "web-dev"}, 0
	source := Artifact{Type: ArtifactGit, Name: "example.com/app", Reference: "https://example.com/app#dev", Unresolved: true, UsedBy: []string{"app-dev"}}

	list := MergeArtifacts([]Artifact{image, source, other})
	reversed := MergeArtifacts([]Artifact{other, source, image})
	require.Equal(t, list, reversed, "the order in which they were found does not matter")
	merged := image
	merged.UsedBy = []string{"app-dev", "web-dev"}
	require.Equal(t, []Artifact{source, merged}, list)
	require.Equal(t, []string{"web-dev"}, image.UsedBy, "the argument stays as it is")

	require.Equal(t, []Artifact{image}, ArtifactsOf(list, "web-dev"))
	require.Empty(t, ArtifactsOf(list, "other"))

	data, sum, err := MarshalArtifacts(list)
	require.NoError(t, err)
	require.Equal(t, Artifacts{Digest: digest.FromBytes(data), Count: 2, Bytes: 40}, sum)
	got, err := ParseArtifacts(data)
	require.NoError(t, err)
	require.Equal(t, list, got)

	data, sum, err = MarshalArtifacts(nil)
	require.NoError(t, err)
	require.Empty(t, data)
	require.Equal(t, Artifacts{}, sum)
}

func TestParseArtifactsRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"no JSON":         "image: x\n",
		"no type":         `{"reference":"x"}`,
		"no reference":    `{"type":"image"}`,
		"a negative size": `{"type":"image","reference":"x","size":-1}`,
		"a long line":     `{"type":"image","reference":"` + strings.Repeat("x", maxArtifactLine) + `"}`,
	} {
		_, err := ParseArtifacts([]byte(data))
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal, name)
	}
	_, err := ParseArtifacts(slices.Concat([]byte(`{"type":"model","reference":"x","later":1}`), []byte("\n")))
	require.NoError(t, err, "later versions may know more")
}
