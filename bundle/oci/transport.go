package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

const (
	dialTime = 15 * time.Second
	// stallTime is the time after which a connection that moved no byte ends, and a body that moved fewer than
	// minProgress bytes.
	stallTime   = time.Minute
	minProgress = 256
	// idleTime is the time for which an idle connection stays open.
	idleTime = 90 * time.Second
	// maxIdle is the number of idle connections to one host, of those who ask for several things at once.
	maxIdle = 16
	// retries is the number of times that a request is sent again after a temporary failure.
	retries = 3
)

var errStalled = errors.New("the transfer stalled")

// newClient returns a client for the registry at host, which keeps the tokens of all its repositories, and the transport
// that sends the credentials.
func newClient(host string, opts Options) (*auth.Client, *authGuard, error) {
	host = registry.Reference{Registry: host}.Host()
	for _, h := range opts.AuthHosts {
		if err := CheckAuthHost(h); err != nil {
			return nil, nil, fmt.Errorf("host of a token service: %w", err)
		}
	}
	if opts.Credential == nil && hasDockerConfig() {
		open := func() (*credentials.DynamicStore, error) {
			return credentials.NewStoreFromDocker(credentials.StoreOptions{})
		}
		store, err := open()
		if err != nil {
			return nil, nil, fmt.Errorf("docker credentials: %w", err)
		}
		opts.Credential = docker(open) // reads the file at each login, so that a later wherry login counts
		opts.AuthRecord = cmp.Or(opts.AuthRecord, AuthRecord(store.ConfigPath()))
	}
	client := newHTTPClient()
	if opts.HTTPClient != nil {
		copied := *opts.HTTPClient
		client = &copied
	}
	guard := newAuthGuard(host, client.Transport, opts)
	client.Transport = guard
	return &auth.Client{Client: client, Header: guard.header, Cache: auth.NewCache(), Credential: guard.forBasic}, guard, nil
}

// hasDockerConfig is false for a service without a home folder, which then asks anonymously.
func hasDockerConfig() bool {
	_, err := os.UserHomeDir()
	return err == nil || os.Getenv("DOCKER_CONFIG") != ""
}

// newHTTPClient returns a client that retries after temporary failures and ends stalled requests.
func newHTTPClient() *http.Client { return retrying(newTransport()) }

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTime}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return stallingConn{conn}, nil
		},
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   dialTime,
		ResponseHeaderTimeout: stallTime,
		IdleConnTimeout:       idleTime,
		MaxIdleConnsPerHost:   maxIdle,
		DisableCompression:    true, // blobs are compressed already, and a digest is of the bytes on the wire
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
	}
}

func retrying(base http.RoundTripper) *http.Client {
	policy := patient{&retry.GenericPolicy{
		Retryable: retry.DefaultPredicate,
		Backoff:   retry.DefaultBackoff,
		MinWait:   200 * time.Millisecond,
		MaxWait:   3 * time.Second,
		MaxRetry:  retries,
	}}
	return &http.Client{Transport: &retry.Transport{Base: base, Policy: func() retry.Policy { return policy }}}
}

// maxAsked is the longest time for which a request waits because an answer asks for it.
const maxAsked = 10 * time.Second

// patient is a policy that waits as long as an answer asks for, and does not retry if that is too long: the caller is told, by
// RetryAfter.
type patient struct{ retry.Policy }

func (p patient) Retry(attempt int, resp *http.Response, err error) (time.Duration, error) {
	wait, policyErr := p.Policy.Retry(attempt, resp, err)
	if policyErr != nil || wait < 0 || resp == nil {
		return wait, policyErr
	}
	switch after := hubapi.RetryAfter(resp.Header, time.Now()); {
	case after > maxAsked:
		return -1, nil
	case after > 0:
		return after, nil
	}
	return wait, nil
}

// stallingConn ends uploads that stall. Reads have no deadline here, since an idle connection in the pool waits in a
// Read: the transport bounds the wait for a response, and watchedBody bounds the body.
type stallingConn struct{ net.Conn }

func (c stallingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// watchedBody ends a download that stalls, and classifies its errors.
type watchedBody struct {
	ctx     context.Context // of this request alone; the guard cancels it
	guarded guardedBody
	body    io.Closer
	ref     string
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.guarded.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = explain("fetch", b.ref, causeOf(b.ctx, err))
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.body.Close()
	b.guarded.guard.cancel(nil)
	return err
}

// bounded yields at most target's size of r, and an error if r has more.
func bounded(r io.ReadCloser, target ocispec.Descriptor) io.ReadCloser {
	return &boundedBody{ReadCloser: r, target: target}
}

type boundedBody struct {
	io.ReadCloser
	target ocispec.Descriptor
	read   int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	left := b.target.Size - b.read
	if int64(len(p)) > left+1 {
		p = p[:left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > left {
		return int(left), fmt.Errorf("%s is longer than the %d bytes of its descriptor", b.target.Digest, b.target.Size)
	}
	b.read += int64(n)
	return n, err
}
