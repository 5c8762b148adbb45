package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// maxTagState bounds the hosts and tags that a Poller remembers. An agent has a handful.
const maxTagState = 1000

// maxETag is the longest ETag that is worth its bytes in each poll.
const maxETag = 256

// bodyWait bounds the first pause before a request is repeated whose response broke off. The bound doubles each time.
const bodyWait = 200 * time.Millisecond

// errBroken means that a response broke off.
var errBroken = fmt.Errorf("%w: the answer broke off", ErrUnreachable)

// Poller fetches the manifests of tags, with one request per poll whether the tag has moved or not. It learns the kind of
// request that each registry answers best, so make one Poller and keep it. The zero value is ready for use. A Poller may
// be used by several goroutines.
type Poller struct {
	mu sync.Mutex
	// habits holds the hosts that do not answer conditional requests with 304.
	habits map[string]habit
	// etags holds the ETags of tags, if they differ from the digest.
	etags map[string]etag
}

// habit is the kind of request that a host gets.
type habit int

const (
	conditionally habit = iota // GET with If-None-Match: a new manifest comes with the response
	byHead                     // HEAD, since the host ignores If-None-Match; a new manifest takes a second request
	plainly                    // GET, since the host's responses to HEAD name no digest either
)

type etag struct {
	of    digest.Digest
	value string
}

// Poll returns the manifest that the tag points at, of at most limit bytes, checked against its digest. If its digest is
// known, that of the manifest that the caller has, the data is nil and the descriptor has the digest alone: the registry
// claims so, and nothing verifies it. The error wraps errdef.ErrNotFound if there is no such tag, ErrUnreachable or
// ErrUnauthorized.
func (p *Poller) Poll(ctx context.Context, from Target, tag string, known digest.Digest, limit int64) (ocispec.Descriptor, []byte, error) {
	if err := CheckTag(tag); err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	if repo, ok := from.(*remoteRepository); ok {
		ctx, cancel := context.WithTimeout(ctx, repo.patience)
		defer cancel()
		desc, data, err := p.ask(ctx, repo, tag, known, limit)
		for try := range retries { // the transport does not retry after a body that broke off
			if !errors.Is(err, errBroken) || pause(ctx, rand.N(bodyWait<<try)) != nil {
				break
			}
			desc, data, err = p.ask(ctx, repo, tag, known, limit)
		}
		return desc, data, explain("poll", repo.ref(tag), err)
	}
	desc, err := from.Resolve(ctx, tag)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	if desc.Digest == known {
		return ocispec.Descriptor{Digest: known}, nil, nil
	}
	if desc.Size > limit {
		return ocispec.Descriptor{}, nil, tooLong(limit)
	}
	data, err := content.FetchAll(ctx, from, desc)
	return desc, data, err
}

func (p *Poller) ask(ctx context.Context, repo *remoteRepository, tag string, known digest.Digest, limit int64) (ocispec.Descriptor, []byte, error) {
	same := ocispec.Descriptor{Digest: known}
	if known != "" && p.habit(repo) == byHead {
		resp, err := repo.manifest(ctx, http.MethodHead, tag, "")
		if err != nil {
			return ocispec.Descriptor{}, nil, err
		}
		resp.Body.Close()
		switch got := resp.Header.Get("Docker-Content-Digest"); {
		case resp.StatusCode == http.StatusNotFound:
			return ocispec.Descriptor{}, nil, answer(resp)
		case resp.StatusCode == http.StatusMethodNotAllowed: // a proxy refuses it
			p.setHabit(repo, plainly)
		case hubapi.RetryAfter(resp.Header, time.Now()) > 0:
			return ocispec.Descriptor{}, nil, answer(resp)
		case resp.StatusCode != http.StatusOK: // the response to GET may explain more
		case got == known.String():
			return same, nil, nil
		case got == "":
			p.setHabit(repo, plainly)
		}
	}
	resp, err := repo.manifest(ctx, http.MethodGet, tag, p.condition(repo, tag, known))
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && known != "":
		return same, nil, nil
	case resp.StatusCode != http.StatusOK:
		return ocispec.Descriptor{}, nil, answer(resp)
	}
	desc, data, err := readManifest(resp, limit)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	p.learn(repo, tag, desc.Digest, known, resp.Header.Get("ETag"))
	if desc.Digest == known {
		return same, nil, nil
	}
	return desc, data, nil
}

// condition returns the value of If-None-Match: the registry's own ETag of the known manifest, else its digest, which
// most registries use as the ETag. It is empty if no manifest is known.
func (p *Poller) condition(repo *remoteRepository, tag string, known digest.Digest) string {
	if known == "" {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.etags[repo.key(tag)]; e.of == known {
		return e.value
	}
	return `"` + known.String() + `"`
}

func (p *Poller) habit(repo *remoteRepository) habit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.habits[repo.repo.Reference.Host()]
}

func (p *Poller) setHabit(repo *remoteRepository, h habit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.habits[repo.repo.Reference.Host()] = h
}

// learn updates the host's habit and the tag's ETag from a response with a manifest.
func (p *Poller) learn(repo *remoteRepository, tag string, got, known digest.Digest, tagged string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.habits)+len(p.etags) > maxTagState || p.habits == nil {
		p.habits, p.etags = map[string]habit{}, map[string]etag{}
	}
	key, host := repo.key(tag), repo.repo.Reference.Host()
	asked := p.etags[key].of == known // with an ETag of its own
	delete(p.etags, key)
	own := tagged != "" && tagged != `"`+got.String()+`"` && len(tagged) <= maxETag
	if own {
		p.etags[key] = etag{got, tagged}
	}
	// The registry sent a known manifest although the condition had its ETag. A registry with ETags of its own is not
	// judged by a request that had the digest instead.
	if got == known && (asked || !own) && p.habits[host] == conditionally {
		p.habits[host] = byHead
	}
}

func (r *remoteRepository) key(tag string) string {
	return r.repo.Reference.Host() + "/" + r.repo.Reference.Repository + ":" + tag
}

// manifest sends a request for a tag's manifest.
func (r *remoteRepository) manifest(ctx context.Context, method, tag, unless string) (*http.Response, error) {
	req, err := r.newRequest(ctx, method, "manifests/"+tag, auth.ActionPull)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest) // one type only, which saves bytes in each poll
	if unless != "" {
		req.Header.Set("If-None-Match", unless)
	}
	return r.repo.Client.Do(req)
}

// newRequest makes a request for something in the repository, which takes a token for these actions.
func (r *remoteRepository) newRequest(ctx context.Context, method, what string, actions ...string) (*http.Request, error) {
	scheme := "https"
	if r.repo.PlainHTTP {
		scheme = "http"
	}
	url := fmt.Sprintf("%s://%s/v2/%s/%s", scheme, r.repo.Reference.Host(), r.repo.Reference.Repository, what)
	return http.NewRequestWithContext(auth.AppendRepositoryScope(ctx, r.repo.Reference, actions...), method, url, nil)
}

func readManifest(resp *http.Response, limit int64) (ocispec.Descriptor, []byte, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err != nil || kind != ocispec.MediaTypeImageManifest: // such as the login page of a hotel's network
		return ocispec.Descriptor{}, nil, fmt.Errorf("%w: it answers with %.100q, and that is not a manifest", ErrUnreachable, resp.Header.Get("Content-Type"))
	case resp.ContentLength > limit:
		return ocispec.Descriptor{}, nil, tooLong(limit)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return ocispec.Descriptor{}, nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	if int64(len(data)) > limit {
		return ocispec.Descriptor{}, nil, tooLong(limit)
	}
	desc := ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if claimed := resp.Header.Get("Docker-Content-Digest"); claimed != "" && claimed != desc.Digest.String() {
		return ocispec.Descriptor{}, nil, fmt.Errorf("the manifest is %s, and the registry calls it otherwise: %w", desc.Digest, content.ErrMismatchedDigest)
	}
	return desc, data, nil
}

func tooLong(limit int64) error {
	return fmt.Errorf("the manifest has more than %d bytes: %w", limit, errdef.ErrSizeExceedsLimit)
}

// answer returns the error for an unsuccessful response.
func answer(resp *http.Response) error {
	err := fromStatus(&errcode.ErrorResponse{Method: resp.Request.Method, URL: resp.Request.URL, StatusCode: resp.StatusCode})
	if after := hubapi.RetryAfter(resp.Header, time.Now()); after > 0 && errors.Is(err, ErrUnreachable) {
		return &busyError{err, after}
	}
	return err
}
