package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePageOnReliabilityNamesNoTestThatIsNot(t *testing.T) {
	page, err := os.ReadFile("../docs/reliability.md")
	require.NoError(t, err)
	var source strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		source.Write(data)
		return err
	}))
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1) {
		require.Contains(t, source.String(), "func "+name[1]+"(t *testing.T)")
	}
}
