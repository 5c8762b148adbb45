package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/user"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage/filesystem"
	sshagent "github.com/xanzy/ssh-agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/wherry-dev/wherry/publisher/egress"
)

// Bounds on what a server may send.
const (
	maxPackBytes  = 512 << 20
	maxErrorBytes = 64 << 10 // the text beside an HTTP error
	maxRefsBytes  = 32 << 20 // the list of references
)

// fetch brings the objects of ref into store and returns the commit to read.
func fetch(ctx context.Context, access *egress.Access, ref Ref, store *filesystem.Storage) (tip plumbing.Hash, err error) {
	session, err := dial(ctx, access, ref.URL)
	if err != nil {
		return tip, err
	}
	defer func() { _ = session.Close() }() // it was read to its end, or has failed already
	server, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return tip, err
	}
	request := packp.NewUploadPackRequestFromCapabilities(server.Capabilities)
	tip, shallow, err := want(server, ref)
	if err != nil {
		return tip, err
	}
	request.Wants = append(request.Wants, tip)
	if shallow && server.Capabilities.Supports(capability.Shallow) {
		request.Depth = packp.DepthCommits(1)
		if err := request.Capabilities.Set(capability.Shallow); err != nil {
			return tip, err
		}
	}
	answer, err := session.UploadPack(ctx, request)
	if err != nil {
		return tip, err
	}
	defer func() { _ = answer.Close() }()
	pack := LimitReader(demultiplex(request.Capabilities, answer), maxPackBytes)
	if err := receive(ctx, store, pack); err != nil {
		return tip, err
	}
	if ref.Commit != "" {
		tip = plumbing.NewHash(ref.Commit)
	}
	return tip, nil
}

// want decides what to ask for: the tip alone, the pinned commit alone where the server gives any commit
// that it has, else the history of the branch, in which the commit must be.
func want(server *packp.AdvRefs, ref Ref) (hash plumbing.Hash, shallow bool, err error) {
	var pinned plumbing.Hash
	if ref.Commit != "" {
		if pinned, err = ref.pinned(); err != nil {
			return hash, false, err
		}
		if server.Capabilities.Supports(capability.AllowReachableSHA1InWant) {
			return pinned, true, nil
		}
	}
	for _, name := range refNames(ref.Branch) {
		tip, found := server.References[name.String()]
		if name == plumbing.HEAD && server.Head != nil {
			tip, found = *server.Head, true
		}
		if found {
			return tip, ref.Commit == "" || tip == pinned, nil
		}
	}
	return hash, false, missing(Ref{Branch: ref.Branch})
}

func demultiplex(used *capability.List, r io.Reader) io.Reader {
	switch {
	case used.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case used.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	}
	return r
}

// limitedReader fails where io.LimitedReader would end.
type limitedReader struct {
	io.Reader
	limit, read int64
}

// LimitReader returns a reader of the first limit bytes of r. A further byte is an error wrapping [ErrTooLarge].
func LimitReader(r io.Reader, limit int64) io.Reader { return &limitedReader{Reader: r, limit: limit} }

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.read += int64(n); l.read > l.limit {
		return n, fmt.Errorf("%w: the server sends more than %d bytes", ErrTooLarge, l.limit)
	}
	return n, err
}

// allowMultiACK has go-git ask for multi_ack where a server knows it: Azure DevOps and CodeCommit refuse fetches without. go-git leaves it
// out because it does not understand the answers to commits that a client has, and no fetch of this package has any.
var allowMultiACK = sync.OnceFunc(func() {
	transport.UnsupportedCapabilities = []capability.Capability{capability.ThinPack}
})

// dial opens a session, whose connections close with ctx. Credentials leave the URL here, so that no message of go-git can repeat them: access sends them.
func dial(ctx context.Context, access *egress.Access, repo string) (transport.UploadPackSession, error) {
	allowMultiACK()
	endpoint, err := transport.NewEndpoint(repo)
	if err != nil {
		return nil, errNotGitURL
	}
	if endpoint.Protocol == "ssh" {
		endpoint.Password = ""
		login, err := sshLogin(ctx, endpoint.User)
		if err != nil {
			return nil, err
		}
		if endpoint.Proxy.URL, err = access.SSHProxy(ctx, endpoint.Host, endpoint.Port); err != nil {
			return nil, err
		}
		return gitssh.DefaultClient.NewUploadPackSession(endpoint, login)
	}
	at, err := url.Parse(repo)
	if err != nil {
		return nil, errNotGitURL
	}
	endpoint.User, endpoint.Password = "", ""
	client := access.Client(at)
	client.Transport = limitedTransport{client.Transport}
	return githttp.NewClient(client).NewUploadPackSession(endpoint, nil)
}

// sshLogin returns a login with the keys of the ssh agent, whose connection closes with ctx. An empty name is that of the user.
func sshLogin(ctx context.Context, name string) (*gitssh.PublicKeysCallback, error) {
	if name == "" {
		current, err := user.Current()
		if err != nil {
			return nil, err
		}
		name = current.Username
	}
	agent, conn, err := sshagent.New()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSSHAgent, err)
	}
	if conn != nil { // not on Windows
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return &gitssh.PublicKeysCallback{User: name, Callback: agent.Signers}, nil
}

// limitedTransport bounds the bodies that go-git reads into memory.
type limitedTransport struct{ http.RoundTripper }

func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := int64(maxPackBytes)
	switch {
	case response.StatusCode >= http.StatusMultipleChoices:
		limit = maxErrorBytes
	case r.Method == http.MethodGet:
		limit = maxRefsBytes
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{LimitReader(response.Body, limit), response.Body}
	return response, nil
}

// errNotGitURL keeps what it was out of messages: it may hold credentials.
var errNotGitURL = errors.New("not a git URL")

var errSSHAgent = errors.New("no ssh agent")

var errRefused = errors.New("the server refuses: the commit may not be there, or not for this login")

// IsGone reports whether err is about a commit that a repository may lack, as after a push with force.
func IsGone(err error) bool { return errors.Is(err, ErrNoSuchRef) || errors.Is(err, errRefused) }

// Plain returns the error of a request to a git server in words that hold no byte of its answer; see [egress.Explain].
func Plain(err error) error {
	var status *githttp.Err
	var unexpected *plumbing.UnexpectedError // has no Unwrap
	if errors.As(err, &unexpected) && errors.As(unexpected.Err, &status) {
		return &plainError{fmt.Sprintf("the server answers %d", status.StatusCode()), err}
	}
	for _, known := range []error{
		transport.ErrAuthenticationRequired, transport.ErrAuthorizationFailed,
		transport.ErrRepositoryNotFound, transport.ErrEmptyRemoteRepository,
	} {
		if !errors.Is(err, known) {
			continue
		}
		text := known.Error()
		if errors.Is(err, transport.ErrAuthenticationRequired) {
			text += " (a login of ~/.netrc is sent over https, to hosts of the platform's own repositories)"
		}
		return &plainError{text, err}
	}
	var refusal *pktline.ErrorLine
	// go-git drops the error of an answer to the request for objects, which a refusal is, and keeps its text.
	if errors.As(err, &refusal) || err != nil && strings.HasPrefix(err.Error(), "error decoding upload-pack response") {
		return &plainError{errRefused.Error(), errors.Join(errRefused, err)}
	}
	if errors.Is(err, errSSHAgent) {
		return &plainError{"no ssh agent with keys can be reached: SSH_AUTH_SOCK names its socket", err}
	}
	var hostKey *knownhosts.KeyError
	if errors.As(err, &hostKey) {
		return &plainError{"its host key is not the one in known_hosts", err}
	}
	return egress.Explain(err, ErrTooLarge, ErrNoSuchRef, errNotGitURL)
}

// plainError is an error in words fit for a terminal.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }
