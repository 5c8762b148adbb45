package bundle

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
)

// shelf is a source of a few blobs.
type shelf map[digest.Digest][]byte

func (s shelf) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errors.New("no tags")
}

func (s shelf) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	data, ok := s[d.Digest]
	if !ok {
		return nil, errors.New("not there")
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func onShelf(blobs []Blob) (shelf, ocispec.Descriptor) {
	s := shelf{}
	for _, b := range blobs {
		s[b.Descriptor.Digest] = b.Data
	}
	return s, blobs[len(blobs)-1].Descriptor
}

func TestStoredReportsAreReadBackAsWhatTheyAre(t *testing.T) {
	envelopes := [][]byte{[]byte(`{"a":1}`), []byte(`{"b":"two"}`)}
	blobs, err := StoredReports(envelopes)
	require.NoError(t, err)
	again, err := StoredReports(envelopes)
	require.NoError(t, err)
	require.Equal(t, blobs, again, "the same envelopes make the same artifact")
	s, manifest := onShelf(blobs)
	got, err := FetchReports(t.Context(), s, manifest)
	require.NoError(t, err)
	require.Equal(t, envelopes, got)
	_, err = FetchAcks(t.Context(), s, manifest)
	require.ErrorContains(t, err, "BadContent", "reports are no acknowledgements")
	_, err = StoredReports([][]byte{[]byte("{\n")})
	require.Error(t, err)
}

func TestTheRepositoryOfACluster(t *testing.T) {
	for uid, want := range map[string]string{
		"plant-7":                              "reports/plant-7",
		"7f9c2ba4-e88f-4b2c-9d3e-8f6a5c0e1d2f": "reports/7f9c2ba4-e88f-4b2c-9d3e-8f6a5c0e1d2f",
		"Plant:7":                              "reports/x-",
		strings.Repeat("a", 129):               "reports/x-",
	} {
		got := ReportRepository(uid)
		if strings.HasPrefix(want, "reports/x-") {
			require.Regexp(t, `^reports/x-[0-9a-f]{32}$`, got)
			continue
		}
		require.Equal(t, want, got)
	}
	require.NotEqual(t, ReportRepository("Plant:7"), ReportRepository("plant:7"))
}

func FuzzParseReportTag(f *testing.F) {
	for _, tag := range []string{"r1-2", "r1772370000-17-0123456789ab", "ack", "r-1-2", "r1-99999999999999999999", "latest"} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		incarnation, seq, plain, ok := ParseReportTag(tag)
		if !ok {
			return
		}
		i, s, _, ok := ParseReportTag(ReportTag(incarnation, seq))
		require.True(t, ok)
		require.Equal(t, [2]int64{incarnation, seq}, [2]int64{i, s})
		require.Equal(t, plain, strings.Count(tag, "-") == 1)
	})
}

func FuzzFetchReports(f *testing.F) {
	blobs, err := StoredReports([][]byte{[]byte(`{"a":1}`)})
	require.NoError(f, err)
	f.Add(blobs[2].Data, blobs[1].Data)
	f.Add([]byte(`{}`), []byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, manifest, lines []byte) {
		m := NewBlob(ocispec.MediaTypeImageManifest, manifest)
		s, d := onShelf([]Blob{NewBlob(mediaTypeLines, lines), m})
		envelopes, err := FetchReports(t.Context(), s, d)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(envelopes), MaxStoredReports)
		for _, e := range envelopes {
			require.NotContains(t, string(e), "\n")
			require.NotEmpty(t, e)
		}
	})
}
