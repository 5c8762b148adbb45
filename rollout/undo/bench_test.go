package undo_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/registrytest"
	"github.com/wherry-dev/wherry/rollout/undo"
)

// BenchmarkUndo prints how long it takes to undo a change of all cluster types of a large environment, at a registry over HTTP
// on this machine.
func BenchmarkUndo(b *testing.B) {
	const types = 316
	for range b.N {
		w := newWorld(b)
		server := httptest.NewServer(registrytest.New(b, "inmemory", b.TempDir()))
		w.loc = oci.Location{Host: server.Listener.Addr().String(), Prefix: "edge"}
		w.opts.OCI = oci.Options{HTTPClient: &http.Client{Transport: server.Client().Transport}, Credential: auth.StaticCredential("", auth.EmptyCredential)}
		w.opts.Parallel = publisher.DefaultParallel
		clear(w.texts)
		for i := range types {
			w.texts[fmt.Sprintf("type-%03d", i)] = ""
		}
		require.NoError(b, w.do("a"))
		require.NoError(b, w.do("b"))
		w.now = w.now.Add(time.Minute)
		began := time.Now()
		done, err := undo.Undo(b.Context(), w.loc, w.keys, undo.Options{Environment: "prod", Reason: "because"}, w.opts)
		took := time.Since(began)
		require.NoError(b, err)
		require.Len(b, done.Releases, types)
		fmt.Printf("figure undo-ms %d ms\n", took.Milliseconds())
		fmt.Printf("figure undo-cluster-types %d types\n", types)
		server.Close()
	}
}
