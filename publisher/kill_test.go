package publisher

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// small leaves one cluster type, so that each request can be tried in turn.
func (w *world) small(text string) {
	w.result.ClusterTypes = w.result.ClusterTypes[:1]
	w.result.ClusterTypes[0].Assignments = w.result.ClusterTypes[0].Assignments[:1]
	w.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", text)
}

// cutStore stands for a process that is killed at operation number k on a layout.
type cutStore struct {
	oci.Store
	left *int
}

func (s cutStore) Repository(name string) (oci.Target, error) {
	repo, err := s.Store.Repository(name)
	return cutTarget{repo, s.left}, err
}

type cutTarget struct {
	oci.Target
	left *int
}

func (c cutTarget) alive() error {
	if *c.left--; *c.left < 0 {
		return errKilled
	}
	return nil
}

func (c cutTarget) Push(ctx context.Context, d ocispec.Descriptor, r io.Reader) error {
	if err := c.alive(); err != nil {
		return err
	}
	return c.Target.Push(ctx, d, r)
}

func (c cutTarget) Tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	if err := c.alive(); err != nil {
		return err
	}
	return c.Target.Tag(ctx, d, tag)
}

func TestAPublisherKilledAtAnyWriteToALayoutLeavesNothingIncomplete(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		w := newWorld(t, "layout")
		for k, ended := 0, false; !ended; k += sweeptest.Every(2) {
			if first {
				w = newWorld(t, "layout")
			}
			w.small(fmt.Sprint("release ", k))
			if w.checked == nil {
				w.checked = map[string]bool{}
			}
			left := k
			p, err := newPublication(w.result, w.loc, []*keys.Key{w.key}, trust.PinnedBy([]*keys.Key{w.key}), PublishOptions{Now: func() time.Time { return w.now }})
			require.NoError(t, err)
			p.Store = cutStore{p.Store, &left}
			_, err = p.run(t.Context(), w.result, newProgress())
			if ended = left >= 0; !ended {
				require.ErrorIs(t, err, errKilled)
			}
			require.NoError(t, w.complete(), "killed after %d writes", k)
			w.mustPublish()
			require.NoError(t, w.complete())
			require.Equal(t, w.verified("drone", "latest").Descriptor.Digest, w.environmentRecord().ClusterTypes["drone"])
			require.Less(t, k, 100)
		}
	}
}

// raceStore has another publisher act just before a tag of this one is written.
type raceStore struct {
	oci.Store
	before func(tag string)
}

func (s raceStore) Repository(name string) (oci.Target, error) {
	repo, err := s.Store.Repository(name)
	return raceTarget{repo, s.before}, err
}

type raceTarget struct {
	oci.Target
	before func(tag string)
}

func (r raceTarget) Tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	r.before(tag)
	return r.Target.Tag(ctx, d, tag)
}

func TestTwoPublishersAtOnceEndWithTheNewerReleaseEverywhere(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"sha256-", "s0-", "latest"} {
		for _, ahead := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprintf("the other writes before our tag %s, its clock %s ahead", at, ahead), func(t *testing.T) {
				w := newWorld(t, "layout")
				w.small("v1")
				w.mustPublish()
				other := newWorld(t, "layout")
				other.loc, other.key, other.now = w.loc, w.key, w.now.Add(ahead)
				other.small("theirs")

				w.small("ours")
				p, err := newPublication(w.result, w.loc, []*keys.Key{w.key}, trust.PinnedBy([]*keys.Key{w.key}), PublishOptions{Now: func() time.Time { return w.now }})
				require.NoError(t, err)
				acted := false
				p.Store = raceStore{p.Store, func(tag string) {
					if !acted && strings.HasPrefix(tag, at) {
						acted = true
						other.mustPublish()
					}
				}}
				so := newProgress()
				done, err := p.untilSettled(func(p *publication) (Published, error) { return p.run(t.Context(), w.result, so) })
				require.NoError(t, err)
				require.True(t, acted)
				require.NoError(t, w.complete())
				latest := w.verified("drone", "latest")
				require.Equal(t, done.ClusterTypes[0].Digest, latest.Descriptor.Digest)
				require.Equal(t, releases.OutcomePublished, done.ClusterTypes[0].Result)
				require.Equal(t, latest.Descriptor.Digest, w.environmentRecord().ClusterTypes["drone"])
				tags, err := published.ReadTags(t.Context(), w.repository("bundles/dev/drone"))
				require.NoError(t, err)
				require.Equal(t, latest.Release.Tag(), tags.Releases()[0], "no release is newer than latest")
			})
		}
	}
}

func TestATagThatIsTakenWhileMovingTheOthersIsNoticed(t *testing.T) {
	w := newWorld(t, "layout")
	w.mustPublish()
	repo, ours, theirs := w.repository("bundles/dev/drone"), w.verified("drone", "latest"), w.verified("large", "latest")
	target := raceTarget{repo, func(tag string) {
		if tag == "ring-a" {
			require.NoError(t, repo.Tag(t.Context(), theirs.Descriptor, ours.Release.Tag()))
		}
	}}
	_, err := releases.Settle(t.Context(), target, ours.Descriptor, ours.Release.Tag(), []string{"ring-a"}, published.Tags{})
	require.ErrorIs(t, err, releases.ErrRace)
}

// The slower of two publishers of one change leaves no release behind, which would have the number of the other's.
func TestAReleaseThatComesTooLateIsNotThere(t *testing.T) {
	w := newWorld(t, "layout")
	w.mustPublish()
	repo := w.repository("bundles/dev/drone")
	seen, err := published.ReadTags(t.Context(), repo)
	require.NoError(t, err)
	late := w.verified("drone", "latest").Descriptor
	w.publishes("new")
	w.mustPublish()
	before, err := repo.Tags(t.Context())
	require.NoError(t, err)

	_, err = releases.Settle(t.Context(), repo, late, "r0-9999999999", []string{"latest"}, seen)
	require.ErrorIs(t, err, releases.ErrRace)
	after, err := repo.Tags(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
}
