package gitrepo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Bounds on what a server may send.
const (
	maxPackBytes  = 512 << 20
	maxErrorBytes = 64 << 10 // the text beside an HTTP error
	maxRefsBytes  = 32 << 20 // the list of references
)

// fetch brings the objects of ref into store and returns the commit to read.
func fetch(ctx context.Context, ref Ref, store *filesystem.Storage) (tip plumbing.Hash, err error) {
	session, err := dial(ref.URL)
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
	if err := receive(store, pack); err != nil {
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

// dial opens a session. Credentials leave the URL here, so that no message of go-git can repeat them.
func dial(repo string) (transport.UploadPackSession, error) {
	endpoint, err := transport.NewEndpoint(repo)
	if err != nil {
		return nil, fmt.Errorf("not a git URL")
	}
	user, password := endpoint.User, endpoint.Password
	endpoint.Password = ""
	if endpoint.Protocol == "ssh" { // keys come from the ssh agent
		return gitssh.DefaultClient.NewUploadPackSession(endpoint, nil)
	}
	endpoint.User = ""
	if user == "" {
		user, password = Netrc(endpoint.Host)
	}
	var auth transport.AuthMethod
	if user != "" {
		auth = &githttp.BasicAuth{Username: user, Password: password}
	}
	client := githttp.NewClient(&http.Client{Transport: limitedTransport{http.DefaultTransport}})
	return client.NewUploadPackSession(endpoint, auth)
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

// Netrc returns the login for host from the file that git and curl read too: $NETRC, else ~/.netrc.
func Netrc(host string) (user, password string) {
	name := os.Getenv("NETRC")
	if home, err := os.UserHomeDir(); name == "" && err == nil {
		name = filepath.Join(home, ".netrc")
	}
	file, err := os.Open(name)
	if err != nil {
		return "", ""
	}
	defer func() { _ = file.Close() }()
	words := bufio.NewScanner(io.LimitReader(file, 1<<20))
	words.Split(bufio.ScanWords)
	for matches := false; words.Scan(); {
		key := words.Text()
		if key == "default" || key == "machine" {
			if user != "" {
				return user, password
			}
			matches = key == "default" || words.Scan() && words.Text() == host
			continue
		}
		if !words.Scan() || !matches {
			continue
		}
		switch key {
		case "login":
			user = words.Text()
		case "password":
			password = words.Text()
		}
	}
	return user, password
}

// plainError is an error in words fit for a terminal.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// Plain returns err shortened to its cause, in one printable line, since a server's own text is foreign.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	cause := err
	var wrapped *url.Error
	var unexpected *plumbing.UnexpectedError // has no Unwrap
	if errors.As(err, &unexpected) {
		cause = unexpected.Err
	}
	if errors.As(cause, &wrapped) {
		cause = wrapped.Err
	}
	text := cause.Error()
	for _, known := range []error{
		transport.ErrAuthenticationRequired, transport.ErrAuthorizationFailed,
		transport.ErrRepositoryNotFound, transport.ErrEmptyRemoteRepository,
	} {
		if errors.Is(err, known) {
			text = known.Error() // without the page that a server sends along
		}
	}
	if errors.Is(err, transport.ErrAuthenticationRequired) {
		text += " (a login for this host in ~/.netrc would be used)"
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return &plainError{text, err}
}
