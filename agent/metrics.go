package agent

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/bundle"
)

// metric is one that /metrics shows. docs/operations.md lists them all. What has labels has few values of them,
// whatever a release holds: none is about one assignment.
type metric struct {
	name, kind, help string
	samples          func(view) []sample
}

// view is what metrics are made of, at one moment.
type view struct {
	*Agent
	Status
	now   time.Time
	store content.Status
	file  int64 // bytes of the state file
}

const gauge, counter, histogram = "gauge", "counter", "histogram"

// agentStates and allVerdicts are the values of labels.
var (
	agentStates = [...]bundle.State{
		bundle.Pending, bundle.Pulling, bundle.Verifying, bundle.Rejected, bundle.Applying, bundle.Progressing, bundle.Compliant,
		bundle.Drifted, bundle.Failed, bundle.Suspended, bundle.Removed,
	}
	allVerdicts = [...]Verdict{Done, Idle, Deferred, Unreachable, Refused, Broken, Interrupted}
)

// allMetrics are in the order of the page.
var allMetrics = [...]metric{
	{"wherry_agent_build_info", gauge, "1, with the versions of the agent and of Go.", func(v view) []sample {
		return []sample{{value: 1, labels: []string{"version", v.opts.Version, "go", runtime.Version()}}}
	}},
	{"wherry_agent_state", gauge, "1 for the state of the agent as a whole, 0 for the others.", func(v view) (all []sample) {
		for _, s := range agentStates {
			all = append(all, sample{value: oneIf(s == v.State), labels: []string{"state", string(s)}})
		}
		return all
	}},
	{"wherry_agent_reason_info", gauge, "1, with the reason of the agent as a whole; absent without one.", func(v view) []sample {
		if v.Reason == "" {
			return nil
		}
		return []sample{{value: 1, labels: []string{"reason", v.Reason}}}
	}},
	{"wherry_agent_items", gauge, "Assignments, by their state.", itemsByState},
	{"wherry_agent_release_epoch", gauge, "Epoch of the release that runs; absent where none does.", ofRunning(func(r *ReleaseStatus) float64 { return float64(r.Epoch) })},
	{"wherry_agent_release_sequence", gauge, "Sequence of the release that runs.", ofRunning(func(r *ReleaseStatus) float64 { return float64(r.Sequence) })},
	{"wherry_agent_release_issued_timestamp_seconds", gauge, "When the release that runs was issued.", ofRunning(func(r *ReleaseStatus) float64 { return unix(r.IssuedAt) })},
	{"wherry_agent_release_expires_timestamp_seconds", gauge, "Until when it may be taken by an agent that does not have it yet.", ofRunning(func(r *ReleaseStatus) float64 { return unix(r.ExpiresAt) })},
	{"wherry_agent_release_age_seconds", gauge, "Time since the release that runs was issued.", ofRunning(func(r *ReleaseStatus) float64 { return float64(r.AgeSeconds) })},
	{"wherry_agent_release_refused", gauge, "1 while the newest release that was offered is refused.", one(func(v view) float64 { return oneIf(v.Release.Refused != nil) })},
	{"wherry_agent_paused", gauge, "1 while a person wants nothing changed, whatever the reason of the agent as a whole.", one(func(v view) float64 { return oneIf(v.Freeze != nil && v.Freeze.Reason == ReasonPaused) })},
	{"wherry_agent_held", gauge, "1 while a person has decided which release runs.", one(func(v view) float64 { return oneIf(v.Release.Held != nil) })},
	{"wherry_agent_quarantined_releases", gauge, "Releases that were given up here and may not run.", one(func(v view) float64 { return float64(len(v.Release.Quarantined)) })},
	{"wherry_agent_last_contact_timestamp_seconds", gauge, "When the registry answered last; absent where it never did.", at(func(v view) *time.Time { return v.LastContact })},
	{"wherry_agent_last_contact_age_seconds", gauge, "Time since the registry answered last.", func(v view) []sample {
		if v.LastContact == nil {
			return nil
		}
		return []sample{{value: max(0, v.now.Sub(*v.LastContact).Seconds())}}
	}},
	{"wherry_agent_next_try_timestamp_seconds", gauge, "When the registry is asked again.", at(func(v view) *time.Time { return v.NextTry })},
	{"wherry_agent_passes_total", counter, "Passes since the process began, by how they ended.", func(v view) (all []sample) {
		passes, _, _ := v.vitals.counted()
		for _, verdict := range allVerdicts {
			all = append(all, sample{value: float64(passes[verdict]), labels: []string{"verdict", string(verdict)}})
		}
		return all
	}},
	{"wherry_agent_pass_duration_seconds", histogram, "How long passes took.", passDurations},
	{"wherry_agent_requests_total", counter, "Requests to registries and hub since the process began.", byPeer(func(c *Counter) int64 { return c.Requests.Load() })},
	{"wherry_agent_received_bytes_total", counter, "Bytes of the bodies of their answers.", byPeer(func(c *Counter) int64 { return c.Bytes.Load() })},
	{"wherry_agent_queue_reports", gauge, "Reports that nobody has acknowledged yet.", one(func(v view) float64 { return float64(v.Queue.Length) })},
	{"wherry_agent_queue_bytes", gauge, "Bytes of these reports.", one(func(v view) float64 { return float64(v.Queue.Bytes) })},
	{"wherry_agent_queue_oldest_age_seconds", gauge, "Age of the oldest of them; 0 without any.", one(func(v view) float64 {
		if v.Queue.Oldest == nil {
			return 0
		}
		return max(0, v.now.Sub(*v.Queue.Oldest).Seconds())
	})},
	{"wherry_agent_queue_coalesced_total", counter, "Reports that newer ones have made superfluous since the state was made.", one(func(v view) float64 { return float64(v.Queue.Coalesced) })},
	{"wherry_agent_queue_dropped_total", counter, "Reports that a full queue has given up since the state was made.", one(func(v view) float64 { return float64(v.Queue.Dropped) })},
	{"wherry_agent_queue_rejected", gauge, "Reports in the queue that the hub will not take.", one(func(v view) float64 { return float64(v.Queue.Rejected) })},
	{"wherry_agent_trust_version", gauge, "Version of the trust document in force; absent with pinned keys.", ofTrust(func(t *TrustStatus) float64 { return float64(t.Version) })},
	{"wherry_agent_trust_days_left", gauge, "Whole days until it expires.", ofTrust(func(t *TrustStatus) float64 { return float64(t.DaysLeft) })},
	{"wherry_agent_clock_behind_seconds", gauge, "How far the clock is behind what was verified; 0 below a minute.", one(func(v view) float64 { return float64(v.ClockBehindSeconds) })},
	{"wherry_agent_state_file_bytes", gauge, "Size of the state file.", one(func(v view) float64 { return float64(v.file) })},
	{"wherry_agent_store_bytes", gauge, "What is kept of releases, measured every five minutes at most.", func(v view) []sample {
		return []sample{
			{value: float64(v.store.Blobs), labels: []string{"part", "blobs"}},
			{value: float64(v.store.Parts), labels: []string{"part", "parts"}},
			{value: float64(v.store.Trees), labels: []string{"part", "trees"}},
		}
	}},
	// The names are those of Prometheus' own client library for Go, which dashboards know.
	{"process_resident_memory_bytes", gauge, "Resident memory; absent where the system has no /proc.", func(view) []sample {
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
	{"go_gc_heap_live_bytes", gauge, "What the last garbage collection has left.", one(func(view) float64 {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		return float64(live[0].Value.Uint64())
	})},
	{"go_goroutines", gauge, "Goroutines that exist.", one(func(view) float64 { return float64(runtime.NumGoroutine()) })},
}

func (p *probes) metrics(w http.ResponseWriter, _ *http.Request) {
	p.scrape.Lock()
	defer p.scrape.Unlock()
	status, err := p.Agent.Status()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	v := view{Agent: p.Agent, Status: status, now: p.opts.Now()}
	v.store, v.file = p.disk.measure(p.state, time.Now())
	var page exposition
	for _, m := range allMetrics {
		page.write(m, m.samples(v))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(page.Bytes())
}

// measureEvery spares the disk, which is walked.
const measureEvery = 5 * time.Minute

type diskUse struct {
	sync.Mutex
	at    time.Time
	store content.Status
}

func (d *diskUse) measure(s *State, now time.Time) (store content.Status, file int64) {
	d.Lock()
	defer d.Unlock()
	if d.at.IsZero() || now.Sub(d.at) >= measureEvery {
		if store, err := content.ReadStatus(s.Dir()); err == nil {
			d.store = store
		}
		d.at = now
	}
	if info, err := os.Stat(s.db.Path()); err == nil {
		file = info.Size()
	}
	return d.store, file
}

func one(f func(view) float64) func(view) []sample {
	return func(v view) []sample { return []sample{{value: f(v)}} }
}

func at(f func(view) *time.Time) func(view) []sample {
	return func(v view) []sample {
		if t := f(v); t != nil {
			return []sample{{value: unix(t)}}
		}
		return nil
	}
}

func ofRunning(f func(*ReleaseStatus) float64) func(view) []sample {
	return func(v view) []sample {
		if v.Release.Running == nil {
			return nil
		}
		return []sample{{value: f(v.Release.Running)}}
	}
}

func ofTrust(f func(*TrustStatus) float64) func(view) []sample {
	return func(v view) []sample {
		if v.Status.Trust == nil {
			return nil
		}
		return []sample{{value: f(v.Status.Trust)}}
	}
}

func byPeer(f func(*Counter) int64) func(view) []sample {
	return func(v view) []sample {
		t := v.opts.Traffic
		return []sample{
			{value: float64(f(&t.Hub)), labels: []string{"peer", "hub"}},
			{value: float64(f(&t.Registry)), labels: []string{"peer", "registry"}},
		}
	}
}

func itemsByState(v view) (all []sample) {
	count := map[bundle.State]int{}
	for _, item := range v.Items {
		count[item.State]++
	}
	for _, s := range agentStates {
		all = append(all, sample{value: float64(count[s]), labels: []string{"state", string(s)}})
	}
	return all
}

func passDurations(v view) (all []sample) {
	passes, took, seconds := v.vitals.counted()
	var sum, total int64
	for i, bound := range durations {
		sum += took[i]
		all = append(all, sample{suffix: "_bucket", value: float64(sum), labels: []string{"le", fmt.Sprint(bound)}})
	}
	for _, n := range passes {
		total += n
	}
	return append(all,
		sample{suffix: "_bucket", value: float64(total), labels: []string{"le", "+Inf"}},
		sample{suffix: "_sum", value: seconds},
		sample{suffix: "_count", value: float64(total)},
	)
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
