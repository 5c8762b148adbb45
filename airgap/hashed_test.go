package airgap

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func TestWhatIsCopiedIsHashed(t *testing.T) {
	broken := errors.New("broken")
	for _, size := range []int{0, 1, copyBytes - 1, copyBytes, copyBytes + 1, 3 * copyBytes, 5*copyBytes + 7} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		var out bytes.Buffer
		verifier := digest.FromBytes(data).Verifier()
		require.NoError(t, copyHashed(&out, verifier, iotest.HalfReader(bytes.NewReader(data)), newBuffers()))
		require.True(t, bytes.Equal(data, out.Bytes()))
		require.True(t, verifier.Verified())

		require.ErrorIs(t, copyHashed(io.Discard, io.Discard, io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), newBuffers()), broken)
		if size > 0 {
			require.ErrorIs(t, copyHashed(failing{broken}, io.Discard, bytes.NewReader(data), newBuffers()), broken)
		}
	}
	require.ErrorIs(t, copyHashed(io.Discard, io.Discard, iotest.ErrReader(io.ErrUnexpectedEOF), newBuffers()), io.ErrUnexpectedEOF)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
