package airgap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

const (
	layoutFile = `{"imageLayoutVersion":"1.0.0"}`
	latestOf   = `"annotations":{"org.opencontainers.image.ref.name":"bundles/dev/drone/latest"}`
)

// FuzzOpen reads any file as a site's, as a file of reports and as one of acknowledgements. The index, with
// which a hostile file begins, is varied apart from the rest, which has no checksum that a change would break.
func FuzzOpen(f *testing.F) {
	var reports bytes.Buffer
	require.NoError(f, WriteReports(&reports, [][]byte{[]byte("{}")}))
	f.Add(reports.Bytes(), []byte(nil), []byte(nil))
	f.Add([]byte("hello"), []byte(nil), []byte(nil))
	for _, index := range []string{
		`{"manifests":[{"digest":"",` + latestOf + `}]}`,
		`{"manifests":[{"digest":"sha256:../../../etc/passwd","size":-1,` + latestOf + `}]}`,
		`{"manifests":[{"digest":"sha256:` + strings.Repeat("0", 64) + `","size":4611686018427387904,` + latestOf + `}]}`,
		`{"manifests":[{"digest":"sha256:` + strings.Repeat("0", 64) + `","size":2,"data":"e30=",` + latestOf + `}]}`,
	} {
		f.Add([]byte(nil), []byte(index), []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, file, index, blob []byte) {
		if len(index) > 0 {
			b := bundle.NewBlob("", blob).Descriptor
			file = tarOf(t, ocispec.ImageLayoutFile, layoutFile, ocispec.ImageIndexFile, string(index), archive.BlobPath(b.Digest), string(blob))
		}
		path := write(t, file)
		site, err := oci.Location{Archive: path}.Open(oci.Options{})
		require.NoError(t, err)
		names, _ := site.Repositories(t.Context())
		for _, name := range names {
			if repo, err := site.Repository(name); err == nil {
				judge(t, repo)
			}
		}
		_, _ = ReadReports(path)
		_, _ = ReadAck(path)
	})
}

// judge does what an agent does with an offer. Nothing of it is signed.
func judge(t *testing.T, src bundle.Source) {
	desc, err := src.Resolve(context.Background(), bundle.LatestTag)
	if err != nil {
		return
	}
	_, err = bundle.Verify(context.Background(), src, desc, bundle.Trust{})
	require.Error(t, err)
	if blob, err := src.Fetch(context.Background(), desc); err == nil {
		n, err := io.Copy(io.Discard, io.LimitReader(blob, desc.Size+1))
		require.NoError(t, err)
		require.LessOrEqual(t, n, desc.Size)
	}
}

func TestAnIndexOfTooManyManifestsIsRefused(t *testing.T) {
	index := `{"manifests":[` + strings.Repeat("{},", archive.MaxManifests) + `{}]}`
	_, err := ReadReports(write(t, tarOf(t, ocispec.ImageLayoutFile, layoutFile, ocispec.ImageIndexFile, index)))
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, fmt.Sprint(archive.MaxManifests+1))
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.tar")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}
