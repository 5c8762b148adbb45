package lint

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/platformtest"
)

// memory is a cache that counts its puts.
type memory struct {
	mu   sync.Mutex
	data map[string][]byte
	puts int
}

func (m *memory) Get(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[key]
}

func (m *memory) Put(key string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data[key], m.puts = data, m.puts+1
}

func TestWithACacheTheFindingsAreTheSame(t *testing.T) {
	dir, cache := t.TempDir(), &memory{data: map[string][]byte{}}
	require.NoError(t, platformtest.Write(dir, 12))
	check := func() []string {
		t.Helper()
		var texts [][]string
		for _, c := range []scheduler.Cache{nil, cache, cache} {
			m := scheduler.NewModel("dev")
			require.NoError(t, m.Load(t.Context(), scheduler.Source{FS: os.DirFS(dir)}))
			report, err := Run(t.Context(), m, Options{Cache: c})
			require.NoError(t, err)
			require.NotEmpty(t, report.Findings)
			var all []string
			for _, f := range report.Findings {
				all = append(all, f.Code+" "+f.String())
			}
			texts = append(texts, all)
		}
		require.Equal(t, texts[0], texts[1], "an empty or old cache")
		require.Equal(t, texts[0], texts[2], "a full cache")
		return texts[0]
	}
	before := check()
	puts := cache.puts
	require.Equal(t, before, check())
	require.Equal(t, puts, cache.puts, "nothing has changed")
	require.NoError(t, platformtest.ChangeRegion(dir, "\"{a: 1}\""))
	require.NotEqual(t, before, check())
}

func TestSightsAreReadAsTheyWereWritten(t *testing.T) {
	all := []sight{
		{Place: "a.yaml, document 1", Kind: "ConfigMap", Name: "x"},
		{Place: "b.yaml, document 1", Code: "E1206", Message: "m", Hint: "h", Same: "k", At: atConfig, About: "k"},
	}
	data := encodeSights(all)
	got, ok := decodeSights(data)
	require.True(t, ok)
	require.Equal(t, all, got)
	for n := range data { // a torn entry, or another's
		_, _ = decodeSights(data[:n])
		broken := slices.Clone(data)
		broken[n] ^= 0xff
		_, _ = decodeSights(broken)
	}
}
