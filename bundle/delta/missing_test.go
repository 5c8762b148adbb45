package delta

import (
	"errors"
	"fmt"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"
)

func TestOnlyADeltaThatIsNotThereIsMissing(t *testing.T) {
	gone, other := fmt.Errorf("fetch: %w", errdef.ErrNotFound), errors.New("no answer")
	aDelta, layer := ocispec.Descriptor{MediaType: MediaType}, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip}
	require.ErrorAs(t, Missing(aDelta, gone), new(*MissingError))
	require.ErrorIs(t, Missing(aDelta, gone), errdef.ErrNotFound)
	require.Equal(t, other, Missing(aDelta, other))
	require.Equal(t, gone, Missing(layer, gone))
	require.NoError(t, Missing(aDelta, nil))
}
