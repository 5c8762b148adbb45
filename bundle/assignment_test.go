package bundle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func TestAssignmentsReadBackAsWritten(t *testing.T) {
	want := []Assignment{
		{
			Name: "shop-dev", Workspace: "team-a", Workload: "shop", Target: "dev", Namespace: "dev-drone-shop-dev", Policies: []string{"all"},
			Config: []ConfigSource{{Name: "<common>"}}, Adapter: "kubernetes", Content: digest.FromString("files"),
		},
		{
			Name: "stall-dev", Workload: "stall", Target: "dev", Adapter: "flux", Version: "1.2.0", Wave: -1, DependsOn: []string{"shop-dev"},
			Drift: "report", OnFailure: "hold", OnRemove: "orphan", Health: []string{".status.phase == Running"}, RestartOnConfig: true,
			Content: digest.FromString("y"),
		},
		{Name: "till-dev", Workload: "till", Target: "dev", Adapter: "directory", HeldFrom: &Held{Sequence: 4, Reason: "schema"}, Content: digest.FromString("x")},
	}
	data, err := MarshalAssignments(want)
	require.NoError(t, err)
	require.Contains(t, string(data), "<common>", "the file is read by people too")
	got, err := ParseAssignments(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestDesiredChangesWithWhatReconcilersMakeOfTheFiles(t *testing.T) {
	plain := Assignment{Name: "shop-dev", Content: digest.FromString("files"), ConfigDigest: digest.FromString("config"), Drift: "report"}
	require.Equal(t, plain.Content, plain.Desired(), "also for agents that know no settings")
	seen := map[digest.Digest]bool{plain.Desired(): true}
	for _, change := range []func(*Assignment){
		func(a *Assignment) { a.Health = []string{"Pump: .status.phase == Running"} },
		func(a *Assignment) { a.Health = []string{"Pump: .status.phase == Running", "Pump: .status.rate == 3"} },
		func(a *Assignment) { a.RestartOnConfig = true },
		func(a *Assignment) { a.RestartOnConfig, a.ConfigDigest = true, digest.FromString("other") },
		func(a *Assignment) { a.RestartOnConfig, a.Content = true, digest.FromString("other") },
		func(a *Assignment) { a.ServiceAccount = "shop/wherry-retail" },
		func(a *Assignment) {
			a.Fetched = []FetchedArtifact{{Reference: "oci://registry.example/models/eye", Digest: digest.FromString("model")}}
		},
	} {
		a := plain
		change(&a)
		require.False(t, seen[a.Desired()], a)
		seen[a.Desired()] = true
	}
}

func TestFieldsOfLaterVersionsArePassedOver(t *testing.T) {
	got, err := ParseAssignments([]byte(`{"name":"shop-dev","adapter":"flux","priority":7,"placement":{"zone":"a"}}`))
	require.NoError(t, err)
	require.Equal(t, []Assignment{{Name: "shop-dev", Adapter: "flux"}}, got)
}

func TestParseAssignmentsRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"no JSON":              "name: shop\n",
		"no name":              `{"workload":"shop"}`,
		"a name with a slash":  `{"name":"../shop"}`,
		"a hidden name":        `{"name":".wherry"}`,
		"one name twice":       `{"name":"shop"}` + "\n" + `{"name":"shop"}`,
		"no digest":            `{"name":"shop","fetched":[{"reference":"oci://registry.example/models/eye:1"}]}`,
		"an odd digest":        `{"name":"shop","fetched":[{"reference":"oci://registry.example/models/eye","digest":"sha256:../.."}]}`,
		"a line of a megabyte": `{"name":"` + string(make([]byte, 1<<20)) + `"}`,
	} {
		_, err := ParseAssignments([]byte(data))
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal, name)
	}
}

func TestContentDigestSeesPathContentAndMode(t *testing.T) {
	base := []File{{Path: "a", Data: []byte("1")}, {Path: "b", Data: []byte("2")}}
	want := ContentDigest(base)
	require.Equal(t, want, ContentDigest([]File{base[1], base[0]}), "order does not matter")
	for name, files := range map[string][]File{
		"content": {{Path: "a", Data: []byte("1!")}, base[1]},
		"path":    {{Path: "c", Data: []byte("1")}, base[1]},
		"mode":    {{Path: "a", Data: []byte("1"), Executable: true}, base[1]},
		"file":    {base[0]},
	} {
		require.NotEqual(t, want, ContentDigest(files), name)
	}
}

func TestContentDigestOfAFolderIsThatOfItsFiles(t *testing.T) {
	dir := t.TempDir()
	var files []File
	for _, f := range []File{{Path: "a/b", Data: []byte("1")}, {Path: "a.b", Data: []byte("2")}, {Path: "run", Executable: true}} {
		path := filepath.Join(dir, "shop", f.Path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, f.Data, f.mode()))
		files = append(files, f)
	}
	got, err := ContentDigestOf(os.DirFS(dir), "shop")
	require.NoError(t, err)
	require.Equal(t, ContentDigest(files), got)
	got, err = ContentDigestOf(os.DirFS(dir), "nothing")
	require.NoError(t, err)
	require.Equal(t, ContentDigest(nil), got)
}

func TestWhatIsFetchedBelongsToWhatIsDesired(t *testing.T) {
	content, one, two := ContentDigest(nil), digest.FromString("1"), digest.FromString("2")
	desired := func(reference string, d digest.Digest) digest.Digest {
		return Assignment{Content: content, Fetched: []FetchedArtifact{{Reference: reference, Digest: d}}}.Desired()
	}
	require.Equal(t, content, Assignment{Content: content}.Desired())
	base := desired("oci://registry.example:5000/models/eye:1", one)
	require.NotEqual(t, content, base)
	require.NotEqual(t, base, desired("oci://registry.example:5000/models/eye:1", two))
	require.NotEqual(t, base, desired("oci://registry.example:5000/models/ear:1", one))
	require.Equal(t, base, desired("oci://registry.example:5000/models/eye@"+one.String(), one), "a tag is only for people")
	require.NotEqual(t, base, Assignment{Content: one, Fetched: []FetchedArtifact{{Reference: "oci://registry.example:5000/models/eye", Digest: one}}}.Desired())
}
