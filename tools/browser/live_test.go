package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Something changes while a page is open: the page says so, and no row moves.
func TestAPageIsMarkedWhenSomethingChanges(t *testing.T) {
	dir := t.TempDir()
	browser, hub := chromium(t), serve(t, dir, "--anonymous", "--data", filepath.Join(dir, "hub"))
	p := newTab(t, browser, hub, "")
	p.open("/clusters")
	add := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("WHERRY_E2E_PROGRAMS"), "wherry"), "hub", "clusters", "add", "box", "--uid", "box", "--type", "drone", "-e", "dev", "--reporting", "none", "--data", filepath.Join(dir, "hub"))
	out, err := add.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Eventually(t, func() bool { return p.text("#live") == "1 changed · refresh" }, timeout, 50*time.Millisecond)
	require.Empty(t, p.rows())
	p.follow(`//a[.="refresh"]`)
	require.Len(t, p.rows(), 1)
}
