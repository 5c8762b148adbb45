package facts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

const (
	// DefaultTimeout is that of a check which has none.
	DefaultTimeout = time.Minute
	// maxOutput bounds what is kept of a check's answer, in bytes, and maxText what of it is a message, in characters.
	maxOutput = 8 << 10
	maxText   = 200
	// waits is the exit code of a command that says "not yet".
	waits = 5
)

// CheckQuestion is what a check is asked. Its JSON form is an interface: that of the verdict so far, and what it is about.
type CheckQuestion struct {
	gate.Verdict
	Platform string                   `json:"platform,omitempty"`
	Contents map[string]digest.Digest `json:"contents,omitempty"` // of the trees, by cluster type
}

// CheckOptions says how an external check is asked.
type CheckOptions struct {
	// AllowCommands lets a command run. A policy is text of a repository: whoever asks a gate does not want to run it unless
	// they say so.
	AllowCommands bool
	// Dir is the folder in which a command runs; empty is the current one.
	Dir string
	// Env names variables with secrets that a command gets all the same; see [checks.Environment].
	Env []string
	// HTTP is nil for http.DefaultTransport.
	HTTP http.RoundTripper
}

// runCheck asks the external check of a gate, a command or a webhook, as of now. It answers with an exit code or a status code, and a line of
// text for people. Time and output are bounded, and no message has the address of a webhook, or its text unless it answered. What goes wrong
// is in the answer, which fails or waits then; the error is ctx's alone.
func runCheck(ctx context.Context, c promotion.Check, q CheckQuestion, o CheckOptions, now time.Time) (gate.Checked, error) {
	if c.Command != "" && !o.AllowCommands {
		return gate.Checked{Result: gate.Wait, Message: "it is a command, and commands of a policy run with --allow-commands alone", At: now}, nil
	}
	body, err := json.Marshal(q)
	if err != nil {
		return gate.Checked{}, err
	}
	limit := cmp.Or(c.Timeout, DefaultTimeout)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := gate.Checked{At: now}
	if c.Command != "" {
		answer.Result, answer.Message = command(within, c.Command, body, o)
	} else {
		answer.Result, answer.Message = post(within, c.URL, body, o)
	}
	if ctx.Err() != nil {
		return gate.Checked{}, ctx.Err()
	}
	if within.Err() != nil && answer.Result != gate.Pass {
		answer.Result, answer.Message = gate.Fail, fmt.Sprintf("no answer within %s", limit)
	}
	return answer, nil
}

func command(ctx context.Context, text string, body []byte, o CheckOptions) (gate.Result, string) {
	var output bytes.Buffer
	out := &child.Head{W: &output, Left: maxOutput}
	cmd := exec.Command("sh", "-c", text)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Dir, checks.Environment(o.Env), bytes.NewReader(body), out, out
	err := child.Run(ctx, cmd)
	said := firstLine(output.Bytes())
	var exit *exec.ExitError
	switch {
	case err == nil:
		return gate.Pass, said
	case errors.As(err, &exit) && exit.ExitCode() == waits:
		return gate.Wait, said
	case errors.As(err, &exit):
		return gate.Fail, strings.TrimSuffix(fmt.Sprintf("exit code %d: %s", exit.ExitCode(), said), ": ")
	}
	return gate.Fail, "it does not run: " + firstLine([]byte(err.Error()))
}

// errRedirected is the error of a webhook that sends whoever asks to another host.
var errRedirected = errors.New("it redirects to another host")

func post(ctx context.Context, to string, body []byte, o CheckOptions) (gate.Result, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil || req.URL.Host == "" {
		return gate.Fail, "its address is not a URL" // without the value, which may hold credentials
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: o.HTTP, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Host != via[0].URL.Host || next.URL.Scheme != via[0].URL.Scheme {
			return errRedirected
		}
		if len(via) >= 5 {
			return errors.New("it redirects too often")
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		var asked *url.Error
		if errors.As(err, &asked) {
			err = asked.Err // without the URL
		}
		if errors.Is(err, errRedirected) {
			return gate.Fail, err.Error()
		}
		return gate.Wait, "it cannot be reached: " + strings.ReplaceAll(firstLine([]byte(err.Error())), to, "it")
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxOutput)) // what came of it is enough
	said := firstLine(text)
	switch code := resp.StatusCode; {
	case slices.Contains([]int{http.StatusAccepted, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable}, code):
		return gate.Wait, said
	case code >= 200 && code < 300:
		return gate.Pass, said
	default:
		return gate.Fail, strings.TrimSuffix(fmt.Sprintf("status %d: %s", code, said), ": ")
	}
}

// firstLine returns the first line of an answer that has text, fit for a terminal.
func firstLine(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			return show.Short(show.Line(line))
		}
	}
	return ""
}
