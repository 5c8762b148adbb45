package demo

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/examples"
	"github.com/wherry-dev/wherry/publisher/platform"
)

func TestDemoEndsAsItTells(t *testing.T) {
	dir, talk := t.TempDir(), new(bytes.Buffer)
	result, err := Run(t.Context(), dir, Options{Talk: talk})
	require.NoError(t, err, talk.String())
	require.True(t, result.AsExpected(), "%+v\n%s", result, talk)

	byLink := map[string][]AgentResult{}
	for _, a := range result.Agents {
		byLink[a.Link] = append(byLink[a.Link], a)
	}
	require.Len(t, byLink[linkNetwork], 2)
	require.Len(t, byLink[linkMedia], 1)
	attacked := byLink[linkNetwork][1]
	require.Equal(t, bundle.Rejected, attacked.State)
	require.NotEqual(t, attacked.Release.Refused.Digest, attacked.Release.Running.Digest)

	require.Contains(t, applied(t, byLink[linkNetwork][0].Applied), newValue, "the update arrived")
	require.Contains(t, applied(t, attacked.Applied), oldValue, "the last good state stays")
	require.NotContains(t, applied(t, attacked.Applied), newValue)
	require.Contains(t, applied(t, byLink[linkMedia][0].Applied), newValue, "so it did by tarball")
}

// applied is the text of all files below dir.
func applied(t *testing.T, dir string) string {
	var all bytes.Buffer
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	}))
	return all.String()
}

// own is the example, as a reader would have it in folders.
func own(t *testing.T) platform.Source {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, examples.FS))
	in := func(elem ...string) string {
		return filepath.Join(append([]string{dir, examples.Demo}, elem...)...)
	}
	return platform.Source{
		Platform: in("prod"), Bases: []string{in("main")},
		Workloads: map[string]string{"roasting": in("workloads", "roasting"), "storefront": in("workloads", "storefront")},
	}
}

func TestDemoOfTheReadersOwnPlatform(t *testing.T) {
	sources := own(t)
	result, err := Run(t.Context(), t.TempDir(), Options{Sources: sources})
	require.NoError(t, err)
	require.True(t, result.AsExpected(), "%+v", result)
	require.Equal(t, "prod", result.Agents[0].Environment, "the folder's name says which environment it is")
	require.Equal(t, bundle.Rejected, result.Agents[1].State)
}

func TestDemoOfAnEnvironmentThatHasNothing(t *testing.T) {
	sources := own(t)
	sources.Environment = "stage"
	_, err := Run(t.Context(), t.TempDir(), Options{Sources: sources})
	require.ErrorContains(t, err, sources.Platform+`: no Environment object is called "stage" (known: dev, prod)`)
	require.NoError(t, os.RemoveAll(filepath.Join(sources.Bases[0], ".environments")))
	_, err = Run(t.Context(), t.TempDir(), Options{Sources: sources})
	require.ErrorIs(t, err, ErrNothingAssigned, "nothing says which there are")
}

func TestDemoEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, t.TempDir(), Options{})
	require.ErrorIs(t, err, context.Canceled)
}
