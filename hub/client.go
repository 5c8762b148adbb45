package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Client asks a hub over HTTP. The lists it returns are whole: it follows them to their end.
type Client struct {
	// URL is where the hub answers, such as http://127.0.0.1:8080.
	URL string
	// HTTP is nil for http.DefaultClient.
	HTTP *http.Client
}

// maxAnswerBytes bounds one page of a list.
const maxAnswerBytes = 32 << 20

// Clusters returns the clusters that f chooses.
func (c Client) Clusters(ctx context.Context, f Filter) (ClusterList, error) {
	all := ClusterList{Clusters: []ClusterStatus{}}
	for {
		var page ClusterList
		if err := c.get(ctx, "v1/clusters", f, &page); err != nil {
			return ClusterList{}, err
		}
		for _, row := range page.Clusters {
			row.plain()
			all.Clusters = append(all.Clusters, row)
		}
		if page.Next == "" || len(page.Clusters) == 0 {
			return all, nil
		}
		f.After = page.Next
	}
}

// Deployments returns the deployments that f chooses.
func (c Client) Deployments(ctx context.Context, f Filter) (DeploymentList, error) {
	all := DeploymentList{Deployments: []DeploymentStatus{}}
	for {
		var page DeploymentList
		if err := c.get(ctx, "v1/deployments", f, &page); err != nil {
			return DeploymentList{}, err
		}
		for _, row := range page.Deployments {
			row.plain()
			all.Deployments = append(all.Deployments, row)
		}
		if page.Next == "" || len(page.Deployments) == 0 {
			return all, nil
		}
		f.After = page.Next
	}
}

// get asks for one page.
func (c Client) get(ctx context.Context, path string, f Filter, into any) error {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return fmt.Errorf("hub URL %q: %w: it looks like http://HOST:PORT", c.URL, ErrInvalid)
	}
	u := base.JoinPath(path)
	q := url.Values{"limit": {strconv.Itoa(maxRows)}}
	for name, v := range map[string]string{"environment": f.Environment, "type": f.Type, "workload": f.Workload, "state": string(f.State), "after": f.After} {
		if v != "" {
			q.Set(name, v)
		}
	}
	u.RawQuery = q.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request)
	if err != nil {
		var failed *url.Error // which repeats the whole address
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("hub %s: %w", c.URL, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("hub %s: %w", c.URL, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("hub %s: %w", c.URL, answerError(answer.StatusCode, body))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("hub %s: the answer is not a hub's: %w", c.URL, err)
	}
	return nil
}

func answerError(status int, body []byte) error {
	var e hubapi.Error
	if json.Unmarshal(body, &e) == nil && e.Message != "" {
		if e.Code == hubapi.CodeBadRequest {
			return fmt.Errorf("%w: %s", ErrInvalid, plain(clip(e.Message)))
		}
		return errors.New(plain(clip(e.Message)))
	}
	said := fmt.Sprintf("it answered %d %s", status, http.StatusText(status))
	if text, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n"); text != "" && text[0] != '<' { // a proxy, or a port that speaks TLS
		said += ": " + clip(text)
	}
	return errors.New(plain(said))
}

// plain makes what another machine said fit for a terminal.
func (c *ClusterStatus) plain() {
	for _, s := range []*string{&c.UID, &c.Name, &c.Platform, &c.Type, &c.Environment, &c.Ring, &c.Reason, &c.Message, &c.AgentVersion, &c.Mismatch, &c.SharedHow} {
		*s = plain(*s)
	}
	c.State, c.Was = bundle.State(plain(string(c.State))), bundle.State(plain(string(c.Was)))
	c.Labels = plainLabels(c.Labels)
	for _, r := range []*bundle.ReportRelease{c.Desired, c.Observed} {
		if r != nil {
			r.Digest, r.BaseCommit = digest.Digest(plain(string(r.Digest))), plain(r.BaseCommit)
		}
	}
}

func (d *DeploymentStatus) plain() {
	for _, s := range []*string{
		&d.Cluster, &d.ClusterUID, &d.Environment, &d.Type, &d.Assignment, &d.Workspace, &d.Workload, &d.Target, &d.Adapter,
		&d.Reason, &d.Message, &d.Version, &d.Revision,
	} {
		*s = plain(*s)
	}
	d.State, d.Was = bundle.State(plain(string(d.State))), bundle.State(plain(string(d.Was)))
	for _, s := range []*digest.Digest{&d.ConfigDigest, &d.Content, &d.Release} {
		*s = digest.Digest(plain(string(*s)))
	}
}
