package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// errNoParts means that the registry did not answer a range request with that range.
var errNoParts = errors.New("the registry serves no parts")

// request asks for all missing bytes and appends the bytes that arrive. The error wraps ErrUnreachable if another request
// can bring more.
func (d *download) request(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := newStallGuard(d.opts.Window, d.opts.MinProgress, cancel)
	var resp *http.Response
	err := guard.watch(func() (n int, err error) {
		resp, err = d.send(ctx)
		return 0, err
	})
	if err != nil {
		return d.explain(ctx, err)
	}
	defer resp.Body.Close()
	start, end, err := d.extent(resp)
	if err != nil {
		return err
	}
	if d.have > 0 {
		d.resumed = true
	}
	if err := d.take(ctx, guardedBody{guard, resp.Body}, start, end); err != nil {
		return err
	}
	if brought := end - start; end < d.blob.Size && brought < d.opts.MinProgress {
		return fmt.Errorf("%w: it answers with %d bytes at a time", ErrUnreachable, brought)
	}
	return nil
}

func (d *download) send(ctx context.Context) (*http.Response, error) {
	req, err := d.repo.newRequest(ctx, http.MethodGet, "blobs/"+d.blob.Digest.String(), auth.ActionPull)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the digest is of these bytes
	if d.have > 0 && !d.whole {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", d.have, d.blob.Size-1)) // some registries require both ends
	}
	return d.repo.repo.Client.Do(req)
}

// explain classifies the error of a request without a response. The request may be retried, unless it can never succeed.
func (d *download) explain(ctx context.Context, err error) error {
	err = classify(causeOf(ctx, err))
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnauthorized) || errors.Is(err, errdef.ErrNotFound) || ctx.Err() != nil && !errors.Is(err, errStalled) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// extent returns the range of the blob that a response holds, which may be shorter than the requested one.
func (d *download) extent(resp *http.Response) (start, end int64, err error) {
	switch resp.StatusCode {
	case http.StatusOK:
		if resp.ContentLength >= 0 && resp.ContentLength != d.blob.Size {
			return 0, 0, fmt.Errorf("the registry's has %d bytes, and not the %d of its descriptor: %w", resp.ContentLength, d.blob.Size, content.ErrMismatchedDigest)
		}
		return 0, d.blob.Size, nil
	case http.StatusPartialContent:
		start, end, size, err := contentRange(resp.Header.Get("Content-Range"))
		switch {
		case err != nil || start != d.have || end > d.blob.Size || end <= start:
			return 0, 0, errNoParts
		case size >= 0 && size != d.blob.Size:
			return 0, 0, fmt.Errorf("the registry's has %d bytes, and not the %d of its descriptor: %w", size, d.blob.Size, content.ErrMismatchedDigest)
		}
		return start, end, nil
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, 0, errNoParts
	}
	return 0, 0, answer(resp)
}

// contentRange parses "bytes FIRST-LAST/SIZE"; an unknown size is -1. See RFC 9110, section 14.4.
func contentRange(header string) (start, end, size int64, err error) {
	unit, rest, _ := strings.Cut(header, " ")
	extent, total, _ := strings.Cut(rest, "/")
	first, last, _ := strings.Cut(extent, "-")
	numbers := []string{first, last, total}
	var parsed [3]int64
	for i, text := range numbers {
		if i == 2 && text == "*" {
			parsed[i] = -1
			continue
		}
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil || unit != "bytes" {
			return 0, 0, 0, fmt.Errorf("content range %q", header)
		}
		parsed[i] = int64(n)
	}
	return parsed[0], parsed[1] + 1, parsed[2], nil
}

// stallGuard ends a request that brings fewer than least bytes while waiting for a window of time.
type stallGuard struct {
	window time.Duration
	least  int64
	cancel context.CancelCauseFunc

	left time.Duration // of the window
	got  int64         // in it
}

func newStallGuard(window time.Duration, least int64, cancel context.CancelCauseFunc) *stallGuard {
	return &stallGuard{window: window, least: least, cancel: cancel, left: window}
}

// watch runs wait, which waits for the next n bytes.
func (g *stallGuard) watch(wait func() (n int, err error)) error {
	begun := time.Now()
	timer := time.AfterFunc(g.left, func() { g.cancel(errStalled) })
	n, err := wait()
	timer.Stop()
	g.left -= time.Since(begun)
	if g.got += int64(n); g.got >= g.least {
		g.left, g.got = g.window, 0
	}
	return err
}

type guardedBody struct {
	guard *stallGuard
	body  io.Reader
}

func (b guardedBody) Read(p []byte) (n int, err error) {
	err = b.guard.watch(func() (int, error) {
		n, err = b.body.Read(p)
		return n, err
	})
	return n, err
}
