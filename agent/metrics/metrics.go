// Package metrics shows how a running agent gets on: to Prometheus, to the process that started it, and to a watchdog.
//
// Fill a Snapshot and call Page. Traffic and Passes count while the agent works, Disk measures its files; all of them may be
// used by several goroutines. docs/reference/agent-metrics.md lists the metrics. A Pulse, made by NewPulse, is told of each step; a Server shows it at
// /healthz and /readyz, and Feed tells a Watchdog.
package metrics

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// Snapshot is an agent at one moment, as metrics show it.
type Snapshot struct {
	Now     time.Time
	Version string // of the agent
	// State and Reason are those of the agent as a whole.
	State  bundle.State
	Reason string
	Items  []bundle.Item
	// Running is nil where no release runs.
	Running *Release
	// Refused is true while the newest release that was offered is refused, Paused while a person wants nothing
	// changed, and Held while one has decided which release runs.
	Refused, Paused, Held bool
	Quarantined           int // releases that were given up
	// LastContact is nil where the registry never answered, NextTry where nobody asks it again.
	LastContact, NextTry *time.Time
	Passes               *Passes
	Traffic              *Traffic
	// Served is nil where the agent has no endpoint.
	Served *serve.Counters
	Queue  outbox.Status
	// Relay is nil where the agent takes no reports of others, and holds none.
	Relay *relay.Status
	// Trust is nil with pinned keys.
	Trust              *trust.Status
	ClockBehindSeconds int64
	Store              content.Status
	StateFileBytes     int64
	// Carry is nil if no assignment has artifacts carried.
	Carry *carry.Status
	// Streams are those that site packages have brought.
	Streams []intake.StreamStatus
}

// Release is one that runs.
type Release struct {
	Epoch, Sequence, AgeSeconds int64
	IssuedAt, ExpiresAt         *time.Time
}

// metric is one that /metrics shows. docs/reference/agent-metrics.md lists them all. What has labels has few values of them,
// whatever a release holds: none is about one assignment.
type metric struct {
	name, kind, help string
	samples          func(Snapshot) []sample
}

const gauge, counter, histogram = "gauge", "counter", "histogram"

// agentStates are the values of a label.
var agentStates = [...]bundle.State{
	bundle.Pending, bundle.Pulling, bundle.Verifying, bundle.Rejected, bundle.Applying, bundle.Progressing, bundle.Compliant,
	bundle.Drifted, bundle.Failed, bundle.Suspended, bundle.Removed,
}

// allMetrics are in the order of the page.
var allMetrics = [...]metric{
	{"wherry_agent_build_info", gauge, "1, with version and go.", func(s Snapshot) []sample {
		return []sample{{value: 1, labels: []string{"version", s.Version, "go", runtime.Version()}}}
	}},
	{"wherry_agent_state", gauge, "1 for the agent's state, 0 for others, by state.", func(s Snapshot) (all []sample) {
		for _, state := range agentStates {
			all = append(all, sample{value: oneIf(state == s.State), labels: []string{"state", string(state)}})
		}
		return all
	}},
	{"wherry_agent_reason_info", gauge, "1, with the agent's reason; absent without one.", func(s Snapshot) []sample {
		if s.Reason == "" {
			return nil
		}
		return []sample{{value: 1, labels: []string{"reason", s.Reason}}}
	}},
	{"wherry_agent_items", gauge, "Assignments, by state.", itemsByState},
	{"wherry_agent_release_epoch", gauge, "Epoch of the running release; absent without one.", ofRunning(func(r *Release) float64 { return float64(r.Epoch) })},
	{"wherry_agent_release_sequence", gauge, "Sequence of the running release.", ofRunning(func(r *Release) float64 { return float64(r.Sequence) })},
	{"wherry_agent_release_issued_timestamp_seconds", gauge, "When the running release was issued.", ofRunning(func(r *Release) float64 { return unix(r.IssuedAt) })},
	{"wherry_agent_release_expires_timestamp_seconds", gauge, "When the running release expires for agents that do not have it yet.", ofRunning(func(r *Release) float64 { return unix(r.ExpiresAt) })},
	{"wherry_agent_release_age_seconds", gauge, "Time since the running release was issued.", ofRunning(func(r *Release) float64 { return float64(r.AgeSeconds) })},
	{"wherry_agent_release_refused", gauge, "1 while the newest release is refused.", one(func(s Snapshot) float64 { return oneIf(s.Refused) })},
	{"wherry_agent_paused", gauge, "1 while a person has paused changes.", one(func(s Snapshot) float64 { return oneIf(s.Paused) })},
	{"wherry_agent_held", gauge, "1 while a person has rolled back.", one(func(s Snapshot) float64 { return oneIf(s.Held) })},
	{"wherry_agent_quarantined_releases", gauge, "Releases that were given up here.", one(func(s Snapshot) float64 { return float64(s.Quarantined) })},
	{"wherry_agent_last_contact_timestamp_seconds", gauge, "When the registry answered last, 404 too; absent if never.", at(func(s Snapshot) *time.Time { return s.LastContact })},
	{"wherry_agent_last_contact_age_seconds", gauge, "Time since the registry answered last.", func(s Snapshot) []sample {
		if s.LastContact == nil {
			return nil
		}
		return []sample{{value: max(0, s.Now.Sub(*s.LastContact).Seconds())}}
	}},
	{"wherry_agent_next_try_timestamp_seconds", gauge, "When the registry is asked again.", at(func(s Snapshot) *time.Time { return s.NextTry })},
	{"wherry_agent_passes_total", counter, "Passes since the process began, by verdict.", func(s Snapshot) []sample { return s.Passes.byVerdict() }},
	{"wherry_agent_pass_duration_seconds", histogram, "How long passes took.", func(s Snapshot) []sample { return s.Passes.durations() }},
	{"wherry_agent_requests_total", counter, "Requests since the process began, by peer: hub or registry.", byPeer(func(c *Counter) int64 { return c.Requests.Load() })},
	{"wherry_agent_received_bytes_total", counter, "Bytes of the answers' bodies, by peer.", byPeer(func(c *Counter) int64 { return c.Bytes.Load() })},
	{"wherry_agent_served_requests_total", counter, "Answers of the agent's endpoint, by code; absent without one.", servedByCode},
	{"wherry_agent_served_bytes_total", counter, "Bytes that the endpoint has sent, with headers and TLS.", func(s Snapshot) []sample {
		if s.Served == nil {
			return nil
		}
		return []sample{{value: float64(s.Served.Bytes.Load())}}
	}},
	{"wherry_agent_import_stored_bytes", gauge, "Bytes of releases and artifacts from site packages, by environment and cluster_type.", storedByStream},
	{"wherry_agent_relay_clusters", gauge, "Clusters whose reports wait here for transport to the hub; absent if the agent takes none.", ofRelay(func(r relay.Status) float64 { return float64(r.Clusters) })},
	{"wherry_agent_relay_reports", gauge, "Reports of other agents that wait here.", ofRelay(func(r relay.Status) float64 { return float64(r.Reports) })},
	{"wherry_agent_relay_bytes", gauge, "Bytes of reports of other agents.", ofRelay(func(r relay.Status) float64 { return float64(r.Bytes) })},
	{"wherry_agent_queue_reports", gauge, "Reports without an acknowledgement.", one(func(s Snapshot) float64 { return float64(s.Queue.Length) })},
	{"wherry_agent_queue_bytes", gauge, "Bytes of reports without an acknowledgement.", one(func(s Snapshot) float64 { return float64(s.Queue.Bytes) })},
	{"wherry_agent_queue_oldest_age_seconds", gauge, "Age of the oldest report; 0 without any.", one(func(s Snapshot) float64 {
		if s.Queue.Oldest == nil {
			return 0
		}
		return max(0, s.Now.Sub(*s.Queue.Oldest).Seconds())
	})},
	{"wherry_agent_queue_coalesced_total", counter, "Reports that newer ones have replaced.", one(func(s Snapshot) float64 { return float64(s.Queue.Coalesced) })},
	{"wherry_agent_queue_dropped_total", counter, "Reports that a full queue has dropped.", one(func(s Snapshot) float64 { return float64(s.Queue.Dropped) })},
	{"wherry_agent_queue_rejected", gauge, "Reports in the queue that the hub has refused.", one(func(s Snapshot) float64 { return float64(s.Queue.Rejected) })},
	{"wherry_agent_carry_missing_artifacts", gauge, "Carried artifacts that are not in the store yet; absent if none are carried.", ofCarry(func(c *carry.Status) float64 { return float64(c.Missing) })},
	{"wherry_agent_carry_missing_bytes", gauge, "Missing bytes of carried artifacts.", ofCarry(func(c *carry.Status) float64 { return float64(c.MissingBytes) })},
	{"wherry_agent_carry_stored_bytes", gauge, "Bytes of carried artifacts in the store, older releases too.", ofCarry(func(c *carry.Status) float64 { return float64(c.StoredBytes) })},
	{"wherry_agent_carry_budget_bytes", gauge, "Most bytes of carried artifacts.", ofCarry(func(c *carry.Status) float64 { return float64(c.BudgetBytes) })},
	{"wherry_agent_trust_version", gauge, "Version of the trust document in force; absent with pinned keys.", ofTrust(func(t *trust.Status) float64 { return float64(t.Version) })},
	{"wherry_agent_trust_days_left", gauge, "Whole days until the trust document expires.", ofTrust(func(t *trust.Status) float64 { return float64(t.DaysLeft) })},
	{"wherry_agent_clock_behind_seconds", gauge, "How far the clock is behind verified documents; 0 below a minute.", one(func(s Snapshot) float64 { return float64(s.ClockBehindSeconds) })},
	{"wherry_agent_state_file_bytes", gauge, "Size of the state file.", one(func(s Snapshot) float64 { return float64(s.StateFileBytes) })},
	{"wherry_agent_store_bytes", gauge, "Bytes of releases, by part: blobs, parts or trees; measured every five minutes at most.", func(s Snapshot) []sample {
		return []sample{
			{value: float64(s.Store.Blobs), labels: []string{"part", "blobs"}},
			{value: float64(s.Store.Parts), labels: []string{"part", "parts"}},
			{value: float64(s.Store.Trees), labels: []string{"part", "trees"}},
		}
	}},
	// The names are those of Prometheus' own client library for Go, which dashboards know.
	{"process_resident_memory_bytes", gauge, "Resident memory; absent without /proc.", func(Snapshot) []sample {
		data, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return nil
		}
		var size, resident int64 // pages, proc(5)
		if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
			return nil
		}
		return []sample{{value: float64(resident * int64(os.Getpagesize()))}}
	}},
	{"go_gc_heap_live_bytes", gauge, "Heap after the last garbage collection.", one(func(Snapshot) float64 {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		return float64(live[0].Value.Uint64())
	})},
	{"go_goroutines", gauge, "Number of goroutines.", one(func(Snapshot) float64 { return float64(runtime.NumGoroutine()) })},
}

// Page returns the metrics of s in Prometheus' text format; see ContentType.
func (s Snapshot) Page() []byte {
	var page page
	for _, m := range allMetrics {
		page.write(m, m.samples(s))
	}
	return page.Bytes()
}

func one(f func(Snapshot) float64) func(Snapshot) []sample {
	return func(s Snapshot) []sample { return []sample{{value: f(s)}} }
}

func at(f func(Snapshot) *time.Time) func(Snapshot) []sample {
	return func(s Snapshot) []sample {
		if t := f(s); t != nil {
			return []sample{{value: unix(t)}}
		}
		return nil
	}
}

func ofRunning(f func(*Release) float64) func(Snapshot) []sample {
	return func(s Snapshot) []sample {
		if s.Running == nil {
			return nil
		}
		return []sample{{value: f(s.Running)}}
	}
}

func ofCarry(f func(*carry.Status) float64) func(Snapshot) []sample {
	return func(s Snapshot) []sample {
		if s.Carry == nil {
			return nil
		}
		return []sample{{value: f(s.Carry)}}
	}
}

func ofTrust(f func(*trust.Status) float64) func(Snapshot) []sample {
	return func(s Snapshot) []sample {
		if s.Trust == nil {
			return nil
		}
		return []sample{{value: f(s.Trust)}}
	}
}

func byPeer(f func(*Counter) int64) func(Snapshot) []sample {
	return func(s Snapshot) []sample {
		t := s.Traffic
		return []sample{
			{value: float64(f(&t.Hub)), labels: []string{"peer", "hub"}},
			{value: float64(f(&t.Registry)), labels: []string{"peer", "registry"}},
		}
	}
}

func servedByCode(s Snapshot) (all []sample) {
	if s.Served == nil {
		return nil
	}
	answered := s.Served.Requests()
	for _, code := range slices.Sorted(maps.Keys(answered)) {
		all = append(all, sample{value: float64(answered[code]), labels: []string{"code", strconv.Itoa(code)}})
	}
	return all
}

func storedByStream(s Snapshot) (all []sample) {
	for _, st := range s.Streams {
		all = append(all, sample{value: float64(st.Bytes), labels: []string{"environment", st.Environment, "cluster_type", st.ClusterType}})
	}
	return all
}

func ofRelay(value func(relay.Status) float64) func(Snapshot) []sample {
	return func(s Snapshot) []sample {
		if s.Relay == nil {
			return nil
		}
		return []sample{{value: value(*s.Relay)}}
	}
}

func itemsByState(s Snapshot) (all []sample) {
	count := map[bundle.State]int{}
	for _, item := range s.Items {
		count[item.State]++
	}
	for _, state := range agentStates {
		all = append(all, sample{value: float64(count[state]), labels: []string{"state", string(state)}})
	}
	return all
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// unix is a time as Prometheus has it; 0 is none.
func unix(t *time.Time) float64 {
	if t == nil {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
