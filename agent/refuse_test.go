package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

func TestARefusedReleaseIsNotJudgedAgainBeforeSomethingChanges(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.publish(s.draft(4, map[string]string{"shop-main/config.yaml": "a: 0"}))
	require.Equal(t, Refused, s.once().Verdict)

	s.agent(func(a *Agent) {
		s.registry.requests.Store(0)
		out := a.makePass(context.Background(), scope{from: s.repo})
		require.Equal(t, Refused, out.Verdict)
		require.EqualValues(t, 1, s.registry.requests.Load(), "one look at the tag")

		a.pinned.Keys = append(a.pinned.Keys, a.pinned.Keys[0]) // the same trust, told twice
		_ = a.makePass(context.Background(), scope{from: s.repo})
		require.Greater(t, s.registry.requests.Load(), int64(2), "other trust judges again")
	})
}

func TestARefusalEndsWhenTheTagNamesTheRunningReleaseAgain(t *testing.T) {
	s := newSite(t)
	good := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.publish(s.draft(4, map[string]string{"shop-main/config.yaml": "a: 0"}))
	require.Equal(t, bundle.Rejected, s.once().Status.State)
	require.NoError(t, s.repo.Tag(context.Background(), good, bundle.LatestTag))

	r := s.once()

	require.Equal(t, Idle, r.Verdict)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Nil(t, r.Status.Release.Refused)
	require.Empty(t, r.Status.Reason)
}

// asking calls ask before each Apply.
type asking struct {
	reconcilers.Reconciler
	ask func()
}

func (e *asking) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.ask()
	return e.Reconciler.Apply(ctx, a)
}

func TestARefusalIsOverWhenTheNextReleaseIsAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.release(5, "1")
	s.publish(s.draft(4, files(map[string]string{"a-x": "0"})))
	require.Equal(t, bundle.Rejected, s.once().Status.State)
	s.publish(s.draft(6, files(map[string]string{"a-x": "2"})))
	var during Status
	engine := &asking{Reconciler: s.opts.Engines.Reconcilers["directory"]}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.agent(func(a *Agent) {
		engine.ask = func() {
			var err error
			during, err = a.Status()
			require.NoError(t, err)
		}
		a.Once(context.Background(), 0)
	})
	require.EqualValues(t, 6, during.Release.Running.Sequence)
	require.Empty(t, during.Reason, "what was refused before is no news while the next one is applied: a process may be killed there")
	require.Empty(t, during.Message)
}

func TestAnAgentThatBecameAnotherDoesNotKeepWhatItWas(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.stream.Environment = "prod" // and the registry offers the same bundle there

	r := s.once()

	require.Equal(t, Refused, r.Verdict)
	require.Equal(t, string(bundle.WrongEnvironment), r.Status.Reason)
	require.Equal(t, d.Digest, r.Status.Release.Refused.Digest)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	require.Equal(t, Refused, s.once().Verdict)

	s.stream.Environment = "dev"
	require.Equal(t, bundle.Compliant, s.once().Status.State)
}

func TestADamagedLayerThatIsRepairedIsTaken(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(5, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.spoilLayer(d, func(b []byte) []byte { b[20] ^= 1; return b })
	require.Equal(t, Refused, s.once().Verdict)
	s.registry.spoil.Store(nil)

	r := s.once()

	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Nil(t, r.Status.Release.Refused)
}

func (s *site) resolve(tag string) ocispec.Descriptor {
	s.t.Helper()
	d, err := s.repo.Resolve(context.Background(), tag)
	require.NoError(s.t, err)
	return d
}

// spoilLayer has the registry answer requests for the layer of manifest with other bytes.
func (s *site) spoilLayer(manifest ocispec.Descriptor, change func([]byte) []byte) {
	s.t.Helper()
	data, err := bundle.ReadBlob(context.Background(), s.repo, manifest, bundle.MaxManifestBytes)
	require.NoError(s.t, err)
	var m ocispec.Manifest
	require.NoError(s.t, json.Unmarshal(data, &m))
	spoil := func(path string, body []byte) []byte {
		if strings.HasSuffix(path, m.Layers[0].Digest.String()) {
			return change(bytes.Clone(body))
		}
		return body
	}
	s.registry.spoil.Store(&spoil)
}
