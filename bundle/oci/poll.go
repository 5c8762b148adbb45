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
)

// maxTagState bounds what a Poller remembers: hosts and tags, of which an agent has a handful.
const maxTagState = 1000

// maxETag is the longest ETag that is worth its bytes in each poll.
const maxETag = 256

// bodyWait bounds the first pause before an answer that broke off is asked for again; the next ones are longer.
const bodyWait = 200 * time.Millisecond

// errBroken is an answer that broke off.
var errBroken = fmt.Errorf("%w: the answer broke off", ErrUnreachable)

// Poller asks for what tags point at, in one request where nothing has changed and in one where something has.
// It remembers how each registry wants to be asked, so make one and keep it. The zero value is ready, and may be
// used by several goroutines.
type Poller struct {
	mu sync.Mutex
	// habits are those of hosts that do not answer conditional requests as such.
	habits map[string]habit
	// etags are those that registries have given for tags, where that is not the digest.
	etags map[string]etag
}

// habit is how a host is asked.
type habit int

const (
	conditionally habit = iota // by GET with If-None-Match, in which a change comes at once
	byHead                     // since it gives what is known again; a change takes a second request
	plainly                    // since its answers to HEAD name no digest either
)

type etag struct {
	of    digest.Digest
	value string
}

// Poll returns the manifest that the tag points at, of at most limit bytes, checked against its digest. Where that
// is known, the digest of a manifest that the caller has, the data is nil and the descriptor names no more than
// the digest. The error wraps errdef.ErrNotFound where there is no such tag, ErrUnreachable or ErrUnauthorized.
// That nothing has changed is the registry's word alone.
func (p *Poller) Poll(ctx context.Context, from Target, tag string, known digest.Digest, limit int64) (ocispec.Descriptor, []byte, error) {
	if err := CheckTag(tag); err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	if repo, ok := from.(*remoteRepository); ok {
		ctx, cancel := context.WithTimeout(ctx, repo.patience)
		defer cancel()
		desc, data, err := p.ask(ctx, repo, tag, known, limit)
		for try := range retries { // what breaks off half-way is not the transport's to send again
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
		case resp.StatusCode != http.StatusOK: // it may say more to a GET
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

// condition is the value of If-None-Match: the registry's own ETag of what is known, else its digest, which is what
// most registries use. Empty where nothing is known.
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

// learn remembers what an answer with a manifest says of the registry.
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
	// It gave what is known, although it could have seen that it is. One with ETags of its own could not before it
	// was told one.
	if got == known && (asked || !own) && p.habits[host] == conditionally {
		p.habits[host] = byHead
	}
}

func (r *remoteRepository) key(tag string) string {
	return r.repo.Reference.Host() + "/" + r.repo.Reference.Repository + ":" + tag
}

// manifest sends a request for a tag's manifest.
func (r *remoteRepository) manifest(ctx context.Context, method, tag, unless string) (*http.Response, error) {
	req, err := r.newRequest(auth.AppendRepositoryScope(ctx, r.repo.Reference, auth.ActionPull), method, "manifests/"+tag)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest) // each further type costs bytes with each poll
	if unless != "" {
		req.Header.Set("If-None-Match", unless)
	}
	return r.repo.Client.Do(req)
}

// newRequest makes a request for something in the repository.
func (r *remoteRepository) newRequest(ctx context.Context, method, what string) (*http.Request, error) {
	scheme := "https"
	if r.repo.PlainHTTP {
		scheme = "http"
	}
	url := fmt.Sprintf("%s://%s/v2/%s/%s", scheme, r.repo.Reference.Host(), r.repo.Reference.Repository, what)
	return http.NewRequestWithContext(ctx, method, url, nil)
}

func readManifest(resp *http.Response, limit int64) (ocispec.Descriptor, []byte, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err != nil || kind != ocispec.MediaTypeImageManifest: // a hotel's page, say
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
	if said := resp.Header.Get("Docker-Content-Digest"); said != "" && said != desc.Digest.String() {
		return ocispec.Descriptor{}, nil, fmt.Errorf("the manifest is %s, and the registry calls it otherwise: %w", desc.Digest, content.ErrMismatchedDigest)
	}
	return desc, data, nil
}

func tooLong(limit int64) error {
	return fmt.Errorf("the manifest has more than %d bytes: %w", limit, errdef.ErrSizeExceedsLimit)
}

// answer is the error of an answer that is no success.
func answer(resp *http.Response) error {
	return fromStatus(&errcode.ErrorResponse{Method: resp.Request.Method, URL: resp.Request.URL, StatusCode: resp.StatusCode})
}
