package airgap

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content/oci"

	"github.com/wherry-dev/wherry/bundle"
)

func TestDocumentsComeBackAsTheyWere(t *testing.T) {
	for _, tc := range []struct {
		name      string
		envelopes [][]byte
	}{
		{"none", nil},
		{"one", [][]byte{[]byte(`{"a":1}`)}},
		{"several, one of them twice", [][]byte{[]byte("b"), []byte("a"), []byte("b")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reports, acks := writeFile(t, WriteReports, tc.envelopes), writeFile(t, WriteAck, tc.envelopes)
			got, err := ReadReports(reports)
			require.NoError(t, err)
			require.Equal(t, tc.envelopes, got)
			got, err = ReadAck(acks)
			require.NoError(t, err)
			require.Equal(t, tc.envelopes, got)

			_, err = ReadAck(reports)
			require.ErrorIs(t, err, ErrFormat, "reports are no acknowledgements")
		})
	}
}

func TestDocumentsAreTheSameBytesEachTime(t *testing.T) {
	var a, b bytes.Buffer
	require.NoError(t, WriteReports(&a, [][]byte{[]byte("x"), []byte("y")}))
	require.NoError(t, WriteReports(&b, [][]byte{[]byte("x"), []byte("y")}))
	require.Equal(t, a.Bytes(), b.Bytes())
}

func TestOrdinaryToolsReadADocumentFile(t *testing.T) {
	store, err := oci.NewFromTar(context.Background(), writeFile(t, WriteReports, [][]byte{[]byte("x")}))
	require.NoError(t, err)
	d, err := store.Resolve(context.Background(), "reports")
	require.NoError(t, err)
	require.Equal(t, bundle.PayloadTypeReport, d.ArtifactType)
}

func TestBadDocumentFilesAreRefused(t *testing.T) {
	whole, err := os.ReadFile(writeFile(t, WriteReports, [][]byte{[]byte("the report")}))
	require.NoError(t, err)
	for _, tc := range []struct {
		name    string
		data    []byte
		format  bool
		refusal bundle.Reason
	}{
		{"empty file", nil, true, ""},
		{"text", []byte("hello"), true, ""},
		{"cut short", whole[:len(whole)*2/3], true, ""},
		{"tar of something else", tarOf(t, "readme", "x"), true, ""},
		{"layout without an index", tarOf(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`), true, ""},
		{"layout of another version", tarOf(t, "oci-layout", `{"imageLayoutVersion":"9"}`, "index.json", "{}"), true, ""},
		{"index that is not JSON", tarOf(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`, "index.json", "{"), true, ""},
		{"changed byte", bytes.Replace(whole, []byte("the report"), []byte("the rEport"), 1), false, bundle.DigestMismatch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "reports.tar")
			require.NoError(t, os.WriteFile(path, tc.data, 0o600))
			_, err := ReadReports(path)
			require.Error(t, err)
			require.Equal(t, tc.format, errors.Is(err, ErrFormat), "%v", err)
			if tc.refusal != "" {
				var r *bundle.Refusal
				require.ErrorAs(t, err, &r)
				require.Equal(t, tc.refusal, r.Reason)
			}
			require.Contains(t, err.Error(), path)
		})
	}
}

func TestADocumentFileMayBeMissing(t *testing.T) {
	_, err := ReadReports(filepath.Join(t.TempDir(), "none.tar"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestVeryManyDocumentsAreSeveralArtifacts(t *testing.T) {
	var all [][]byte
	for i := range maxArtifactDocuments + 2 {
		all = append(all, fmt.Appendf(nil, "%d", i))
	}
	path := writeFile(t, WriteReports, all)
	store, err := oci.NewFromTar(t.Context(), path)
	require.NoError(t, err)
	for _, name := range []string{"reports", "reports-2"} {
		_, err := store.Resolve(t.Context(), name)
		require.NoError(t, err)
	}
	var got [][]byte
	require.NoError(t, EachReport(path, func(envelope []byte) error { got = append(got, envelope); return nil }))
	require.Equal(t, all, got)
	enough := errors.New("enough")
	require.ErrorIs(t, EachReport(path, func([]byte) error { return enough }), enough)
}

func TestTooManyDocumentsAreAnError(t *testing.T) {
	err := WriteReports(io.Discard, make([][]byte, maxDocuments+1))
	require.ErrorIs(t, err, bundle.ErrTooLarge)
}

func writeFile(t *testing.T, write func(io.Writer, [][]byte) error, envelopes [][]byte) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "documents.tar"))
	require.NoError(t, err)
	require.NoError(t, write(f, envelopes))
	require.NoError(t, f.Close())
	return f.Name()
}

// tarOf returns a tar of files, given as names and contents in turn.
func tarOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1]))}))
		_, err := io.WriteString(w, files[i+1])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}
