package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// fetcher is an engine that fetches from the agent's endpoint.
type fetcher struct {
	mu     sync.Mutex
	served map[string]reconcilers.Served
	state  bundle.State // compliant if empty
}

func (*fetcher) EmbeddedFiles(a bundle.Assignment, _ fs.FS) (map[string][]byte, error) {
	if a.Name == "changed-dev" {
		return map[string][]byte{"web.yaml": []byte("changed\n")}, nil
	}
	return nil, nil
}

func (f *fetcher) Apply(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case a.Served == nil:
		return reconcilers.Failure("NoEndpoint", errors.New("no endpoint"))
	case a.Served.Err != nil:
		return reconcilers.Waiting("ArtifactNotMade", a.Served.Err)
	}
	f.served[a.Name] = *a.Served
	res := reconcilers.Result{State: f.state, Revision: a.Served.Manifests.Digest.String()}
	if res.State == "" {
		res.State = bundle.Compliant
	}
	return res
}

func (f *fetcher) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return f.Apply(ctx, a)
}

func (f *fetcher) Remove(context.Context, reconcilers.Assignment) reconcilers.Result {
	return reconcilers.Result{State: bundle.Removed}
}

// embedding is a site whose engine fetches, with an endpoint.
func embedding(t *testing.T) (*site, *fetcher) {
	s, f := newSite(t), &fetcher{served: map[string]reconcilers.Served{}}
	s.opts.Engines.Reconcilers = map[string]reconcilers.Reconciler{"flux": f}
	var err error
	s.opts.Serve, err = serve.Open(serve.Options{Address: ":5001", URL: "https://box:5001", StateDir: t.TempDir()})
	require.NoError(t, err)
	return s, f
}

// embed publishes assignments whose delivery is embedded.
func (s *site) embed(n int64, files map[string]string) {
	d := s.draft(n, files)
	d.Adapter = "flux"
	d.ChangeList = func(list []bundle.Assignment) {
		for i := range list {
			list[i].Delivery = bundle.Embedded
		}
	}
	s.publish(d)
}

// blob is the path of a blob in the store.
func (s *site) blob(d digest.Digest) string {
	return filepath.Join(s.dir, state.StoreDir, "blobs", "sha256", d.Encoded())
}

// unpacked returns the files of a layer by path.
func unpacked(t *testing.T, layer string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(layer)
	require.NoError(t, err)
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	files, archive := map[string]string{}, tar.NewReader(zip)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[h.Name] = string(content)
	}
}

func TestEnginesGetTheArtifactOfTheirFolder(t *testing.T) {
	s, f := embedding(t)
	s.embed(1, map[string]string{"web-dev/reconciler.yaml": "a: 1\n", "web-dev/manifests/web.yaml": "kind: Web\n", "web-dev/manifests/sub/a.yaml": "kind: A\n"})
	s.once()
	got := f.served["web-dev"]
	require.Equal(t, "box:5001", got.Host)
	require.Equal(t, "default/assignments/web-dev", got.Manifests.Repository)
	require.Equal(t, s.opts.Serve.Served().CA, got.CA)
	s.agent(func(a *Agent) {
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, []artifact.Status{{Assignment: "web-dev", Repository: "assignments/web-dev", Digest: got.Manifests.Digest}}, st.Artifacts)
		require.Equal(t, got.Manifests.Digest.String(), st.Items[0].Revision)
		made := s.made(a)["web-dev"]
		require.Equal(t, map[string]string{"web.yaml": "kind: Web\n", "sub/a.yaml": "kind: A\n"}, unpacked(t, s.blob(made[0].Manifests.Blobs[1].Digest)))
	})
}

// made reads the artifacts of the state file.
func (s *site) made(a *Agent) map[string][]artifact.Made {
	all := map[string][]artifact.Made{}
	require.NoError(s.t, a.state.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(artifact.Bucket)).ForEach(func(k, _ []byte) (err error) {
			all[string(k)], err = state.Load[[]artifact.Made](tx, artifact.Bucket, string(k))
			return err
		})
	}))
	return all
}

func TestOneChangeOfManyMakesOneArtifact(t *testing.T) {
	s, f := embedding(t)
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf("web-%d/manifests/web.yaml", i)] = fmt.Sprintf("n: %d\n", i)
	}
	s.embed(1, files)
	s.once()
	before := map[string]os.FileInfo{}
	s.agent(func(a *Agent) {
		for name, made := range s.made(a) {
			info, err := os.Stat(s.blob(made[0].Manifests.Manifest.Digest))
			require.NoError(t, err)
			before[name] = info
		}
	})
	first := f.served["web-7"].Manifests.Digest
	files["web-7/manifests/web.yaml"] = "n: changed\n"
	s.embed(2, files)
	s.once()
	s.agent(func(a *Agent) {
		for name, made := range s.made(a) {
			info, err := os.Stat(s.blob(made[len(made)-1].Manifests.Manifest.Digest))
			require.NoError(t, err)
			require.Equal(t, name != "web-7", os.SameFile(before[name], info), name)
		}
	})
	require.FileExists(t, s.blob(first), "until the next pass knows that the engine has reached the newer one")
	s.once()
	require.NoFileExists(t, s.blob(first))
}

func TestTheArtifactThatRunsStaysUntilItsSuccessorDoes(t *testing.T) {
	s, f := embedding(t)
	s.embed(1, map[string]string{"web-dev/manifests/web.yaml": "n: 1\n"})
	s.once()
	first := f.served["web-dev"].Manifests.Digest
	f.state = bundle.Progressing
	for n := range 4 {
		s.embed(int64(n+2), map[string]string{"web-dev/manifests/web.yaml": fmt.Sprintf("n: %d\n", n+2)})
		s.once()
	}
	s.agent(func(a *Agent) {
		made := s.made(a)["web-dev"]
		require.Len(t, made, 3)
		require.Equal(t, first, made[0].Manifests.Manifest.Digest)
	})
	require.FileExists(t, s.blob(first))
	f.state = ""
	s.once()
	s.once()
	require.NoFileExists(t, s.blob(first))
}

func TestAnArtifactThatSomebodyHasDeletedIsMadeAnew(t *testing.T) {
	s, f := embedding(t)
	s.embed(1, map[string]string{"web-dev/manifests/web.yaml": "n: 1\n"})
	s.once()
	made := f.served["web-dev"].Manifests.Digest
	require.NoError(t, os.Remove(s.blob(made)))
	s.once()
	require.FileExists(t, s.blob(made))
	require.Equal(t, made, f.served["web-dev"].Manifests.Digest, "it is a function of the files")
}

func TestAnArtifactGoesWithItsAssignment(t *testing.T) {
	s, f := embedding(t)
	s.embed(1, map[string]string{"web-dev/manifests/web.yaml": "n: 1\n", "api-dev/manifests/api.yaml": "n: 1\n"})
	s.once()
	gone := f.served["web-dev"].Manifests.Digest
	s.embed(2, map[string]string{"api-dev/manifests/api.yaml": "n: 1\n"})
	s.once()
	s.once()
	s.agent(func(a *Agent) { require.Len(t, s.made(a), 1) })
	require.NoFileExists(t, s.blob(gone))
	require.FileExists(t, s.blob(f.served["api-dev"].Manifests.Digest))
}

func TestAnEngineChangesFilesForItself(t *testing.T) {
	s, _ := embedding(t)
	s.embed(1, map[string]string{"changed-dev/manifests/web.yaml": "n: 1\n", "changed-dev/manifests/api.yaml": "n: 1\n"})
	s.once()
	s.agent(func(a *Agent) {
		made := s.made(a)["changed-dev"]
		require.Equal(t, map[string]string{"web.yaml": "changed\n", "api.yaml": "n: 1\n"}, unpacked(t, s.blob(made[0].Manifests.Blobs[1].Digest)))
	})
}

func TestWithoutAnEndpointNothingIsMade(t *testing.T) {
	s, _ := embedding(t)
	s.opts.Serve = nil
	s.embed(1, map[string]string{"web-dev/manifests/web.yaml": "n: 1\n"})
	s.once()
	s.agent(func(a *Agent) {
		require.Empty(t, s.made(a))
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, "NoEndpoint", st.Items[0].Reason)
	})
}

func TestAnArtifactThatCannotBeMadeFailsAlone(t *testing.T) {
	s, f := embedding(t)
	s.embed(1, map[string]string{
		"bad-dev/reconciler.yaml":      "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: bad}\n",
		"bad-dev/charts/web-1.0.0.tgz": "no archive", "bad-dev/manifests/web.yaml": "n: 1\n",
		"web-dev/manifests/web.yaml": "n: 1\n",
	})
	s.once()
	require.Contains(t, f.served, "web-dev")
	require.NotContains(t, f.served, "bad-dev")
	s.agent(func(a *Agent) {
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, "bad-dev", st.Items[0].Assignment)
		require.Contains(t, st.Items[0].Message, "chart web-1.0.0.tgz")
	})
}
