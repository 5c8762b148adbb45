package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// read is a route that reads.
type read struct {
	path       string
	permission access.Permission
	summary    string
	// only are the parameters of fleet.Query that it takes; nil for all.
	only []string
	// more are the parameters that it reads itself.
	more []Parameter
	// body is a value of the type of its body, which makes it a POST; nil for none.
	body any
	// answer is a value of the type that it answers with, rows the JSON name of its list, which CSV and NDJSON have; empty for
	// none.
	answer any
	rows   string
	// ask is nil for the stream of events.
	ask func(ctx context.Context, from fleet.Answers, r asked) (any, error)
}

// Parameter is a parameter of a route, for the document.
type Parameter struct {
	Name, About string
	Required    bool
	// Example is a value that the route takes.
	Example string
}

// Operation is what the document says of a route that reads.
type Operation struct {
	// Pattern is that of the route.
	Pattern, Summary string
	Parameters       []Parameter
	// Body is a value of the type of the request's body; nil for none.
	Body any
	// Answer is a value of the type that the route answers with. Lists are also answered as CSV and NDJSON.
	Answer any
	List   bool
	// Stream is true for an answer of server-sent events, each of which is an Answer.
	Stream bool
}

// Operations returns the routes that read the fleet, for the document.
func Operations() (all []Operation) {
	for _, r := range reads() {
		o := Operation{Pattern: r.pattern(), Summary: r.summary, Body: r.body, Answer: r.answer, List: r.rows != "", Stream: r.ask == nil}
		o.Parameters = append(o.Parameters, r.more...)
		for _, name := range r.parameters() {
			if about, ok := chooses[name]; ok && !slices.Contains(r.others(), name) {
				about.Name = name
				o.Parameters = append(o.Parameters, about)
			}
		}
		all = append(all, o)
	}
	return all
}

// chooses says what the parameters of fleet.Query choose.
var chooses = map[string]Parameter{
	"selector":    {About: "a label selector as kubectl's, of the labels as registered; l for short", Example: "region=east,gpu!=true"},
	"cluster":     {About: "the name or uid of one cluster", Example: "plant-7"},
	"platform":    {About: "the platform", Example: "shop"},
	"environment": {About: "the environment", Example: "dev"},
	"type":        {About: "the cluster type", Example: "drone"},
	"ring":        {About: "the ring", Example: "canary"},
	"workspace":   {About: "the workspace of deployments, or clusters that have one", Example: "kaizen"},
	"application": {About: "the application", Example: "till"},
	"workload":    {About: "the workload", Example: "drone"},
	"target":      {About: "the deployment target", Example: "main"},
	"adapter":     {About: "the reconciler", Example: "flux"},
	"version":     {About: "the version of the workload", Example: "1.2.0"},
	"commit":      {About: "a commit of the platform or of its environment, or its beginning with at least 7 digits", Example: "c0ffee1"},
	"config":      {About: "the digest of the composed configuration, or its beginning with at least 7 digits", Example: "1234567"},
	"content":     {About: "the digest of the assignment's files, or its beginning", Example: "1234567"},
	"release":     {About: "the digest of the release that runs, or its beginning", Example: "1234567"},
	"image":       {About: "an image that the release has: a reference, a repository, or a digest", Example: "registry.example/till:1.2.0"},
	"state":       {About: "states, repeated or with commas between them", Example: "failed,stale"},
	"relation":    {About: "relation of clusters to their desired release: current, behind, ahead, foreign, nothing", Example: "behind,foreign"},
	"silentFor":   {About: "clusters whose last word is at least that old", Example: "7d"},
	"asOf":        {About: "the moment that is asked about: a time in RFC 3339, a day, or a duration back from now", Example: "24h"},
	"sort":        {About: "the field to sort by, with - before it for the reverse", Example: "-state"},
	"after":       {About: "continues a list: the next of the page before"},
	"limit":       {About: "the rows of one page; 500 if absent, at most 1000", Example: "100"},
}

// pattern returns the route's pattern for http.ServeMux.
func (r read) pattern() string {
	if r.body != nil {
		return "POST " + r.path
	}
	return "GET " + r.path
}

// parameters names all parameters of the route.
func (r read) parameters() []string {
	names := r.only
	if r.only == nil {
		names = append(fleet.Parameters(), "l")
	}
	return append(slices.Clone(names), r.others()...)
}

func (r read) others() (names []string) {
	for _, p := range r.more {
		names = append(names, p.Name)
	}
	return names
}

// paged reports whether the answer is bounded by a limit.
func (r read) paged() bool { return slices.Contains(r.parameters(), "limit") }

// without are all parameters of fleet.Query but some.
func without(names ...string) []string {
	return slices.DeleteFunc(append(fleet.Parameters(), "l"), func(name string) bool { return slices.Contains(names, name) })
}

// ClusterDetail is a cluster with its deployments.
type ClusterDetail struct {
	Cluster     fleet.Cluster      `json:"cluster"`
	Deployments []fleet.Deployment `json:"deployments"`
	// Next continues the deployments.
	Next string `json:"next,omitempty"`
}

// format is the parameter of all lists for those who cannot choose a header, such as a link in a page.
var format = Parameter{Name: "format", About: "csv, ndjson or json, in place of the header Accept", Example: "csv"}

// reads returns the one table of the routes that read the fleet.
func reads() []read {
	all := allReads()
	for i, r := range all {
		if r.rows != "" {
			all[i].more = append(r.more, format)
		}
	}
	return all
}

func allReads() []read {
	return []read{
		{
			path: "/v1/clusters", permission: access.Read, summary: "Clusters, by name, with totals of all that the query chooses",
			answer: fleet.Clusters{}, rows: "clusters",
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Clusters(ctx, r.query)
			},
		},
		{
			path: "/v1/clusters/{cluster}", permission: access.Read, summary: "One cluster, by name or uid, with its deployments",
			only: []string{"asOf", "after", "limit"}, answer: ClusterDetail{}, ask: askCluster,
		},
		{
			path: "/v1/clusters/{cluster}/reports", permission: access.ReadWhole, summary: "The stored reports of a cluster, newest first",
			only: []string{"after", "limit"}, answer: fleet.Reports{}, rows: "reports",
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Reports(ctx, r.PathValue("cluster"), r.query)
			},
		},
		{
			path: "/v1/clusters/{cluster}/reports/{report}", permission: access.ReadWhole, summary: "One report, by its name or id, with its envelope and the verdict on its signature",
			only: []string{}, answer: fleet.ReportDetail{},
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Report(ctx, r.PathValue("cluster"), r.PathValue("report"))
			},
		},
		{
			path: "/v1/deployments", permission: access.Read, summary: "What runs on clusters, by cluster and assignment, with totals of all that the query chooses",
			answer: fleet.Deployments{}, rows: "deployments",
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Deployments(ctx, r.query)
			},
		},
		{
			path: "/v1/counts", permission: access.Read, summary: "How many clusters or deployments there are by up to four dimensions",
			only: without("after", "limit", "sort"), answer: fleet.Counts{}, rows: "rows",
			more: []Parameter{
				{Name: "of", About: "clusters (the default) or deployments", Example: "clusters"},
				{Name: "by", About: "up to four dimensions, with commas between them", Required: true, Example: "environment,type,ring,state"},
			},
			ask: askCounts,
		},
		{
			path: "/v1/facets", permission: access.Read, summary: "How many clusters or deployments there are by each of several dimensions, whatever the query says of that dimension",
			only: without("after", "limit", "sort"), answer: fleet.Facets{},
			more: []Parameter{
				{Name: "of", About: "clusters (the default) or deployments", Example: "clusters"},
				{Name: "by", About: "up to 16 dimensions, with commas between them; label:* is each label, at most 8", Required: true, Example: "state,environment,label:*"},
			},
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Facets(ctx, rowsToCount(r), namesIn(r.values.Get("by")), r.query)
			},
		},
		{
			path: "/v1/search", permission: access.Read, summary: "Names in the fleet that have a text: clusters, environments, types, workloads, images, commits, labels",
			only: []string{}, answer: fleet.Found{}, rows: "results",
			more: []Parameter{{Name: "q", About: "the text, at least two letters; whatever the case", Required: true, Example: "drone"}},
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Search(ctx, r.values.Get("q"))
			},
		},
		{
			path: "/v1/releases", permission: access.Read, summary: "Releases, newest first, and how far the clusters are with them",
			only: without("sort"), answer: fleet.Releases{}, rows: "releases",
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Releases(ctx, r.query)
			},
		},
		{
			path: "/v1/releases/{release}", permission: access.Read, summary: "One release, by its digest, the beginning of it, or its number in a stream",
			only: without("after", "limit", "sort"), answer: fleet.ReleaseDetail{},
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Release(ctx, r.PathValue("release"), r.query)
			},
		},
		{
			path: "/v1/releases/{release}/compare/{other}", permission: access.Read, summary: "What differs between a release and another one, which came later",
			only: []string{}, answer: fleet.ReleaseDiff{},
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				before, err := from.Release(ctx, r.PathValue("release"), r.query)
				if err != nil {
					return nil, err
				}
				after, err := from.Release(ctx, r.PathValue("other"), r.query)
				if err != nil {
					return nil, err
				}
				return fleet.DiffReleases(before, after)
			},
		},
		{
			path: "/v1/candidate", permission: access.Read, summary: "What an environment would get from another one, or a ring from the ring before it; the scope has to have them all",
			only: []string{}, answer: fleet.Candidate{},
			more: []Parameter{
				{Name: "environment", About: "the environment that would get it", Required: true, Example: "prod"},
				{Name: "platform", About: "its platform", Example: "default"},
				{Name: "from", About: "the environment that has it; the one before in the chain if absent", Example: "dev"},
				{Name: "ring", About: "the ring that would get it, from the ring before it", Example: "early"},
			},
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				environment := r.values.Get("environment")
				if environment == "" {
					return nil, invalid("parameter environment is needed")
				}
				return from.Candidate(ctx, r.values.Get("platform"), r.values.Get("from"), environment, r.values.Get("ring"))
			},
		},
		{
			path: "/v1/environments", permission: access.Read, summary: "Environments, by platform and name",
			only: without("after", "limit", "sort"), answer: fleet.Environments{}, rows: "environments",
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) {
				return from.Environments(ctx, r.query)
			},
		},
		{
			path: "/v1/rollout", permission: access.Read, summary: "How far the clusters of an environment are with a commit of the platform",
			only:   without("after", "sort", "environment", "commit", "state", "relation", "silentFor", "release", "version", "config", "content", "image"),
			answer: fleet.Rollout{},
			more: []Parameter{
				{Name: "environment", About: "the environment", Required: true, Example: "prod"},
				{Name: "commit", About: "the commit, or its beginning with at least 7 digits", Required: true, Example: "c0ffee1"},
				{Name: "rings", About: "the rings whose clusters count, with commas between them; an empty name after a comma is clusters without a ring", Example: "canary,early"},
				{Name: "registeredBefore", About: "only clusters that were registered before that time; the others are counted in later", Example: "2026-11-21T12:00:00Z"},
				{Name: "maxReportAge", About: "clusters whose last word is older are unknown, whatever interval is expected of them", Example: "36h"},
				{Name: "failuresSince", About: "counts failures of assignments since that time", Example: "24h"},
			},
			ask: askRollout,
		},
		{
			path: "/v1/content", permission: access.Read, summary: "How far the clusters of an environment's last ring are with workloads of an environment record; the scope has to have them all",
			only: []string{}, body: []fleet.AskedWorkload{}, answer: fleet.Content{},
			more: []Parameter{
				{Name: "environment", About: "the environment", Required: true, Example: "prod"},
				{Name: "record", About: "the digest of the record", Required: true, Example: "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"},
				{Name: "maxReportAge", About: "clusters whose last word is older are unknown; three of their expected intervals if absent", Example: "36h"},
				{Name: "required", About: "a label selector of the clusters that are also counted apart; all if absent", Example: "pilot=true"},
			},
			ask: askContent,
		},
		{
			path: "/v1/compare", permission: access.Read, summary: "What differs between two parts of the fleet, or two moments, by workload and target",
			only: []string{}, answer: fleet.Comparison{}, rows: "rows",
			more: []Parameter{
				{Name: "left", About: "a query string, escaped, or the name of an environment", Required: true, Example: "environment=stage"},
				{Name: "right", About: "the other side", Required: true, Example: "environment=prod&asOf=24h"},
				{Name: "onlyDiff", About: "true leaves out what is the same", Example: "true"},
				{Name: "ignore", About: "what is not compared, with commas between: version, config, content, state; without version or config, content is not compared either", Example: "config"},
			},
			ask: askCompare,
		},
		{
			path: "/v1/drift", permission: access.Read, summary: "Differences from the desired state, by cluster",
			answer: fleet.Drifts{}, rows: "drifts",
			ask: func(ctx context.Context, from fleet.Answers, r asked) (any, error) { return from.Drift(ctx, r.query) },
		},
		{
			path: "/v1/history", permission: access.Read, summary: "Changes, newest first",
			only: without("asOf", "silentFor", "sort", "adapter", "image", "relation"), answer: fleet.History{}, rows: "changes",
			more: []Parameter{
				{Name: "from", About: "the earliest change: a time, or a duration back from now", Example: "30d"},
				{Name: "until", About: "only changes before that time", Example: "0s"},
			},
			ask: askHistory,
		},
		{
			path: "/v1/events", permission: access.Read, summary: "Changes as they come, as server-sent events; the header Last-Event-ID, or after, goes on from a position",
			only: without("asOf", "silentFor", "sort", "adapter", "image", "relation", "limit"), answer: fleet.Event{},
			more: []Parameter{{Name: "follow", About: "false ends the stream after the last event that is stored", Example: "false"}},
		},
	}
}

func askCluster(ctx context.Context, from fleet.Answers, r asked) (any, error) {
	name := r.PathValue("cluster")
	clusters, err := from.Clusters(ctx, fleet.Query{Cluster: name, AsOf: r.query.AsOf, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(clusters.Clusters) == 0 {
		return nil, &hubapi.Error{Code: hubapi.CodeNotFound, Kind: hubapi.KindCluster, Name: name, Message: "there is no such cluster"}
	}
	q := r.query
	q.Cluster = clusters.Clusters[0].UID
	deployments, err := from.Deployments(ctx, q)
	return ClusterDetail{clusters.Clusters[0], deployments.Deployments, deployments.Next}, err
}

func askCounts(ctx context.Context, from fleet.Answers, r asked) (any, error) {
	return from.Count(ctx, rowsToCount(r), namesIn(r.values.Get("by")), r.query)
}

// rowsToCount returns what a request wants counted.
func rowsToCount(r asked) string { return cmp.Or(r.values.Get("of"), "clusters") }

// namesIn returns the names between commas.
func namesIn(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func askRollout(ctx context.Context, from fleet.Answers, r asked) (any, error) {
	environment, commit := r.values.Get("environment"), r.values.Get("commit")
	if environment == "" || commit == "" {
		return nil, invalid("parameters environment and commit are needed")
	}
	q := fleet.RolloutQuery{Query: r.query}
	if rings := r.values.Get("rings"); rings != "" {
		for name := range strings.SplitSeq(rings, ",") {
			q.Rings = append(q.Rings, strings.TrimSpace(name)) // an empty one is that of clusters without a ring
		}
	}
	var err error
	for name, field := range map[string]*time.Time{"registeredBefore": &q.RegisteredBefore, "failuresSince": &q.FailuresSince} {
		if v := r.values.Get(name); v != "" {
			if *field, err = duration.Moment(v, r.now); err != nil {
				return nil, invalid("parameter %s: %s", name, err)
			}
		}
	}
	if v := r.values.Get("maxReportAge"); v != "" {
		if q.MaxReportAge, err = duration.Parse(v); err != nil {
			return nil, invalid("parameter maxReportAge: %s", err)
		}
	}
	return from.Rollout(ctx, environment, commit, q)
}

func askContent(ctx context.Context, from fleet.Answers, r asked) (any, error) {
	environment, record := r.values.Get("environment"), digest.Digest(r.values.Get("record"))
	if environment == "" || record == "" {
		return nil, invalid("parameters environment and record are needed")
	}
	q := fleet.ContentQuery{Record: record, Required: r.values.Get("required")}
	var err error
	if v := r.values.Get("maxReportAge"); v != "" {
		if q.MaxReportAge, err = duration.Parse(v); err != nil {
			return nil, invalid("parameter maxReportAge: %s", err)
		}
	}
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&q.Workloads); err != nil || d.More() {
		return nil, invalid("the body is not one list of workloads: %v", err)
	}
	return from.Content(ctx, environment, q)
}

func askCompare(ctx context.Context, from fleet.Answers, r asked) (any, error) {
	var sides [2]fleet.Side
	for i, name := range []string{"left", "right"} {
		if r.values.Get(name) == "" {
			return nil, invalid("parameters left and right are needed")
		}
		var err error
		if sides[i], err = fleet.ParseSide(r.values.Get(name), r.now); err != nil {
			return nil, err
		}
	}
	o := fleet.CompareOptions{Ignore: namesIn(r.values.Get("ignore"))}
	if v := r.values.Get("onlyDiff"); v != "" {
		var err error
		if o.OnlyDiff, err = strconv.ParseBool(v); err != nil {
			return nil, invalid("parameter onlyDiff: %q is neither true nor false", v)
		}
	}
	return from.Compare(ctx, sides[0], sides[1], o)
}

func askHistory(ctx context.Context, from fleet.Answers, r asked) (any, error) {
	q := fleet.HistoryQuery{Query: r.query}
	for name, field := range map[string]*time.Time{"from": &q.From, "until": &q.Until} {
		if v := r.values.Get(name); v != "" {
			at, err := duration.Moment(v, r.now)
			if err != nil {
				return nil, invalid("parameter %s: %s", name, err)
			}
			*field = at
		}
	}
	return from.History(ctx, q)
}
