package textdiff

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnified(t *testing.T) {
	for name, c := range map[string]struct{ old, now, want string }{
		"equal":         {"a\nb\n", "a\nb\n", ""},
		"one line":      {"a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		"a new file":    {"", "a\n", "@@ -0,0 +1 @@\n+a\n"},
		"a file gone":   {"a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		"far apart":     {"a\n1\n2\n3\n4\n5\n6\n7\nz\n", "A\n1\n2\n3\n4\n5\n6\n7\nZ\n", "@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-z\n+Z\n"},
		"near together": {"a\n1\n2\nb\n", "A\n1\n2\nB\n", "@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n-b\n+B\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, left := Unified(Lines(c.old), Lines(c.now), 100)
			require.Equal(t, c.want, got)
			require.Zero(t, left)
		})
	}
}

func TestTheKeyIsComparedAndTheTextShown(t *testing.T) {
	got, _ := Unified([]Line{{Text: "password: (secret)", Key: "password: a"}}, []Line{{Text: "password: (secret)", Key: "password: b"}}, 100)
	require.Equal(t, "@@ -1 +1 @@\n-password: (secret)\n+password: (secret)\n", got)
}

func TestALongDifferenceIsCut(t *testing.T) {
	var old, now strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&old, "old %d\n", i)
		fmt.Fprintf(&now, "now %d\n", i)
	}
	got, left := Unified(Lines(old.String()), Lines(now.String()), 50)
	require.Equal(t, 50, strings.Count(got, "\n"))
	require.Equal(t, 6000+1-50, left)
}

// What it writes for any two texts, patch makes the second of the first.
func TestPatchReadsIt(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range r.IntN(30) {
			fmt.Fprintf(&b, "%d\n", r.IntN(6))
		}
		if r.IntN(4) == 0 {
			b.WriteString("without end")
		}
		return b.String()
	}
	dir := t.TempDir()
	for range 60 {
		old, now := text(), text()
		hunks, _ := Unified(Lines(old), Lines(now), 1000)
		if old == now || old == "" || now == "" {
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(old), 0o600))
		cmd := exec.Command("git", "apply", "--unidiff-zero", "-")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader("--- a/f\n+++ b/f\n"+hunks)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s\n→\n%s\n%s", out, old, now, hunks)
		got, err := os.ReadFile(filepath.Join(dir, "f"))
		require.NoError(t, err)
		require.Equal(t, now, string(got))
	}
}
