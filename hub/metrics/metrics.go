// Package metrics renders the page of metrics that a hub serves to Prometheus, and keeps its counters.
//
// Counters count while the hub works; a Snapshot adds how the hub stands, and Page renders both. No metric has a label for a
// cluster, and MaxNames bounds the lines of each metric, whatever agents and publishers say. docs/reference/hub-metrics.md
// lists the metrics.
package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// MaxNames bounds the environments, cluster types, releases, versions, platforms and access tokens that a page names. Those
// that are counted are counted together beyond it, as Others.
const MaxNames = 500

// Others is the name of what is beyond MaxNames.
const Others = "(others)"

// Upper bounds of the groups in which durations are counted, in seconds.
var bounds = [...]float64{0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 60}

// Counters count since the process began. The zero Counters is ready. It may be used by several goroutines.
type Counters struct {
	mu         sync.Mutex
	stored     map[store.Via]int64
	duplicates int64
	rejected   map[hubapi.Code]int64
	refused    map[hubapi.Code]int64
	requests   map[route]*durations
	trimmed    store.Trimmed
}

type route struct{ pattern, class string }

type durations struct {
	groups  [len(bounds)]int64 // not those of groups below
	n       int64
	seconds float64
}

// Stored counts reports that were stored, or were already.
func (c *Counters) Stored(via store.Via, accepted, duplicates int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stored == nil {
		c.stored = map[store.Via]int64{}
	}
	c.stored[via] += int64(accepted)
	c.duplicates += int64(duplicates)
}

// Rejected counts a report that was refused.
func (c *Counters) Rejected(code hubapi.Code) { c.count(&c.rejected, code) }

// Refused counts a request that was refused as a whole.
func (c *Counters) Refused(code hubapi.Code) { c.count(&c.refused, code) }

func (c *Counters) count(in *map[hubapi.Code]int64, code hubapi.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *in == nil {
		*in = map[hubapi.Code]int64{}
	}
	(*in)[code]++
}

// Answered counts a request by the pattern of its route, and its status. Pattern is empty if there is no such route.
func (c *Counters) Answered(pattern string, status int, took time.Duration) {
	if pattern == "" {
		pattern = "none"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests == nil {
		c.requests = map[route]*durations{}
	}
	at := route{pattern, fmt.Sprintf("%dxx", status/100)}
	d := c.requests[at]
	if d == nil {
		d = &durations{}
		c.requests[at] = d
	}
	d.n++
	d.seconds += took.Seconds()
	for i, bound := range bounds {
		if took.Seconds() <= bound {
			d.groups[i]++
			return
		}
	}
}

// Trimmed counts what retention has removed.
func (c *Counters) Trimmed(t store.Trimmed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimmed.Envelopes += t.Envelopes
	c.trimmed.Transitions += t.Transitions
}

// Clusters is how many clusters of an environment, or of a type, are in a state.
type Clusters struct {
	Name, State string
	Count       int
}

// Release is one that an environment's newest record names, with the clusters that should run it by verdict.
type Release struct {
	Platform, Environment, Type string
	Name, Commit                string // as people call it, and the platform's commit
	IssuedAt, ExpiresAt         time.Time

	Compliant, Progressing, Failed, Waiting, Unknown int
}

// worse orders releases: those that fail first, then those that clusters have yet to take, then those that end soon.
func worse(a, b Release) int {
	return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Waiting+b.Progressing, a.Waiting+a.Progressing), a.ExpiresAt.Compare(b.ExpiresAt))
}

// Deployments is how many deployments of a workload have a version.
type Deployments struct {
	Environment, Workload, Version string
	Count                          int
}

// Token is an access token that ends.
type Token struct {
	Name, Role string
	ExpiresAt  time.Time
}

// Snapshot is how a hub stands. What is nil, or negative, is not shown.
type Snapshot struct {
	Version string
	// Environments and Types count clusters.
	Environments, Types []Clusters
	Releases            []Release
	Deployments         []Deployments
	// Trust has the end of the trust document in force by platform.
	Trust  map[string]time.Time
	Tokens []Token
	// End is the position of the newest change in the database, and Applied that of the newest that this process shows.
	End, Applied store.Position
	Upstream     *Upstream
	// DatabaseBytes is the size of the database, and DiskFree and DiskSize are of the file system of the hub's folder.
	DatabaseBytes, DiskFree, DiskSize int64
}

// Upstream is how forwarding to another hub stands.
type Upstream struct {
	Position store.Position
	// BehindSeconds is the age of the oldest report that was not forwarded.
	BehindSeconds      float64
	Forwarded, Refused int64
	Waiting            map[hubapi.Code]int
	Failing            bool
}

// Page returns the metrics in Prometheus' text format; see ContentType.
func (c *Counters) Page(s Snapshot) []byte {
	var p page
	p.write("wherry_hub_build_info", gauge, "1, with the versions of the hub and of Go.", sample{value: 1, labels: []string{"version", s.Version, "go", runtime.Version()}})
	p.write("wherry_hub_clusters", gauge, "Registered clusters, by environment and state.", clusters("environment", s.Environments)...)
	p.write("wherry_hub_clusters_by_type", gauge, "Registered clusters, by cluster type and state.", clusters("type", s.Types)...)
	s.writeReleases(&p)
	s.writeEnds(&p)
	c.write(&p)
	if s.End >= 0 {
		p.write("wherry_hub_feed_position", gauge, "Position of the newest change in the database.", one(float64(s.End)))
	}
	if s.End >= 0 && s.Applied >= 0 {
		p.write("wherry_hub_feed_lag", gauge, "Changes that the database has and this process does not show yet.", one(max(0, float64(s.End-s.Applied))))
	}
	s.Upstream.write(&p)
	if s.DatabaseBytes >= 0 {
		p.write("wherry_hub_database_bytes", gauge, "Size of the database.", one(float64(s.DatabaseBytes)))
	}
	if s.DiskSize > 0 {
		p.write("wherry_hub_disk_free_bytes", gauge, "Bytes that the hub may still write to the file system of its folder.", one(float64(s.DiskFree)))
		p.write("wherry_hub_disk_size_bytes", gauge, "Size of that file system.", one(float64(s.DiskSize)))
	}
	process(&p)
	return p.Bytes()
}

// writeReleases writes the releases and the versions, each up to MaxNames.
func (s Snapshot) writeReleases(p *page) {
	all := slices.SortedStableFunc(slices.Values(s.Releases), worse)
	var counted, issued, expires []sample
	others := Release{Platform: Others, Environment: Others, Type: Others, Name: Others, Commit: Others}
	count := func(r Release) {
		labels := []string{"platform", r.Platform, "environment", r.Environment, "type", r.Type, "release", r.Name, "commit", r.Commit, "verdict"}
		for _, v := range []struct {
			verdict string
			count   int
		}{{"compliant", r.Compliant}, {"failed", r.Failed}, {"progressing", r.Progressing}, {"unknown", r.Unknown}, {"waiting", r.Waiting}} {
			counted = append(counted, sample{value: float64(v.count), labels: append(slices.Clone(labels), v.verdict)})
		}
	}
	for i, r := range all {
		if i >= MaxNames {
			others.Compliant, others.Failed, others.Progressing = others.Compliant+r.Compliant, others.Failed+r.Failed, others.Progressing+r.Progressing
			others.Unknown, others.Waiting = others.Unknown+r.Unknown, others.Waiting+r.Waiting
			continue
		}
		count(r)
		if labels := []string{"platform", r.Platform, "environment", r.Environment, "type", r.Type, "release", r.Name}; !r.ExpiresAt.IsZero() {
			issued = append(issued, sample{value: float64(r.IssuedAt.Unix()), labels: labels})
			expires = append(expires, sample{value: float64(r.ExpiresAt.Unix()), labels: labels})
		}
	}
	if len(all) > MaxNames {
		count(others)
	}
	p.write("wherry_hub_release_clusters", gauge, "Clusters that should run a current release.", counted...)
	p.write("wherry_hub_release_issued_timestamp_seconds", gauge, "When the release was issued.", issued...)
	p.write("wherry_hub_release_expires_timestamp_seconds", gauge, "When the release expires for clusters that do not have it.", expires...)

	var deployments []sample
	beyond := 0
	for i, d := range s.Deployments {
		if i >= MaxNames {
			beyond += d.Count
			continue
		}
		deployments = append(deployments, sample{value: float64(d.Count), labels: []string{"environment", d.Environment, "workload", d.Workload, "version", d.Version}})
	}
	if beyond > 0 {
		deployments = append(deployments, sample{value: float64(beyond), labels: []string{"environment", Others, "workload", Others, "version", Others}})
	}
	p.write("wherry_hub_deployments", gauge, "Deployments of workloads that have a version.", deployments...)
}

// writeEnds writes when trust documents and access tokens end.
func (s Snapshot) writeEnds(p *page) {
	var trust, tokens []sample
	for _, platform := range slices.Sorted(maps.Keys(s.Trust))[:min(len(s.Trust), MaxNames)] {
		trust = append(trust, sample{value: float64(s.Trust[platform].Unix()), labels: []string{"platform", platform}})
	}
	for _, t := range slices.SortedFunc(slices.Values(s.Tokens), func(a, b Token) int { return a.ExpiresAt.Compare(b.ExpiresAt) })[:min(len(s.Tokens), MaxNames)] {
		tokens = append(tokens, sample{value: float64(t.ExpiresAt.Unix()), labels: []string{"name", t.Name, "role", t.Role}})
	}
	p.write("wherry_hub_trust_expires_timestamp_seconds", gauge, "When the trust document of a platform expires.", trust...)
	p.write("wherry_hub_access_token_expires_timestamp_seconds", gauge, "When an access token expires; without revoked ones.", tokens...)
}

// write writes the counters.
func (c *Counters) write(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var stored []sample
	for _, via := range []store.Via{store.ViaHTTP, store.ViaMedia, store.ViaRegistry} {
		stored = append(stored, sample{value: float64(c.stored[via]), labels: []string{"via", string(via)}})
	}
	p.write("wherry_hub_reports_stored_total", counter, "Reports that this process has stored.", stored...)
	p.write("wherry_hub_reports_duplicate_total", counter, "Reports that were stored before.", one(float64(c.duplicates)))
	p.write("wherry_hub_reports_rejected_total", counter, "Reports that were refused.", codes(withZeros(c.rejected, reportCodes...))...)
	p.write("wherry_hub_requests_refused_total", counter, "Requests that were refused as a whole.", codes(withZeros(c.refused, requestCodes...))...)
	p.write("wherry_hub_request_duration_seconds", histogram, "Time of requests, without event streams.", durationsOf(c.requests)...)
	p.write("wherry_hub_trimmed_envelopes_total", counter, "Envelopes that retention has removed.", one(float64(c.trimmed.Envelopes)))
	p.write("wherry_hub_trimmed_changes_total", counter, "Changes of the history that retention has removed.", one(float64(c.trimmed.Transitions)))
}

// write writes how forwarding stands; nothing for nil.
func (u *Upstream) write(p *page) {
	if u == nil {
		return
	}
	waiting := map[hubapi.Code]int64{hubapi.CodeUnknownCluster: 0}
	for code, n := range u.Waiting {
		waiting[code] = int64(n)
	}
	failing := 0.0
	if u.Failing {
		failing = 1
	}
	p.write("wherry_hub_upstream_position", gauge, "Position up to which reports are forwarded, refused or waiting; with --upstream.", one(float64(u.Position)))
	p.write("wherry_hub_upstream_behind_seconds", gauge, "Age of the oldest report that is not forwarded; 0 if there is none.", one(u.BehindSeconds))
	p.write("wherry_hub_upstream_failing", gauge, "1 while the upper hub does not take reports.", one(failing))
	p.write("wherry_hub_upstream_forwarded_total", counter, "Reports that the upper hub has acknowledged.", one(float64(u.Forwarded)))
	p.write("wherry_hub_upstream_refused_total", counter, "Reports that the upper hub refuses for good.", one(float64(u.Refused)))
	p.write("wherry_hub_upstream_waiting_clusters", gauge, "Clusters whose reports wait.", codes(waiting)...)
}

func one(value float64) sample { return sample{value: value} }

// The codes whose counters are there from the beginning: Prometheus does not see a counter begin with the first refusal.
var (
	reportCodes = []hubapi.Code{
		hubapi.CodeUnknownKey, hubapi.CodeBadSignature, hubapi.CodeWrongCluster, hubapi.CodeBadReport, hubapi.CodeTooLarge, hubapi.CodeConflict,
		hubapi.CodeKeyReplaced, hubapi.CodeRetired,
	}
	requestCodes = append([]hubapi.Code{
		hubapi.CodeUnknownCluster, hubapi.CodeBadRequest, hubapi.CodeBusy, hubapi.CodeOverQuota, hubapi.CodeTooSlow, hubapi.CodeUnavailable,
		hubapi.CodeUnauthenticated, hubapi.CodeUntrusted,
	}, reportCodes...)
)

// withZeros returns the counts, with zero for codes that were not counted.
func withZeros(counts map[hubapi.Code]int64, of ...hubapi.Code) map[hubapi.Code]int64 {
	all := map[hubapi.Code]int64{}
	for _, code := range of {
		all[code] = 0
	}
	maps.Copy(all, counts)
	return all
}

// codes returns a sample for each code.
func codes(counts map[hubapi.Code]int64) (all []sample) {
	for _, code := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, sample{value: float64(counts[code]), labels: []string{"code", string(code)}})
	}
	return all
}

// clusters returns a sample for each row, of the first MaxNames names in their order, and of all others together.
func clusters(label string, rows []Clusters) (all []sample) {
	names, others := map[string]bool{}, map[string]int{}
	for _, r := range rows {
		if !names[r.Name] && len(names) == MaxNames {
			others[r.State] += r.Count
			continue
		}
		names[r.Name] = true
		all = append(all, sample{value: float64(r.Count), labels: []string{label, r.Name, "state", r.State}})
	}
	for _, state := range slices.Sorted(maps.Keys(others)) {
		all = append(all, sample{value: float64(others[state]), labels: []string{label, Others, "state", state}})
	}
	return all
}

func durationsOf(requests map[route]*durations) (all []sample) {
	routes := slices.SortedFunc(maps.Keys(requests), func(a, b route) int {
		return slices.Compare([]string{a.pattern, a.class}, []string{b.pattern, b.class})
	})
	for _, r := range routes {
		d, labels, sum := requests[r], []string{"route", r.pattern, "status", r.class}, int64(0)
		for i, bound := range bounds {
			sum += d.groups[i]
			all = append(all, sample{suffix: "_bucket", value: float64(sum), labels: append(slices.Clone(labels), "le", fmt.Sprint(bound))})
		}
		all = append(all,
			sample{suffix: "_bucket", value: float64(d.n), labels: append(slices.Clone(labels), "le", "+Inf")},
			sample{suffix: "_sum", value: d.seconds, labels: labels},
			sample{suffix: "_count", value: float64(d.n), labels: labels})
	}
	return all
}

// process writes the metrics of the process. The names are those of Prometheus' own client library for Go, which dashboards know.
func process(p *page) {
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, resident int64 // pages, proc(5)
		if _, err := fmt.Sscan(string(data), &size, &resident); err == nil {
			p.write("process_resident_memory_bytes", gauge, "Resident memory; absent where the system has no /proc.", one(float64(resident*int64(os.Getpagesize()))))
		}
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	p.write("go_gc_heap_live_bytes", gauge, "What the last garbage collection has left.", one(float64(live[0].Value.Uint64())))
	p.write("go_goroutines", gauge, "Goroutines that exist.", one(float64(runtime.NumGoroutine())))
}
