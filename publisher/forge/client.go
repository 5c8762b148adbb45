package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Bounds on what a forge may send.
const (
	maxAnswerBytes = 16 << 20
	maxErrorBytes  = 64 << 10
	maxPages       = 40 // of a list; a longer one is an error, since an entry that is not seen would be made twice
)

// client sends requests to the API of one place.
type client struct {
	http    *http.Client
	place   Place
	tokens  Tokens
	timeout time.Duration
}

func newClient(p Place, o Options) *client {
	c := &client{place: p, tokens: o.Tokens, timeout: o.Timeout, http: &http.Client{Transport: o.Transport}}
	if c.timeout <= 0 {
		c.timeout = 30 * time.Second
	}
	// No redirect is followed: a token is in the headers, and a repository that moved is better named by its new URL.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// call sends in as JSON, unless it is nil, and reads the answer into out, unless that is nil. path is escaped already.
func (c *client) call(ctx context.Context, method, path string, query url.Values, in, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer func() { _ = response.Body.Close() }() // it was read to its end, or is of no use
	if err := c.refusal(response); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(gitrepo.LimitReader(response.Body, maxAnswerBytes))
	if errors.Is(err, gitrepo.ErrTooLarge) {
		return nil, &Error{Err: ErrRefused, Status: response.StatusCode, Message: "the answer is too large"}
	}
	if err != nil {
		return nil, c.unreachable(err)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, &Error{Err: ErrUnavailable, Status: response.StatusCode, Message: "the answer is no complete JSON"}
		}
	}
	return response.Header, nil
}

func (c *client) request(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
	address := c.place.API + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, errors.New("the address of the API is no URL")
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "wherry") // GitHub wants one
	if c.place.Kind == GitHub {
		r.Header.Set("Accept", "application/vnd.github+json") // GitHub REST API, "Getting started", "Media types"
		r.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	}
	c.tokens.choose(c.place).authorize(c.place.Kind, r)
	return r, nil
}

// unreachable is the error of a request without an answer, or with half of one.
func (c *client) unreachable(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err // the text around it repeats the URL
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &Error{Err: ErrUnavailable, Message: c.line(err.Error())}
}

// refusal is the error of an answer that is none of the 200s.
func (c *client) refusal(r *http.Response) error {
	// Azure DevOps sends who it does not know to a page for signing in: 203, or a redirect to it.
	signIn := c.place.Kind == Azure && (r.StatusCode == http.StatusNonAuthoritativeInfo || r.StatusCode == http.StatusFound)
	if r.StatusCode/100 == 2 && !signIn {
		return nil
	}
	e := &Error{Err: ErrRefused, Status: r.StatusCode}
	switch s := r.StatusCode; {
	case signIn:
		e.Err = ErrUnauthorized
		return e
	case s/100 == 3:
		e.Message = "the forge sends the request elsewhere; has the repository moved?"
		return e
	case s == http.StatusUnauthorized:
		e.Err = ErrUnauthorized
	case s == http.StatusTooManyRequests || s == http.StatusForbidden && limited(r.Header):
		e.Err = ErrRateLimited
	case s == http.StatusForbidden:
		e.Err = ErrForbidden
	case s == http.StatusNotFound, s == http.StatusGone:
		e.Err = ErrNotFound
	case s == http.StatusConflict:
		e.Err = ErrConflict
	case s >= 500, s == http.StatusRequestTimeout:
		e.Err = ErrUnavailable
	}
	if errors.Is(e.Err, ErrRateLimited) || errors.Is(e.Err, ErrUnavailable) {
		e.after, e.named = pause(r.Header)
		if now, err := http.ParseTime(r.Header.Get("Date")); err == nil && e.named {
			e.Until = now.Add(e.after)
		}
	}
	text, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBytes)) // as much of it as there is
	e.Message = c.line(message(text))
	return e
}

// limited reports whether a 403 is GitHub's way to say that there were too many requests. See GitHub REST API, "Rate limits
// for the REST API", "Exceeding the rate limit".
func limited(h http.Header) bool {
	return h.Get("Retry-After") != "" || h.Get("X-RateLimit-Remaining") == "0"
}

// pause reads after which time the forge takes requests again. Clocks are compared within one answer alone, so that ours may
// be wrong.
func pause(h http.Header) (time.Duration, bool) {
	now, nowErr := http.ParseTime(h.Get("Date"))
	if text := h.Get("Retry-After"); text != "" { // RFC 9110, section 10.2.3
		if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 && seconds < 1<<30 {
			return time.Duration(seconds) * time.Second, true
		}
		if at, err := http.ParseTime(text); err == nil && nowErr == nil {
			return max(at.Sub(now), 0), true
		}
	}
	for _, name := range []string{"X-RateLimit-Reset", "RateLimit-Reset"} { // GitHub; GitLab
		if at, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil && nowErr == nil {
			return min(max(time.Unix(at, 0).Sub(now), 0), 24*time.Hour), true
		}
	}
	return 0, false
}

// message finds the sentence in the body of an error: each forge has "message", or "error" beside it, as text or as a list.
func message(body []byte) string {
	var answer struct {
		Message          any `json:"message"`
		Error            any `json:"error"`
		ErrorDescription any `json:"error_description"`
		Errors           any `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return "" // a page for people, or half an answer
	}
	var words []string
	for _, part := range []any{answer.Message, answer.Error, answer.ErrorDescription, answer.Errors} {
		words = append(words, sentences(part)...)
	}
	return strings.Join(words, ": ")
}

func sentences(part any) []string {
	switch p := part.(type) {
	case string:
		return []string{p}
	case []any:
		var all []string
		for _, e := range p {
			all = append(all, sentences(e)...)
		}
		return all
	case map[string]any:
		if m, ok := p["message"]; ok {
			return sentences(m)
		}
		text, err := json.Marshal(p)
		if err == nil {
			return []string{string(text)}
		}
	}
	return nil
}

// line makes a foreign text one printable line of bounded length, without the token.
func (c *client) line(text string) string {
	text = c.tokens.Redact(c.place, text)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	return cutShort(strings.ToValidUTF8(text, ""), 300)
}

// retries repeats what may work the next time.
type retries struct {
	wait func(ctx context.Context, d time.Duration) error
}

const (
	maxAttempts = 4
	maxPause    = time.Minute // a forge that wants a longer one is told of, not waited for
)

// do runs step until it works, fails in a way that repeating does not help, or has failed too often. The error names the
// step by the text in what.
func (r retries) do(ctx context.Context, what string, step func() error) error {
	for attempt := 1; ; attempt++ {
		err := step()
		if err == nil {
			return nil
		}
		d, again := retryAfter(err, attempt)
		if !again || attempt == maxAttempts || ctx.Err() != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := r.pause(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// retryAfter decides from the kind of an error whether and when to try again.
func retryAfter(err error, attempt int) (time.Duration, bool) {
	var e *Error
	if !errors.As(err, &e) || !errors.Is(e.Err, ErrUnavailable) && !errors.Is(e.Err, ErrRateLimited) {
		return 0, false
	}
	if e.named {
		return e.after, e.after <= maxPause
	}
	return time.Second << (attempt - 1), true
}

func (r retries) pause(ctx context.Context, d time.Duration) error {
	if r.wait != nil {
		return r.wait(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// pages calls read with 1, 2, … until it says that no page follows.
func pages(read func(page int) (more bool, err error)) error {
	for page := 1; page <= maxPages; page++ {
		if more, err := read(page); err != nil || !more {
			return err
		}
	}
	return &Error{Err: ErrRefused, Message: fmt.Sprintf("the list has more than %d pages", maxPages)}
}
