// Package client asks a hub over HTTP. Begin with Client, which implements fleet.Answers.
//
// Answers are bounded, and all their texts are plain, fit for a terminal, whatever the other side sends. Fields that this
// version does not know are ignored. An access token is sent to the hub's own address and to no other.
package client

import (
	"cmp"
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

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Client is fleet.Answers of the hub at a URL. The errors of answers are those of fleet.Answers, or a *hubapi.Error for
// what else the hub refuses. It may be used by several goroutines.
type Client struct {
	// URL is the hub's address, such as http://127.0.0.1:8080. It may have a path, behind a proxy.
	URL string
	// Token is an access token; empty for none.
	Token string
	// HTTP is nil for http.DefaultClient. Its timeout does not hold for Events.
	HTTP *http.Client

	maxList int64 // in place of maxListBytes; zero for that
}

var _ fleet.Answers = Client{}

const (
	// maxAnswerBytes bounds one answer, maxListBytes all pages of a list.
	maxAnswerBytes = 64 << 20
	maxListBytes   = 2 << 30
	// minPageBytes is what a page counts for at least, so that empty ones have an end.
	minPageBytes = 4 << 10
	// maxErrorBytes bounds the body of an answer that is an error.
	maxErrorBytes = 64 << 10
)

// Clusters implements fleet.Answers.
func (c Client) Clusters(ctx context.Context, q fleet.Query) (fleet.Clusters, error) {
	return list(ctx, c, "v1/clusters", q, q.Values(), func(p *fleet.Clusters) (*[]fleet.Cluster, *string) { return &p.Clusters, &p.Next })
}

// Deployments implements fleet.Answers.
func (c Client) Deployments(ctx context.Context, q fleet.Query) (fleet.Deployments, error) {
	return list(ctx, c, "v1/deployments", q, q.Values(), func(p *fleet.Deployments) (*[]fleet.Deployment, *string) { return &p.Deployments, &p.Next })
}

// Count implements fleet.Answers.
func (c Client) Count(ctx context.Context, of string, by []string, q fleet.Query) (fleet.Counts, error) {
	values := q.Values()
	values.Set("of", of)
	values.Set("by", strings.Join(by, ","))
	return get[fleet.Counts](ctx, c, "v1/counts", values)
}

// Facets implements fleet.Answers.
func (c Client) Facets(ctx context.Context, of string, by []string, q fleet.Query) (fleet.Facets, error) {
	values := q.Values()
	values.Set("of", of)
	values.Set("by", strings.Join(by, ","))
	return get[fleet.Facets](ctx, c, "v1/facets", values)
}

// Search implements fleet.Answers.
func (c Client) Search(ctx context.Context, text string) (fleet.Found, error) {
	return get[fleet.Found](ctx, c, "v1/search", url.Values{"q": {text}})
}

// Releases implements fleet.Answers.
func (c Client) Releases(ctx context.Context, q fleet.Query) (fleet.Releases, error) {
	return list(ctx, c, "v1/releases", q, q.Values(), func(p *fleet.Releases) (*[]fleet.Release, *string) { return &p.Releases, &p.Next })
}

// Release implements fleet.Answers.
func (c Client) Release(ctx context.Context, name string, q fleet.Query) (fleet.ReleaseDetail, error) {
	return get[fleet.ReleaseDetail](ctx, c, "v1/releases/"+url.PathEscape(name), q.Values())
}

// Environments implements fleet.Answers.
func (c Client) Environments(ctx context.Context, q fleet.Query) (fleet.Environments, error) {
	return get[fleet.Environments](ctx, c, "v1/environments", q.Values())
}

// Candidate implements fleet.Answers.
func (c Client) Candidate(ctx context.Context, platform, from, environment, ring string) (fleet.Candidate, error) {
	values := url.Values{"environment": {environment}}
	for name, v := range map[string]string{"platform": platform, "from": from, "ring": ring} {
		if v != "" {
			values.Set(name, v)
		}
	}
	return get[fleet.Candidate](ctx, c, "v1/candidate", values)
}

// Rollout implements fleet.Answers. Without a limit, it lists at most fleet.MaxRows open clusters.
func (c Client) Rollout(ctx context.Context, environment, commit string, q fleet.RolloutQuery) (fleet.Rollout, error) {
	if q.Limit == 0 || q.Limit > fleet.MaxRows {
		q.Limit = fleet.MaxRows
	}
	values := q.Values()
	values.Set("environment", environment)
	values.Set("commit", commit)
	if len(q.Rings) > 0 {
		values.Set("rings", strings.Join(q.Rings, ","))
	}
	for name, at := range map[string]time.Time{"registeredBefore": q.RegisteredBefore, "failuresSince": q.FailuresSince} {
		if !at.IsZero() {
			values.Set(name, fleet.FormatMoment(at))
		}
	}
	if q.MaxReportAge != 0 {
		values.Set("maxReportAge", q.MaxReportAge.String())
	}
	return get[fleet.Rollout](ctx, c, "v1/rollout", values)
}

// Content implements fleet.Answers.
func (c Client) Content(ctx context.Context, environment string, q fleet.ContentQuery) (fleet.Content, error) {
	values := url.Values{"environment": {environment}, "record": {q.Record.String()}}
	if q.Required != "" {
		values.Set("required", q.Required)
	}
	if q.MaxReportAge != 0 {
		values.Set("maxReportAge", q.MaxReportAge.String())
	}
	return write[fleet.Content](ctx, c, http.MethodPost, "v1/content", values, q.Workloads)
}

// Compare implements fleet.Answers.
func (c Client) Compare(ctx context.Context, left, right fleet.Side, o fleet.CompareOptions) (fleet.Comparison, error) {
	values := url.Values{"left": {left.Values().Encode()}, "right": {right.Values().Encode()}}
	if o.OnlyDiff {
		values.Set("onlyDiff", "true")
	}
	if len(o.Ignore) > 0 {
		values.Set("ignore", strings.Join(o.Ignore, ","))
	}
	answer, err := get[fleet.Comparison](ctx, c, "v1/compare", values)
	if err != nil {
		return answer, err
	}
	answer.Left, answer.Right = left.Name, right.Name
	return answer, nil
}

// Drift implements fleet.Answers.
func (c Client) Drift(ctx context.Context, q fleet.Query) (fleet.Drifts, error) {
	return list(ctx, c, "v1/drift", q, q.Values(), func(p *fleet.Drifts) (*[]fleet.Drift, *string) { return &p.Drifts, &p.Next })
}

// History implements fleet.Answers.
func (c Client) History(ctx context.Context, q fleet.HistoryQuery) (fleet.History, error) {
	values := q.Values()
	for name, at := range map[string]time.Time{"from": q.From, "until": q.Until} {
		if !at.IsZero() {
			values.Set(name, fleet.FormatMoment(at))
		}
	}
	return list(ctx, c, "v1/history", q.Query, values, func(p *fleet.History) (*[]fleet.HistoryRow, *string) { return &p.Changes, &p.Next })
}

// Reports implements fleet.Answers.
func (c Client) Reports(ctx context.Context, cluster string, q fleet.Query) (fleet.Reports, error) {
	return list(ctx, c, "v1/clusters/"+url.PathEscape(cluster)+"/reports", q, q.Values(), func(p *fleet.Reports) (*[]fleet.Report, *string) { return &p.Reports, &p.Next })
}

// Report implements fleet.Answers.
func (c Client) Report(ctx context.Context, cluster, name string) (fleet.ReportDetail, error) {
	return get[fleet.ReportDetail](ctx, c, "v1/clusters/"+url.PathEscape(cluster)+"/reports/"+url.PathEscape(name), nil)
}

// list asks for the pages of a list until there are as many rows as q wants, and returns them as one page, whose other fields
// are those of the first. Parts points at a page's rows, and at where the next one begins; that is empty at the list's end.
func list[P, R any](ctx context.Context, c Client, path string, q fleet.Query, values url.Values, parts func(*P) (*[]R, *string)) (all P, err error) {
	rows, next := parts(&all)
	budget := cmp.Or(c.maxList, maxListBytes)
	for asked, after := 0, q.After; ; asked++ {
		limit := fleet.MaxRows
		if q.Limit > 0 {
			limit = min(limit, q.Limit-len(*rows))
		}
		values.Set("limit", strconv.Itoa(limit))
		if after != "" {
			values.Set("after", after)
		}
		if budget <= 0 {
			*next = ""
			return all, c.wrap(errTooLarge)
		}
		var page P
		read, err := c.getBounded(ctx, path, values, &page, min(maxAnswerBytes, budget))
		if err != nil {
			*next = ""
			return all, err
		}
		budget -= max(read, minPageBytes)
		more, following := parts(&page)
		if asked == 0 {
			all = page
		} else {
			*rows, *next = append(*rows, *more...), *following
		}
		if *next == "" || *next == after || q.Limit > 0 && len(*rows) >= q.Limit {
			return all, nil
		}
		after = *next
	}
}

var errTooLarge = errors.New("the answer is too large; choose fewer rows, or give a limit")

// get asks for one answer.
func get[T any](ctx context.Context, c Client, path string, values url.Values) (answer T, err error) {
	_, err = c.getBounded(ctx, path, values, &answer, maxAnswerBytes)
	return answer, err
}

// getBounded asks for one answer of at most so many bytes, and returns how many it had.
func (c Client) getBounded(ctx context.Context, path string, values url.Values, into any, most int64) (int64, error) {
	answer, err := c.do(ctx, c.client(), path, values, hubapi.ContentType)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil {
		return 0, c.wrap(reasonOf(err))
	}
	if int64(len(body)) > most {
		return 0, c.wrap(errTooLarge)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return 0, c.wrap(errors.New(store.Plain("the answer is not a hub's: " + err.Error())))
	}
	fleet.Plain(into)
	return int64(len(body)), nil
}

// do sends a request and returns the answer, whose status is 200. The caller closes its body.
func (c Client) do(ctx context.Context, client *http.Client, path string, values url.Values, accept string, headers ...string) (*http.Response, error) {
	return c.send(ctx, client, http.MethodGet, path, values, nil, accept, headers...)
}

// send is do with a method and a body.
func (c Client) send(ctx context.Context, client *http.Client, method, path string, values url.Values, body io.Reader, accept string, headers ...string) (*http.Response, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || base.User != nil || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("hub URL %q: %w: it looks like http://HOST:PORT", redacted(base, c.URL), store.ErrInvalid)
	}
	u := base.JoinPath(path)
	u.RawQuery = values.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, c.wrap(err)
	}
	request.Header.Set("Accept", accept)
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, c.wrap(reasonOf(err))
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes)) // what has come is as good
		return nil, c.wrap(errorOf(answer, body))
	}
	return answer, nil
}

// client returns the client for requests, which follows no redirect to another place: a token is for one hub.
func (c Client) client() *http.Client {
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	follow := client.CheckRedirect
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if first := via[0].URL; next.URL.Host != first.Host || next.URL.Scheme != first.Scheme {
			return fmt.Errorf("it redirects to %s://%s; give that URL if it is the hub's", next.URL.Scheme, next.URL.Host)
		}
		if follow != nil {
			return follow(next, via)
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("it redirects more than %d times", maxRedirects)
		}
		return nil
	}
	return &client
}

const maxRedirects = 5

// wrap says which hub an error is of.
func (c Client) wrap(err error) error { return fmt.Errorf("hub %s: %w", store.Plain(c.URL), err) }

// redacted returns a URL for an error, without a password.
func redacted(u *url.URL, text string) string {
	if u == nil || u.User == nil {
		return store.Plain(store.Clip(text))
	}
	return u.Redacted()
}

// reasonOf returns the reason of a failed request, without the whole address that it repeats.
func reasonOf(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
