// Package registrytest serves registries within a test.
package registrytest

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/registry"
)

// New returns the embedded registry on the folder dir where kind is "embedded", else the same handlers in memory.
func New(t testing.TB, kind, dir string) http.Handler {
	if kind == "embedded" {
		reg, err := registry.Open(dir, registry.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, reg.Close()) })
		return reg.Handler()
	}
	logrus.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return handlers.NewApp(ctx, &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": {}}, Catalog: configuration.Catalog{MaxEntries: 100},
	})
}
