// Package export chooses what a site package carries, and writes it.
//
// Begin with Choose, which reads documents and manifests and no large blob, and gives a Plan: the list of contents, the
// warnings, and the length of the file. Plan.WriteFile writes it, and goes on with an unfinished file of the same plan. The
// same input gives the same bytes.
//
// Nothing here decides whether a release is believed: the importing agent verifies all of it. An export refuses what every
// site would refuse: a release without a signature, and an expired one unless somebody gives a reason.
package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// atOnce is how many repositories and artifacts are read at the same time.
const atOnce = 4

// Mode says which artifacts travel.
type Mode string

// The modes.
const (
	// All are the artifacts of the releases that lie in a registry. An empty Mode means it.
	All Mode = "all"
	// Carried are those that agents bring to their stores, because of the annotation wherry.dev/carry.
	Carried Mode = "carried"
	// None are no artifacts.
	None Mode = "none"
)

// Request says what a package is to hold.
type Request struct {
	// From is where the bundles are.
	From oci.Location
	// Environment is the environment of all bundles.
	Environment string
	// ClusterTypes are the cluster types, in any order. None means all of the environment.
	ClusterTypes []string
	// Site is the name of the site that the package is for, for people. Empty names none.
	Site string
	// Rings are those whose newest releases travel; the empty name stands for agents without a ring. None means that one.
	Rings []string
	// Release is the manifest of the release that travels in place of the newest. It needs one cluster type, and at most one ring.
	Release digest.Digest
	// Artifacts says which artifacts travel.
	Artifacts Mode
	// SkipUnpinned leaves out artifacts without a digest, with a warning. Otherwise they are an *UnpinnedError.
	SkipUnpinned bool
	// WithoutReferrers leaves out the signatures, attestations and SBOMs of artifacts.
	WithoutReferrers bool
	// ImagePlatforms are the platforms of artifacts that have several. None means those that the releases name, and
	// DefaultPlatforms for releases that name none.
	ImagePlatforms graph.Platforms
	// Mirrors are asked for artifacts before the artifacts' own registries.
	Mirrors []Mirror
	// Since is what the site has; nil leaves out nothing.
	Since *Base
	// Now is the time for judging expiry; the zero time judges none.
	Now time.Time
	// AllowExpired is a person's reason to carry expired releases. It becomes part of the package, which is not signed.
	// Empty refuses them.
	AllowExpired string
	// NextTrip is the time until the next package can arrive: there is a warning for each release whose validity ends before. Zero
	// warns of those that expire soon; see bundle.Release.Expiry.
	NextTrip time.Duration
	// Registry configures the access to From and the mirrors, and to artifacts' own registries if Artifact is nil.
	Registry oci.Options
	// Artifact opens HOST/REPOSITORY of an artifact's own registry, which releases name and no person.
	Artifact func(repository string) (oci.Target, error)
}

// DefaultPlatforms are linux/amd64, and Linux on this machine's architecture.
func DefaultPlatforms() graph.Platforms {
	all := append(graph.Platforms{"linux/amd64"}, graph.ThisMachine()...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Plan is a package that is not written yet.
type Plan struct {
	// Contents is the list of contents.
	Contents airgap.Contents
	// Warnings are for people, in the order of what they are about.
	Warnings []string
	// Bytes is the length of the file.
	Bytes int64

	refs  []ocispec.Descriptor
	blobs []blob // each digest once
}

// blob is content of the package.
type blob struct {
	ocispec.Descriptor
	open func(context.Context) (io.ReadCloser, error)
}

func (p *Plan) descriptors() []ocispec.Descriptor {
	all := make([]ocispec.Descriptor, len(p.blobs))
	for i, b := range p.blobs {
		all[i] = b.Descriptor
	}
	return all
}

// inMemory is content that is at hand.
func inMemory(d ocispec.Descriptor, data []byte) blob {
	return blob{oci.Plain(d), func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// Choose reads what a package of r would hold.
//
// The error is a *NoReleaseError or a *NoEnvironmentError if nothing was published under the names in r, an *UnpinnedError
// for artifacts without a digest, and a *bundle.Refusal, maybe within others, for releases that no site would take. An *ArtifactError
// is about an artifact. Other errors are those of package oci.
func Choose(ctx context.Context, r Request) (*Plan, error) {
	at, err := published.Open(r.From, r.Registry, published.AsItLies())
	if err != nil {
		return nil, err
	}
	p := &Plan{Contents: airgap.Contents{Site: r.Site}}
	// The record comes first: a publication meanwhile must not lead to a record whose releases do not travel.
	record, err := readRecord(ctx, at, r.Environment, p)
	if err != nil {
		return nil, err
	}
	releases, err := readReleases(ctx, at, r, record, p)
	if err != nil {
		return nil, err
	}
	if len(r.ImagePlatforms) == 0 {
		r.ImagePlatforms = platformsOf(releases)
	}
	r.ImagePlatforms = slices.Compact(slices.Sorted(slices.Values(r.ImagePlatforms)))
	p.Contents.ImagePlatforms = r.ImagePlatforms
	if err := checkExpiry(r, releases, p); err != nil {
		return nil, err
	}
	trust, err := readTrust(ctx, at, releases)
	if err != nil {
		return nil, err
	}
	f := newFinder(r, at.Store)
	needs, err := readNeeds(ctx, r, releases, p)
	if err != nil {
		return nil, err
	}
	artifacts, err := f.walk(ctx, needs, r.ImagePlatforms)
	if err != nil {
		return nil, err
	}
	if !r.WithoutReferrers {
		if err := f.addReferrers(ctx, artifacts, p); err != nil {
			return nil, err
		}
	}
	has, err := r.Since.of(ctx, r, at, f, releases, p)
	if err != nil {
		return nil, err
	}
	return p, p.assemble(parts{trust, releases, record, artifacts, has}, f)
}

// platformsOf returns the platforms of the clusters that releases are for.
func platformsOf(releases []chosen) (all graph.Platforms) {
	for _, c := range releases {
		if len(c.Platforms) == 0 {
			all = append(all, DefaultPlatforms()...)
		}
		all = append(all, c.Platforms...)
	}
	return all
}

// document is a manifest with its content, all of it small.
type document struct {
	ocispec.Descriptor
	data  []byte
	parts ocispec.Manifest
	src   bundle.Source
}

// readDocument reads a manifest of a bundle, a signature, a trust document or a record.
func readDocument(ctx context.Context, src bundle.Source, d ocispec.Descriptor) (document, error) {
	doc := document{Descriptor: oci.Plain(d), src: src}
	var err error
	doc.parts, doc.data, err = readManifest(ctx, src, d)
	return doc, err
}

// manifest returns the manifest's blob, and rest those that it names: the config, then the layers.
func (d document) manifest() blob { return inMemory(d.Descriptor, d.data) }

func (d document) rest() []blob {
	return d.blobs(append([]ocispec.Descriptor{d.parts.Config}, d.parts.Layers...))
}

func (d document) blobs(list []ocispec.Descriptor) (all []blob) {
	for _, part := range list {
		all = append(all, blob{oci.Plain(part), func(ctx context.Context) (io.ReadCloser, error) {
			r, err := d.src.Fetch(ctx, oci.Plain(part))
			return r, missing(part, err)
		}})
	}
	return all
}

func (d document) bytes() int64 {
	total := d.Size + d.parts.Config.Size
	for _, l := range d.parts.Layers {
		total += l.Size
	}
	return total
}

// ref returns d with its name in the index.
func ref(d ocispec.Descriptor, name string) ocispec.Descriptor {
	d = oci.Plain(d)
	d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
	return d
}

// inParallel calls do with the numbers below n.
func inParallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// NoReleaseError means that a cluster type has no release for a ring.
type NoReleaseError struct {
	Stream bundle.Stream
	Ring   string // empty for agents without a ring
	Err    error
}

func (e *NoReleaseError) Error() string {
	if e.Ring != "" {
		return fmt.Sprintf("%s/%s has no release for ring %s", e.Stream.Environment, e.Stream.ClusterType, e.Ring)
	}
	return e.Err.Error()
}

func (e *NoReleaseError) Unwrap() error { return e.Err }

// NoEnvironmentError means that no cluster type of an environment has a release.
type NoEnvironmentError struct {
	Environment string
	// Repositories are those at the location; nil if it does not list them.
	Repositories []string
	Err          error // why they are not known; nil if they are
}

func (e *NoEnvironmentError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the cluster types of environment %s are not known: it has no record, and the location does not list its repositories: %v", e.Environment, e.Err)
	}
	return fmt.Sprintf("nothing was published in environment %s", e.Environment)
}

func (e *NoEnvironmentError) Unwrap() error { return e.Err }

// UnpinnedError lists artifacts without a digest, which cannot travel.
type UnpinnedError struct {
	// List has texts such as "drone: image nginx:1.29 (web-main)".
	List []string
}

func (e *UnpinnedError) Error() string {
	const shown = 10
	list, more := e.List, ""
	if n := len(list) - shown; n > 0 {
		list, more = list[:shown], fmt.Sprintf("\nand %d more", n)
	}
	return "artifacts without a digest cannot travel:\n" + strings.Join(list, "\n") + more
}

// ArtifactError is the error of an artifact.
type ArtifactError struct {
	// Repository is HOST/NAME, and Name the artifact's name for people.
	Repository, Name string
	UsedBy           []string // as ENVIRONMENT/CLUSTER-TYPE (ASSIGNMENT, …)
	Err              error
}

func (e *ArtifactError) Error() string {
	return fmt.Sprintf("artifact %s of %s: %v", e.Name, strings.Join(e.UsedBy, ", "), e.Err)
}

func (e *ArtifactError) Unwrap() error { return e.Err }

// joined returns the refusals of several releases as one.
func joined(reason bundle.Reason, list []string) error {
	return &bundle.Refusal{Reason: reason, Message: strings.Join(list, "\n")}
}
