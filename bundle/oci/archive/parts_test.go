package archive

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func goodParts() Parts {
	d := digest.FromString("x")
	return Parts{Schema: PartsSchema, Name: "site.tar", Bytes: 9, Digest: d, Parts: []Part{{"site.tar.001", 5, d}, {"site.tar.002", 4, d}}}
}

func TestTheManifestOfParts(t *testing.T) {
	data, err := goodParts().Marshal()
	require.NoError(t, err)
	got, err := ParseParts(data)
	require.NoError(t, err)
	require.Equal(t, goodParts(), got)

	for says, change := range map[string]func(*Parts){
		"it names 0 parts":                             func(p *Parts) { p.Parts = nil },
		"it names 1000 parts":                          func(p *Parts) { p.Parts = make([]Part, 1000) },
		"it names no file with its digest":             func(p *Parts) { p.Name = "../site.tar" },
		`"/etc/passwd" is no part`:                     func(p *Parts) { p.Parts[0].Name = "/etc/passwd" },
		`"a\nb" is no part`:                            func(p *Parts) { p.Parts[0].Name = "a\nb" },
		`names "SITE.tar.001" twice`:                   func(p *Parts) { p.Parts[1].Name = "SITE.tar.001" },
		"the parts are larger than the file of 8":      func(p *Parts) { p.Bytes = 8 },
		"the parts are smaller than the file of 10":    func(p *Parts) { p.Bytes = 10 },
		`"site.tar.002" is no part`:                    func(p *Parts) { p.Parts[1].Digest = "sha256:short" },
		`"site.tar.001" is no part`:                    func(p *Parts) { p.Parts[0].Bytes = -5 },
		"the parts are larger than the file of -1 byt": func(p *Parts) { p.Bytes = -1 },
	} {
		p := goodParts()
		change(&p)
		data, err := p.Marshal()
		require.NoError(t, err)
		_, err = ParseParts(data)
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, says)
	}
	_, err = ParseParts([]byte(strings.Replace(string(data), `"schema": 1`, `"schema": 2`, 1)))
	require.ErrorContains(t, err, "use a newer wherry")
}
