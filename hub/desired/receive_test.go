package desired

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// pack returns the repositories of a world as an archive, without the blobs that leave reports.
func (w *world) pack(leave func(d ocispec.Descriptor) bool, repositories ...string) []byte {
	w.t.Helper()
	ctx := w.t.Context()
	var named []ocispec.Descriptor
	var blobs []bundle.Blob
	for _, name := range repositories {
		repo := w.repo(name)
		tags, err := repo.Tags(ctx)
		require.NoError(w.t, err)
		for _, tag := range tags {
			desc, err := repo.Resolve(ctx, tag)
			require.NoError(w.t, err)
			data, err := bundle.ReadBlob(ctx, repo, desc, bundle.MaxManifestBytes)
			require.NoError(w.t, err)
			desc.Annotations = map[string]string{ocispec.AnnotationRefName: name + "/" + tag}
			named = append(named, desc)
			blobs = append(blobs, bundle.Blob{Descriptor: desc, Data: data})
			if v, err := bundle.Read(ctx, repo, desc); err == nil && !leave(v.Tree) {
				data, err := bundle.ReadBlob(ctx, repo, v.Tree, 1<<20)
				require.NoError(w.t, err)
				blobs = append(blobs, bundle.Blob{Descriptor: v.Tree, Data: data})
			}
		}
	}
	var out bytes.Buffer
	a := airgap.NewWriter(&out)
	require.NoError(w.t, a.Index(named))
	for _, b := range blobs {
		require.NoError(w.t, a.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }))
	}
	require.NoError(w.t, a.Close())
	return out.Bytes()
}

func nothing(ocispec.Descriptor) bool { return false }

func anything(ocispec.Descriptor) bool { return true }

func receive(t *testing.T, f *Follower, archive []byte) (Learned, error) {
	return f.Receive(t.Context(), bytes.NewReader(archive), int64(len(archive)), func(string, string) error { return nil })
}

func TestAnArchiveIsLearnedLikeALocation(t *testing.T) {
	w := newWorld(t)
	d := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	w.record(1, map[string]digest.Digest{"drone": d}, w.key)

	first, err := receive(t, w.follower, w.pack(anything, "environments/dev", "bundles/dev/drone"))
	require.NoError(t, err)
	require.False(t, first.Stored)
	require.Len(t, first.MissingContent(), 1)
	require.Empty(t, w.records(), "a record is stored with its releases")

	second, err := receive(t, w.follower, w.pack(nothing, "environments/dev", "bundles/dev/drone"))
	require.NoError(t, err)
	require.Equal(t, []any{true, true, true, 1}, []any{second.Stored, second.New, second.Newest, second.Releases})
	require.Equal(t, []string{"s0-1"}, w.records())
	r, err := w.store.Release(t.Context(), d)
	require.NoError(t, err)
	require.Len(t, r.Assignments, 1)

	again, err := receive(t, w.follower, w.pack(anything, "environments/dev", "bundles/dev/drone"))
	require.NoError(t, err)
	require.Equal(t, []any{true, false, true, 0}, []any{again.Stored, again.New, again.Newest, again.Releases})

	older := w.pack(nothing, "environments/dev")
	w.record(2, map[string]digest.Digest{"drone": d}, w.key)
	w.look()
	replayed, err := receive(t, w.follower, older)
	require.NoError(t, err)
	require.False(t, replayed.Newest)
}

func TestArchivesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	other := newKey(t)
	forged := w.release("drone", 1, map[string]string{"a-x/f": "1"}, other)
	w.record(1, map[string]digest.Digest{"drone": forged}, w.key)
	good := w.pack(nothing, "environments/dev", "bundles/dev/drone")

	done, err := receive(t, w.follower, good)
	require.NoError(t, err)
	require.Equal(t, string(bundle.UntrustedKey), done.Refused[0].Reason)
	require.Empty(t, w.releases())

	f := New(w.store, Trust{}, Options{})
	_, err = receive(t, f, good)
	require.ErrorIs(t, err, ErrNoTrust)
	f = New(w.store, Trust{Keys: bundle.Keys{other.Public()}}, Options{})
	_, err = receive(t, f, good)
	require.ErrorContains(t, err, "UntrustedKey")

	w.putRecord("prod", w.newRecord("prod", 1, nil), w.key)
	for name, archive := range map[string][]byte{
		"nothing": nil, "text": []byte(strings.Repeat("no tar ", 200)), "cut short": good[:len(good)/3],
		"no record": w.pack(nothing, "bundles/dev/drone"), "two records": w.pack(nothing, "environments/dev", "environments/prod"),
	} {
		_, err := receive(t, w.newFollower(), archive)
		require.ErrorIs(t, err, store.ErrInvalid, name)
	}
	for i := 0; i < len(good); i += 97 { // each changed byte is refused, or changes nothing that counts
		bad := bytes.Clone(good)
		bad[i] ^= 0x20
		f := New(newMemory(), w.trust, w.opts)
		if done, err := receive(t, f, bad); err == nil && done.Stored {
			require.Equal(t, "c0ffee", f.store.(*memory).records[done.Record].BaseCommit)
		}
	}

	denied := errors.New("not yours")
	_, err = w.newFollower().Receive(context.Background(), bytes.NewReader(good), int64(len(good)), func(platform, environment string) error {
		require.Equal(t, "shop/dev", platform+"/"+environment)
		return denied
	})
	require.ErrorIs(t, err, denied)
}
