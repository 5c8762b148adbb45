package zarf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatMayQuoteASecretIsWithheld(t *testing.T) {
	for name, c := range map[string]struct{ words, want string }{
		"a refusal that quotes a value": {`Secret "till" is invalid: data[pin]: Invalid value: "1234"`, `Secret "till" is invalid: data[pin]: Invalid value, in words that are withheld as they may quote the Secret`},
		"a refusal of another kind":     {`Service "till" is invalid: spec.ports[0].port: Invalid value: 80000`, `Service "till" is invalid: spec.ports[0].port: Invalid value: 80000`},
		"the password of the key":       {"cannot decrypt with open-sesame", "cannot decrypt with ***"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, withhold(c.words, "open-sesame")) })
	}
}

func TestZarfsLogIsReadWhateverIsBetweenItsLines(t *testing.T) {
	last, problem, rest := readLog(`{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"starting deploy","package":"shop"}
kind: ZarfPackageConfig
{"level":"ERROR","msg":"failed to deploy package"}
{"level":"INFO","msg":"deploying component","name":"menu"}
{not json
`)
	require.Equal(t, "deploying component menu", last.String())
	require.Equal(t, "failed to deploy package", problem.String())
	require.Equal(t, "kind: ZarfPackageConfig\n{not json\n", rest)
}

func FuzzReadLog(f *testing.F) {
	f.Add(`{"level":"ERROR","msg":"x"}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		last, problem, _ := readLog(text)
		require.True(t, problem.Message == "" || last.Message != "")
	})
}

func TestReleasesAreNamedAsZarfNamesThem(t *testing.T) {
	d, err := parseDefinition("kind: ZarfPackageConfig\nmetadata: {name: large}\ncomponents:\n- {name: large, required: true, manifests: [{name: all}], charts: [{name: db, namespace: data}, {name: web, releaseName: front, namespace: web, noWait: true}]}\n")
	require.NoError(t, err)
	require.Equal(t, []release{
		{"data", "db", false},
		{"web", "front", true},
		{"default", "zarf-58e9d61e596c42c2d8cc53a9ee73ac7e07415a68", false},
	}, releases(d.Name, d.Components[0]))
}
