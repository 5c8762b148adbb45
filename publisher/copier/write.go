package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// decide finds out which tags the destination needs for o, and writes nothing.
func (c *copier) decide(ctx context.Context, o *original) error {
	dst, err := c.to.repository(o.repo.name)
	if err != nil {
		return &usage.Error{Err: err}
	}
	o.done = Item{Kind: o.kind, Repository: o.repo.name, Tag: o.own, Digest: o.desc.Digest, Result: releases.OutcomeUnchanged, Sent: o.done.Sent}
	o.seen, o.move, o.stands = map[string]digest.Digest{}, nil, false
	for _, tag := range append([]string{o.own}, o.moving...) {
		now, err := releases.Current(ctx, dst, tag)
		if err != nil {
			return err
		}
		o.seen[tag] = now
		if now != o.desc.Digest {
			if err := c.decideTag(ctx, dst, o, tag); err != nil {
				return err
			}
		} else if tag != o.own {
			o.done.Moving = append(o.done.Moving, tag)
		}
	}
	return nil
}

// standingVerdict is what becomes of what a tag names at the destination.
type standingVerdict int

const (
	isReplaced   standingVerdict = iota
	standsAsWell                 // it is equivalent to the copied one
	standsNewer                  // it is newer
)

func (c *copier) decideTag(ctx context.Context, dst placedRepository, o *original, tag string) error {
	standing, verdict, err := c.standing(ctx, dst, o, o.seen[tag])
	if err != nil {
		return err
	}
	switch verdict {
	case standsAsWell:
		o.stands = true
	case standsNewer:
		o.done.Kept = append(o.done.Kept, KeptTag{tag, standing.own, standing.desc.Digest})
	default:
		o.move = append(o.move, tag)
		if tag != o.own {
			o.done.Moving = append(o.done.Moving, tag)
		}
	}
	return nil
}

// standing judges the destination's manifest d under a tag of o. A manifest of another kind, or without the signatures
// that an original needs, is replaced.
func (c *copier) standing(ctx context.Context, dst placedRepository, o *original, d digest.Digest) (*original, standingVerdict, error) {
	if d == "" || c.opts.Force {
		return nil, isReplaced, nil
	}
	s, err := c.judge(ctx, dst, d)
	if err != nil {
		return nil, isReplaced, published.IgnoreRefused(err)
	}
	switch {
	case s.kind != o.kind:
		return nil, isReplaced, nil
	case s.platform != o.platform:
		return nil, 0, usage.Errorf("%s is of the platform %q, and what is copied is of %q: copy to another prefix",
			dst.fullName(), s.platform, o.platform)
	case o.trust != nil:
		verdict, err := compareTrust(s, o)
		return s, verdict, err
	case s.order.Compare(o.order) > 0:
		return s, standsNewer, nil
	}
	return s, isReplaced, nil
}

// put has o at the destination, whoever else writes there at the same time.
func (c *copier) put(ctx context.Context, o *original) error {
	for race := 1; !o.stands; race++ {
		err := c.attempt(ctx, o)
		if !errors.Is(err, releases.ErrRace) || race == releases.MaxRaces {
			return err
		}
		if err := c.decide(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// attempt writes what o lacks, in the order of publishing: content, signatures, its own tag, moving tags.
func (c *copier) attempt(ctx context.Context, o *original) error {
	dst, err := c.to.repository(o.repo.name)
	if err != nil {
		return err
	}
	there, err := dst.Exists(ctx, o.desc)
	if err != nil {
		return err
	}
	w := writer{from: o.repo, to: dst, sent: &o.done.Sent}
	if err := w.manifest(ctx, o.desc); err != nil {
		return err
	}
	if o.signature != nil {
		if err := w.signature(ctx, o.signature, bundle.SignatureTag(o.desc.Digest)); err != nil {
			return err
		}
	}
	if err := w.tags(ctx, o); err != nil {
		return err
	}
	switch {
	case !there:
		o.done.Result = OutcomeCopied
	case w.changed:
		o.done.Result = OutcomeUpdated
	}
	return nil
}

// writer writes to one repository.
type writer struct {
	from, to placedRepository
	sent     *int64
	changed  bool
}

// parts are what a manifest lists, each once.
func parts(m ocispec.Manifest) []ocispec.Descriptor {
	var all []ocispec.Descriptor
	for _, d := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if !slices.ContainsFunc(all, func(o ocispec.Descriptor) bool { return o.Digest == d.Digest }) {
			all = append(all, d)
		}
	}
	return all
}

// manifest writes a manifest after its parts, those of them too that a manifest at the destination should have.
func (w *writer) manifest(ctx context.Context, desc ocispec.Descriptor) error {
	return w.note(oci.Copy(ctx, w.from, w.to, desc))
}

// blob writes what desc describes.
func (w *writer) blob(ctx context.Context, desc ocispec.Descriptor) error {
	return w.note(oci.CopyBlob(ctx, w.from, w.to, desc))
}

func (w *writer) note(sent int64, err error) error {
	*w.sent += sent
	w.changed = w.changed || sent > 0
	return err
}

func (w *writer) signature(ctx context.Context, s *signature, tag string) error {
	for _, part := range parts(s.manifest) {
		if err := w.blob(ctx, part); err != nil {
			return err
		}
	}
	standing, err := releases.Current(ctx, w.to, tag)
	if err != nil {
		return err
	}
	if standing != "" && standing != s.desc.Digest {
		if s, err = w.merge(ctx, s, standing); err != nil {
			return err
		}
	}
	if err := w.blob(ctx, s.desc); err != nil || standing == s.desc.Digest {
		return err
	}
	w.changed = true
	return w.to.Tag(ctx, s.desc, tag)
}

// merge keeps the signatures that only the destination has. What cannot be read there is replaced.
func (w *writer) merge(ctx context.Context, s *signature, standing digest.Digest) (*signature, error) {
	theirs, err := readSignatures(ctx, w.to, standing.String())
	if err := published.IgnoreRefused(err); err != nil {
		return nil, err
	}
	if theirs == nil {
		return s, nil
	}
	both, config, err := s.with(ctx, theirs, w.to)
	if err == nil && config != nil {
		err = w.blob(ctx, *config)
	}
	return both, err
}

// tags sets the tags that o needs. Registries cannot compare and swap: a tag that is not as it was seen
// is ErrRace.
func (w *writer) tags(ctx context.Context, o *original) error {
	for _, tag := range o.move {
		now, err := releases.Current(ctx, w.to, tag)
		if err != nil {
			return err
		}
		if now != o.seen[tag] {
			return fmt.Errorf("tag %s of %s: %w", tag, w.to.fullName(), releases.ErrRace)
		}
		if err := w.to.Tag(ctx, o.desc, tag); err != nil {
			return err
		}
		w.changed = true
	}
	if len(o.move) == 0 || slices.ContainsFunc(o.done.Kept, func(k KeptTag) bool { return k.Tag == o.own }) {
		return nil
	}
	return releases.ReadBack(ctx, w.to, o.own, o.desc.Digest)
}
