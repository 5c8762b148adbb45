package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// makeKeys makes the publisher's key pair. Its password is forgotten with the process.
func (s *demonstration) makeKeys(context.Context) error {
	password := []byte(rand.Text())
	files, err := keys.Generate(s.path("cosign"), password)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(files.Private)
	if err != nil {
		return err
	}
	if s.key, err = keys.Load(data, password); err != nil {
		return err
	}
	s.trust = bundle.Pinned(bundle.Keys{s.key.Public()})
	s.say("publisher", "made the key pair %s, %s", filepath.Base(files.Private), filepath.Base(files.Public))
	return nil
}

// publishFirst publishes every environment and chooses the streams that agents will follow.
func (s *demonstration) publishFirst(ctx context.Context) error {
	for _, env := range s.platform.environments {
		done, err := s.publish(ctx, env)
		if err != nil {
			return err
		}
		for _, ct := range done.ClusterTypes {
			if ct.Digest == "" || ct.Assignments == 0 {
				continue
			}
			s.platform.offer(bundle.Stream{Platform: done.Platform, Environment: env, ClusterType: ct.ClusterType})
		}
	}
	if len(s.platform.streams) == 0 {
		return ErrNothingAssigned
	}
	return nil
}

// update changes one value of the platform, publishes again, and lets the first agent follow.
func (s *demonstration) update(ctx context.Context) error {
	if err := s.platform.change(); err != nil {
		return err
	}
	s.say("platform", "%s", s.platform.changed)
	for _, env := range s.platform.environments {
		if _, err := s.publish(ctx, env); err != nil {
			return err
		}
	}
	for _, site := range s.sites {
		newest, err := s.newest(ctx, site.stream)
		if err != nil {
			return err
		}
		site.wantRunning = newest.Digest
	}
	return s.sites[0].sync(ctx, s)
}

// publish publishes the present state of one environment. It prints the assignments that cannot be rendered, and
// goes on.
func (s *demonstration) publish(ctx context.Context, environment string) (*publisher.Published, error) {
	rendered, loaded, err := s.render(ctx, environment)
	if err != nil {
		return nil, err
	}
	done, err := publisher.Publish(ctx, rendered, s.prefix, []*keys.Key{s.key}, publisher.PublishOptions{EnvironmentCommit: loaded.EnvironmentCommit})
	if err != nil {
		return nil, err
	}
	for _, ct := range done.ClusterTypes {
		s.say("publisher", "%s/%s: %s, %s", environment, ct.ClusterType, ct.Result, show.Count(ct.Assignments, "assignment"))
		for _, f := range ct.Failures {
			s.say("publisher", "%s/%s/%s: %s", environment, ct.ClusterType, f.Name, f.Error)
		}
	}
	return done, nil
}

func (s *demonstration) render(ctx context.Context, environment string) (*scheduler.Result, *platform.Loaded, error) {
	sources := s.platform.sources
	sources.Environment = environment
	sources.Platform = s.platform.folder(environment)
	built, err := platform.Build(ctx, sources, platform.Options{ToSign: true, AfterLoad: func(ctx context.Context, loaded *platform.Loaded, _ *platform.Options) error {
		if len(loaded.Unread) > 0 {
			return loaded.Unread[0].Err // half a platform shows nothing
		}
		if dir := s.platform.overlay; dir != "" {
			return loaded.Model.Load(ctx, scheduler.Source{FS: os.DirFS(dir), Name: dir})
		}
		return nil
	}})
	return built.Result, built.Loaded, err
}

// newest returns the manifest of a stream's newest release.
func (s *demonstration) newest(ctx context.Context, stream bundle.Stream) (ocispec.Descriptor, error) {
	repo, err := s.prefix.Repository(stream.Repository(), oci.Options{})
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return repo.Resolve(ctx, bundle.LatestTag)
}

// attack changes the second agent's newest bundle in the registry's storage, without the publisher, and
// lets that agent poll.
func (s *demonstration) attack(ctx context.Context) error {
	site := s.sites[1]
	running, err := site.running()
	if err != nil {
		return err
	}
	if running == site.wantRunning {
		s.say("attacker", "finds nothing to change: the platform value is in no assignment of %s", site.stream.ClusterType)
		return nil
	}
	layer, err := s.layer(ctx, site.stream)
	if err != nil {
		return err
	}
	if err := corrupt(s.path("registry"), layer); err != nil {
		return err
	}
	s.say("attacker", "changed a byte of %s's new bundle in the registry's storage", site.stream.ClusterType)
	site.wantState, site.wantReason, site.wantRunning = bundle.Rejected, bundle.DigestMismatch, running
	return site.sync(ctx, s)
}

func (site *site) running() (digest.Digest, error) {
	status, err := site.agent.Status()
	if err != nil || status.Release.Running == nil {
		return "", err
	}
	return status.Release.Running.Digest, nil
}

func (s *demonstration) layer(ctx context.Context, stream bundle.Stream) (digest.Digest, error) {
	desc, err := s.newest(ctx, stream)
	if err != nil {
		return "", err
	}
	repo, err := s.prefix.Repository(stream.Repository(), oci.Options{})
	if err != nil {
		return "", err
	}
	data, err := bundle.ReadBlob(ctx, repo, desc, bundle.MaxManifestBytes)
	if err != nil {
		return "", err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return "", err
	}
	return m.Layers[0].Digest, nil
}

// corrupt flips a bit of a blob in the storage of distribution's filesystem driver.
func corrupt(registryDir string, blob digest.Digest) error {
	hex := blob.Encoded()
	name := filepath.Join(registryDir, "docker", "registry", "v2", "blobs", blob.Algorithm().String(), hex[:2], hex, "data")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return os.WriteFile(name, data, 0o644)
}
