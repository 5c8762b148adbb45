package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

const (
	// requestTime bounds one request that reads or writes metadata, with its retries, unless Options.Patience is set.
	requestTime = time.Minute
	// maxMetadataBytes bounds a page of tags, the body of an error and a manifest to tag.
	maxMetadataBytes = 4 << 20
)

// remoteStore is a prefix of a registry.
type remoteStore struct {
	location  Location
	client    *auth.Client
	plainHTTP bool
	patience  time.Duration
	noHead    *atomic.Bool // the registry, or a proxy before it, does not answer HEAD as it has to
}

func openRegistry(l Location, opts Options) (*remoteStore, error) {
	opts.PlainHTTP = opts.PlainHTTP || IsLoopback(l.Host)
	client, _, err := newClient(l.Host, opts)
	if err != nil {
		return nil, err
	}
	return &remoteStore{location: l, client: client, plainHTTP: opts.PlainHTTP, patience: cmp.Or(opts.Patience, requestTime), noHead: new(atomic.Bool)}, nil
}

func (s *remoteStore) Repository(name string) (Target, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return &remoteRepository{
		name:     s.location.Name(name),
		patience: s.patience,
		noHead:   s.noHead,
		repo: &remote.Repository{
			Client:    s.client,
			Reference: registry.Reference{Registry: s.location.Host, Repository: join(s.location.Prefix, name)},
			PlainHTTP: s.plainHTTP,
			// Pages have the registry's own size: some refuse a larger one.
			MaxMetadataBytes:     maxMetadataBytes,
			ReferrerListMaxPages: maxReferrerPages,
			SkipReferrersGC:      true, // many registries delete nothing
		},
	}, nil
}

// Repositories asks the registry's catalog, which is optional in the specification and often denied.
func (s *remoteStore) Repositories(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	reg := &remote.Registry{RepositoryOptions: remote.RepositoryOptions{
		Client: s.client, Reference: registry.Reference{Registry: s.location.Host}, PlainHTTP: s.plainHTTP, MaxMetadataBytes: maxMetadataBytes,
	}}
	var names []string
	err := reg.Repositories(ctx, "", collect(&names))
	if err = explain("list repositories of", s.location.Host, err); err != nil {
		if answeredNo(err) {
			err = fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
		}
		return nil, err
	}
	below := names[:0]
	for _, n := range names {
		if s.location.Prefix == "" {
			below = append(below, n)
		} else if rest, ok := strings.CutPrefix(n, s.location.Prefix+"/"); ok {
			below = append(below, rest)
		}
	}
	slices.Sort(below)
	return below, nil
}

// collect appends pages to all, until there are too many.
func collect(all *[]string) func([]string) error {
	return func(page []string) error {
		if *all = append(*all, page...); len(*all) > MaxTags {
			return fmt.Errorf("more than %d names", MaxTags)
		}
		return nil
	}
}

// remoteRepository adds deadlines, bounds and kinds of error to oras's repository.
type remoteRepository struct {
	name     string // for messages
	patience time.Duration
	noHead   *atomic.Bool
	repo     *remote.Repository
}

func (r *remoteRepository) ref(version string) string {
	if digest.Digest(version).Validate() == nil {
		return r.name + "@" + version
	}
	return r.name + ":" + version
}

// Resolve asks for the descriptor of a tag or digest, without its content. HEAD may be refused by proxies, and its answer need
// not name a digest: the digest of what GET brings is computed then.
func (r *remoteRepository) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if !r.noHead.Load() {
		desc, err := r.repo.Resolve(ctx, reference)
		if err == nil || !refusesHead(err) {
			return desc, explain("resolve", r.ref(reference), err)
		}
	}
	desc, _, err := r.get(ctx, reference)
	if err == nil {
		r.noHead.Store(true)
	}
	return desc, explain("resolve", r.ref(reference), err)
}

// refusesHead reports whether GET may have another answer than HEAD had.
func refusesHead(err error) bool {
	err = classify(err)
	return !errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrUnauthorized) && !errors.Is(err, context.Canceled)
}

// ResolveManifest is Resolve with the manifest as the descriptor's data, in one request, unless it is larger than manifests may be.
// The data is not verified. See bundle.ResolveManifest.
func (r *remoteRepository) ResolveManifest(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	desc, data, err := r.get(ctx, reference)
	desc.Data = data
	return desc, explain("fetch", r.ref(reference), err)
}

// manifestTypes are the media types of manifests, of which a request names all.
var manifestTypes = []string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.artifact.manifest.v1+json",
}

// get returns a manifest with its descriptor. The digest is the one that was asked for or that the registry names, which nothing
// verifies, or else that of the content. A manifest that is larger than manifests may be has no content.
func (r *remoteRepository) get(ctx context.Context, reference string) (ocispec.Descriptor, []byte, error) {
	var none ocispec.Descriptor
	req, err := r.newRequest(ctx, http.MethodGet, "manifests/"+reference, auth.ActionPull)
	if err != nil {
		return none, nil, err
	}
	req.Header.Set("Accept", strings.Join(manifestTypes, ", "))
	resp, err := r.repo.Client.Do(req)
	if err != nil {
		return none, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return none, nil, errorAnswer(resp)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return none, nil, fmt.Errorf("%w: it answers with %.100q, and that is not a manifest", ErrUnreachable, resp.Header.Get("Content-Type"))
	}
	named, _ := digest.Parse(resp.Header.Get("Docker-Content-Digest"))
	if asked, err := digest.Parse(reference); err == nil {
		if named != "" && named != asked {
			return none, nil, fmt.Errorf("the registry answers with %s: %w", named, content.ErrMismatchedDigest)
		}
		named = asked
	}
	if resp.ContentLength > maxManifestBytes && named != "" {
		return ocispec.Descriptor{MediaType: kind, Digest: named, Size: resp.ContentLength}, nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxManifestBytes+1))
	switch {
	case err != nil:
		return none, nil, fmt.Errorf("%w: %w", errBroken, err)
	case len(data) > maxManifestBytes:
		return none, nil, tooLong(maxManifestBytes)
	}
	if named == "" {
		named = digest.FromBytes(data)
	}
	return ocispec.Descriptor{MediaType: kind, Digest: named, Size: int64(len(data))}, data, nil
}

// Tags lists the tags of the repository, page by page.
func (r *remoteRepository) Tags(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var tags []string
	err := explain("list tags of", r.name, r.repo.Tags(ctx, "", collect(&tags)))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	slices.Sort(tags)
	return tags, err
}

// Exists asks whether the registry has the content.
func (r *remoteRepository) Exists(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if !r.noHead.Load() {
		ok, err := r.repo.Exists(ctx, target)
		if err == nil || !refusesHead(err) {
			return ok, explain("look for", r.ref(target.Digest.String()), err)
		}
	}
	ok, err := r.existsByGet(ctx, target)
	if err == nil {
		r.noHead.Store(true)
	}
	return ok, explain("look for", r.ref(target.Digest.String()), err)
}

// existsByGet is Exists by a request for the content, which is not read.
func (r *remoteRepository) existsByGet(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	what := "blobs/"
	if slices.Contains(manifestTypes, target.MediaType) {
		what = "manifests/"
	}
	req, err := r.newRequest(ctx, http.MethodGet, what+target.Digest.String(), auth.ActionPull)
	if err != nil {
		return false, err
	}
	if what == "manifests/" {
		req.Header.Set("Accept", target.MediaType)
	} else if target.Size > 0 {
		req.Header.Set("Range", "bytes=0-0")
	}
	resp, err := r.repo.Client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	}
	return false, errorAnswer(resp)
}

// Fetch opens a blob or manifest. The caller closes it. A body that stalls ends with an error.
func (r *remoteRepository) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	ref := r.ref(target.Digest.String())
	ctx, cancel := context.WithCancelCause(ctx)
	guard := newStallGuard(r.patience, minProgress, cancel)
	var body io.ReadCloser
	err := guard.watch(func() (n int, err error) {
		body, err = r.repo.Fetch(ctx, target)
		return 0, err
	})
	if err != nil {
		err = explain("fetch", ref, causeOf(ctx, err))
		cancel(nil)
		return nil, err
	}
	return bounded(&watchedBody{ctx: ctx, guarded: guardedBody{guard, body}, body: body, ref: ref}, target), nil
}

// Push uploads a blob or manifest, even if the registry has it: call Exists first. A bytes.Reader can be sent a second
// time after a lost connection or a login, other readers cannot.
func (r *remoteRepository) Push(ctx context.Context, expected ocispec.Descriptor, from io.Reader) error {
	return explain("push", r.ref(expected.Digest.String()), r.repo.Push(ctx, expected, from))
}

// Tag points the tag at a manifest; see Target.
func (r *remoteRepository) Tag(ctx context.Context, desc ocispec.Descriptor, tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if len(desc.Data) == 0 {
		return explain("tag", r.ref(tag), r.repo.Tag(ctx, desc, tag))
	}
	if err := checkData(desc); err != nil {
		return err
	}
	err := r.repo.PushReference(ctx, Plain(desc), bytes.NewReader(desc.Data), tag)
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) && slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == errcode.ErrorCodeManifestBlobUnknown }) {
		return fmt.Errorf("%w: %w", errdef.ErrNotFound, explain("tag", r.ref(tag), err))
	}
	return explain("tag", r.ref(tag), err)
}

// Untag deletes the tag alone.
func (r *remoteRepository) Untag(ctx context.Context, tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	return r.remove(ctx, tag)
}

// Delete deletes the manifest by its digest.
func (r *remoteRepository) Delete(ctx context.Context, manifest ocispec.Descriptor) error {
	if err := manifest.Digest.Validate(); err != nil {
		return err
	}
	return r.remove(ctx, manifest.Digest.String())
}

// remove sends a DELETE for a tag or a digest; oras does so for digests only.
func (r *remoteRepository) remove(ctx context.Context, reference string) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	resp, err := r.send(ctx, http.MethodDelete, "manifests/"+reference, auth.ActionPull, auth.ActionDelete)
	if err != nil {
		return explain("delete", r.ref(reference), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	err = explain("delete", r.ref(reference), errorAnswer(resp))
	if refusesAltogether(err) {
		err = fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return err
}

// refusesAltogether reports whether the registry never supports the operation, rather than refusing it now, with these
// credentials or for this content.
func refusesAltogether(err error) bool {
	return answeredNo(err) && !errors.Is(err, ErrUnauthorized) && !errors.Is(err, ErrUnreachable) && !errors.Is(err, errdef.ErrNotFound)
}
