package web

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
	"github.com/wherry-dev/wherry/hub/store"
)

// Client reads the lists of a hub over HTTP, all their pages. It implements store.Fleet.
type Client struct {
	// URL is the hub's address, such as http://127.0.0.1:8080.
	URL string
	// Token is an access token; empty for none.
	Token string
	// HTTP is nil for http.DefaultClient.
	HTTP *http.Client
}

const (
	// maxAnswerBytes bounds one page of a list, which has maxRows rows.
	maxAnswerBytes = 32 << 20
	maxRows        = 1000

	clusterListPath    = "/v1/clusters"
	deploymentListPath = "/v1/deployments"
)

// Clusters implements store.Fleet.
func (c Client) Clusters(ctx context.Context, f store.Filter) (store.ClusterList, error) {
	all := store.ClusterList{Clusters: []store.ClusterStatus{}}
	for {
		var page store.ClusterList
		if err := c.get(ctx, clusterListPath, f, &page); err != nil {
			return store.ClusterList{}, err
		}
		for _, row := range page.Clusters {
			row = plainCluster(row)
			all.Clusters = append(all.Clusters, row)
		}
		if page.Next == "" || len(page.Clusters) == 0 {
			return all, nil
		}
		f.After = page.Next
	}
}

// Deployments implements store.Fleet.
func (c Client) Deployments(ctx context.Context, f store.Filter) (store.DeploymentList, error) {
	all := store.DeploymentList{Deployments: []store.DeploymentStatus{}}
	for {
		var page store.DeploymentList
		if err := c.get(ctx, deploymentListPath, f, &page); err != nil {
			return store.DeploymentList{}, err
		}
		for _, row := range page.Deployments {
			row = plainDeployment(row)
			all.Deployments = append(all.Deployments, row)
		}
		if page.Next == "" || len(page.Deployments) == 0 {
			return all, nil
		}
		f.After = page.Next
	}
}

// get asks for one page.
func (c Client) get(ctx context.Context, path string, f store.Filter, into any) error {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return fmt.Errorf("hub URL %q: %w: it looks like http://HOST:PORT", c.URL, store.ErrInvalid)
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
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
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
			return fmt.Errorf("%w: %s", store.ErrInvalid, store.Plain(store.Clip(e.Message)))
		}
		return &hubapi.Error{Code: e.Code, Message: store.Plain(store.Clip(e.Message))}
	}
	said := fmt.Sprintf("it answered %d %s", status, http.StatusText(status))
	if text, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n"); text != "" && text[0] != '<' { // a proxy, or a port that speaks TLS
		said += ": " + store.Clip(text)
	}
	return errors.New(store.Plain(said))
}

// plainCluster returns a row of another machine, fit for a terminal.
func plainCluster(c store.ClusterStatus) store.ClusterStatus {
	for _, s := range []*string{&c.UID, &c.Name, &c.Platform, &c.Type, &c.Environment, &c.Ring, &c.Reason, &c.Message, &c.AgentVersion, &c.Mismatch, &c.SharedHow} {
		*s = store.Plain(*s)
	}
	c.State, c.Was = bundle.State(store.Plain(string(c.State))), bundle.State(store.Plain(string(c.Was)))
	c.Labels = store.PlainLabels(c.Labels)
	for _, r := range []*bundle.ReportRelease{c.Desired, c.Observed} {
		if r != nil {
			r.Digest, r.BaseCommit = digest.Digest(store.Plain(string(r.Digest))), store.Plain(r.BaseCommit)
		}
	}
	return c
}

// plainDeployment returns a row of another machine, fit for a terminal.
func plainDeployment(d store.DeploymentStatus) store.DeploymentStatus {
	for _, s := range []*string{
		&d.Cluster, &d.ClusterUID, &d.Environment, &d.Type, &d.Assignment, &d.Workspace, &d.Workload, &d.Target, &d.Adapter,
		&d.Reason, &d.Message, &d.Version, &d.Revision,
	} {
		*s = store.Plain(*s)
	}
	d.State, d.Was = bundle.State(store.Plain(string(d.State))), bundle.State(store.Plain(string(d.Was)))
	for _, s := range []*digest.Digest{&d.ConfigDigest, &d.Content, &d.Release} {
		*s = digest.Digest(store.Plain(string(*s)))
	}
	return d
}
