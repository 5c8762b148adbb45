package publisher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/catalog"
)

func TestAMistypedEnvironmentIsNotCleanedUpInSilence(t *testing.T) {
	w := newWorld(t, "embedded")
	require.Empty(t, w.collect(catalog.CollectOptions{Environment: "dev"}).Repositories, "the first time")
	w.publishes("one")
	w.mustPublish()
	_, err := catalog.Collect(t.Context(), w.loc, catalog.CollectOptions{Environment: "dve", OCI: w.opts.OCI})
	var lack *catalog.NoEnvironmentError
	require.ErrorAs(t, err, &lack)
	require.Equal(t, []string{"dev"}, lack.Others)
	require.NotEmpty(t, w.collect(catalog.CollectOptions{Environment: "dev"}).Repositories)
}
