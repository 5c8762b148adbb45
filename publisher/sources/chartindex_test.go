package sources

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheVersionsOfOneChartInAnIndex(t *testing.T) {
	want := []chartVersion{{Version: "1.10", Digest: "abc", URLs: []string{"web-1.10.tgz", "https://x/web.tgz"}}, {Version: "1.9.0", Digest: "def"}}
	for name, index := range map[string]string{
		"as Helm writes it":               "apiVersion: v1\nentries:\n  aaa:\n  - version: 0.1.0\n    description: |\n      web:\n       - x\n  web:\n  - apiVersion: v2\n    version: 1.10\n    digest: abc\n    urls:\n    - web-1.10.tgz\n    - https://x/web.tgz\n  - digest: def\n    version: 1.9.0\n  zzz:\n  - version: 9.9.9\ngenerated: \"2026\"\n",
		"indented, quoted, with comments": "# index\n---\nentries: # of all\n    \"aaa\":\n      - version: 0.1.0\n    # ours\n    'web':\n\n      - version: \"1.10\"\n        digest: abc\n        urls: [web-1.10.tgz, 'https://x/web.tgz']\n      - {digest: def, version: 1.9.0}",
		"as the last, with CRLF":          "entries:\r\n  web:\r\n  - version: \"1.10\"\r\n    digest: abc\r\n    urls: [web-1.10.tgz, https://x/web.tgz]\r\n  - {digest: def, version: 1.9.0}\r\n",
		"JSON":                            `{"apiVersion":"v1","entries":{"aaa":[{"urls":[{"a":[]}]}],"web":[{"version":"1.10","digest":"abc","urls":["web-1.10.tgz","https://x/web.tgz"]},{"version":"1.9.0","digest":"def"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := versionsOf(strings.NewReader(index), "web")
			require.NoError(t, err)
			require.Equal(t, want, got)
			got, err = versionsOf(strings.NewReader(index), "we")
			require.NoError(t, err)
			require.Empty(t, got)
		})
	}
}

func TestAnIndexThatIsRefused(t *testing.T) {
	for index, want := range map[string]string{
		"entries: {web: [{version: 1}]}\n": "its entries are not one chart a line, as Helm writes them, and it is not JSON",
		"entries:\n  web:\n  - a: [\n":     "yaml: line 2: did not find expected node content",
		`{"entries":{"web":[`:              "unexpected EOF",
		"entries:\n  web:\n" + strings.Repeat("  - version: 1.0.0\n", 500_000):                                                                   `too large: more than 8388608 bytes about the chart "web"`,
		"entries:\n  web:\n  - version: 1.0.0\n    x: &a \"" + strings.Repeat("x", 1<<16) + "\"\n    y: [" + strings.Repeat("*a,", 1000) + "]\n": "too large: more than 33554432 bytes, with each alias counted as what it stands for",
	} {
		_, err := versionsOf(strings.NewReader(index), "web")
		require.EqualError(t, err, want)
	}
	_, err := versionsOf(io.LimitReader(endless("entries:\n", "  x:\n"), 100<<20), "web")
	require.EqualError(t, err, "too large: the server sends more than 67108864 bytes")
}

// endless returns a reader of a text, and of another one again and again.
func endless(first, again string) io.Reader {
	return &repeated{rest: first, again: strings.Repeat(again, 10_000)}
}

type repeated struct{ rest, again string }

func (r *repeated) Read(p []byte) (int, error) {
	if r.rest == "" {
		r.rest = r.again
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// 60 MiB of index, which gzip sends as 61 KB, took 4 GiB. The other charts take no memory, and those of the chart itself as
// much as their length.
func TestAnIndexTakesTheMemoryOfOneChart(t *testing.T) {
	allocated := func(index io.Reader) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := versionsOf(index, "web")
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		return after.TotalAlloc - before.TotalAlloc
	}
	other := "  x:\n  - version: 1.0.0\n    urls: [a, b, c]\n"
	require.Less(t, allocated(io.LimitReader(endless("entries:\n", other), 60<<20)), uint64(2<<20))
	one := allocated(strings.NewReader("entries:\n  web:\n" + strings.Repeat("  - {version: 1.0.0, urls: [a]}\n", 2_000)))
	four := allocated(strings.NewReader("entries:\n  web:\n" + strings.Repeat("  - {version: 1.0.0, urls: [a]}\n", 8_000)))
	require.Less(t, float64(four)/float64(one), 6.0)
}
