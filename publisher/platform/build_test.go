package platform

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func coffee() Source {
	return Source{
		Platform: "../../examples/coffee/dev", Environment: "dev", Bases: []string{"../../examples/coffee/main"},
		Workloads: map[string]string{
			"storefront": "../../examples/coffee/workloads/storefront", "roasting": "../../examples/coffee/workloads/roasting",
		},
	}
}

// filesOf counts the rendered files.
func filesOf(result *scheduler.Result) (files int) {
	for _, ct := range result.ClusterTypes {
		for _, a := range ct.Assignments {
			files += len(a.Files)
		}
	}
	return files
}

func TestBundlesArePackedAsTheyAreRenderedUnlessSomethingIsUnread(t *testing.T) {
	plain, err := Build(t.Context(), coffee(), Options{})
	require.NoError(t, err)
	require.Nil(t, plain.Packed)
	require.NotZero(t, filesOf(plain.Result))

	packed, err := Build(t.Context(), coffee(), Options{Pack: true})
	require.NoError(t, err)
	require.NotNil(t, packed.Packed)
	require.Zero(t, filesOf(packed.Result), "they are in the bundles")

	src := coffee()
	delete(src.Workloads, "roasting")
	src.Mirrors = map[string]string{"https://": t.TempDir() + "/"}
	unread, err := Build(t.Context(), src, Options{Pack: true})
	require.NoError(t, err)
	require.Len(t, unread.Loaded.Unread, 1)
	require.Nil(t, unread.Packed, "what is held for it is known only when it is published")

	delete(src.Workloads, "storefront")
	unread, err = Build(t.Context(), src, Options{})
	require.NoError(t, err)
	for _, w := range unread.Result.Warnings {
		require.NotEqual(t, finding.CodeNoTarget, w.Code, "what could not be read may be what a policy selects")
	}
}

func TestOptionsMayFollowFromWhatWasRead(t *testing.T) {
	built, err := Build(t.Context(), coffee(), Options{AfterLoad: func(_ context.Context, loaded *Loaded, opts *Options) error {
		require.Equal(t, "dev", loaded.Model.EnvironmentName())
		opts.Pack = true
		return nil
	}})
	require.NoError(t, err)
	require.NotNil(t, built.Packed)

	refused := errors.New("refused")
	built, err = Build(t.Context(), coffee(), Options{AfterLoad: func(context.Context, *Loaded, *Options) error { return refused }})
	require.ErrorIs(t, err, refused)
	require.Nil(t, built.Result)
}

func TestTheLogHasWhatWasFetchedForEachRegistration(t *testing.T) {
	var log bytes.Buffer
	src := coffee()
	src.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err := Build(t.Context(), src, Options{Pin: &sources.Options{}})
	require.NoError(t, err)
	for _, registration := range []string{"roasting", "storefront"} {
		require.Regexp(t, `msg="budget used" registration=`+registration+` sources=0 requests=0 bytes=0 disk=0 time=\S+ cpu=0s`, log.String())
	}
}

// A publication asks first what may enter. It reads the platform once for both.
func TestBuildGoesOnWithAPlatformThatWasRead(t *testing.T) {
	whole, err := Build(t.Context(), coffee(), Options{})
	require.NoError(t, err)

	var log bytes.Buffer
	src := coffee()
	src.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	read, err := LoadPlatform(t.Context(), src)
	require.NoError(t, err)
	require.Contains(t, log.String(), "part=platform")
	log.Reset()
	built, err := Build(t.Context(), src, Options{Platform: read})
	require.NoError(t, err)
	require.Equal(t, whole.Result, built.Result)
	require.Equal(t, whole.Loaded.Followed.Folders, built.Loaded.Followed.Folders)
	require.Equal(t, whole.Loaded.BaseCommit, built.Loaded.BaseCommit)
	require.Contains(t, log.String(), "part=workload")
	require.NotContains(t, log.String(), "part=platform")
	require.NotContains(t, log.String(), "part=base")
}
