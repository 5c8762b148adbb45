package simulation

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/rollout/gate"
)

// Result is what was measured. Its JSON form is an interface.
type Result struct {
	// Interrupted is true if the simulation ended before its end.
	Interrupted bool  `json:"interrupted,omitempty"`
	Setup       Setup `json:"setup"`
	// Compliant counts the clusters that were to get the last release and did, of Expected.
	Compliant int `json:"compliant"`
	Expected  int `json:"expected"`
	// FailedRequests counts requests of agents that had no answer, or one of 429 or from 500. Deferred counts answers 429 that say when
	// to come again: a service that paces its callers. Refused counts other answers from 400, but 404. Cut counts those that ended
	// because a simulated link was down. Failures describes the first failed and refused ones.
	FailedRequests int64    `json:"failedRequests"`
	Deferred       int64    `json:"deferredRequests"`
	Refused        int64    `json:"refusedRequests"`
	Cut            int64    `json:"cutRequests"`
	Failures       []string `json:"failures,omitempty"`
	// Seconds is how long the simulation took.
	Seconds  float64 `json:"seconds"`
	Registry Load    `json:"registry"`
	Hub      Load    `json:"hub"`
	// InstallBytesPerCluster and BytesPerCluster are the bytes on the wire, both ways, of each cluster that was in reach, with registry and
	// hub together: in the installation, and from there until the last release had spread, polls included.
	InstallBytesPerCluster Distribution `json:"installBytesPerCluster"`
	BytesPerCluster        Distribution `json:"bytesPerCluster"`
	Install                Stage        `json:"install"`
	Releases               []Release    `json:"releases"`
	Gates                  []Verdict    `json:"gates"`
	Rest                   *Traffic     `json:"rest,omitempty"`
	Hourly                 *Hourly      `json:"hourly,omitempty"`
	// PublishSeconds is how long each publication took.
	PublishSeconds []float64 `json:"publishSeconds"`
	Process        Process   `json:"process"`
	// Notes say what was left out.
	Notes []string `json:"notes"`
}

// Setup is what was simulated.
type Setup struct {
	Clusters int `json:"clusters"`
	// Offline clusters are never in reach, those of ComeAndGo half of the time, and in Failing ones each changed assignment fails.
	Offline   int `json:"offline"`
	ComeAndGo int `json:"comeAndGo"`
	Failing   int `json:"failing"`
	Types     int `json:"types"`
	// Assignments is the number of the type that has most, and Changed how many of each type a release changes.
	Assignments int        `json:"assignments"`
	Changed     int        `json:"changed"`
	Rings       []RingSize `json:"rings"`
	Releases    int        `json:"releases"`
	PollSeconds float64    `json:"pollSeconds"`
	Seed        uint64     `json:"seed"`
	Registry    string     `json:"registry,omitempty"` // another one than that of this process
}

// RingSize is a ring with its clusters.
type RingSize struct {
	Name     string `json:"name"`
	Clusters int    `json:"clusters"`
}

// Load is what the agents asked of a service.
type Load struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
	// PeakPerSecond is the highest number of requests in a second.
	PeakPerSecond int64 `json:"peakPerSecond"`
}

// Distribution is how a number is distributed over clusters.
type Distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Times are the times from a publication to a compliant report that the hub has stored, in seconds.
type Times struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Release is how a release spread.
type Release struct {
	Number int     `json:"release"`
	Stages []Stage `json:"stages"`
	// HeldBefore is the ring that the gate kept the release from; empty if it got everywhere.
	HeldBefore string `json:"heldBefore,omitempty"`
	Times      Times  `json:"times"` // of all stages
	// Seconds is how long it took in all, and CPUSeconds the processor time of the simulation in it: close to Seconds times the number of
	// processors, the times are those of this machine and not of a fleet.
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Stage is how a release spread in one ring.
type Stage struct {
	Ring string `json:"ring,omitempty"`
	// Clusters are to become compliant, and Compliant did.
	Clusters  int   `json:"clusters"`
	Compliant int   `json:"compliant"`
	Times     Times `json:"times"`
}

// Verdict is a gate's verdict at a moment.
type Verdict struct {
	// Seconds is the time since the simulation began.
	Seconds float64     `json:"seconds"`
	Release int         `json:"release"`
	Ring    string      `json:"ring"`
	Result  gate.Result `json:"result"`
	// Clusters are the sum of the next five.
	Clusters    int `json:"clusters"`
	Compliant   int `json:"compliant"`
	Progressing int `json:"progressing"`
	Failed      int `json:"failed"`
	Waiting     int `json:"waiting"`
	Unknown     int `json:"unknown"`
	// Open are the rules that did not pass.
	Open []gate.Rule `json:"open"`
}

// Counts are requests and bytes.
type Counts struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// Traffic is what a fleet asks while nothing changes.
type Traffic struct {
	Seconds  float64 `json:"seconds"`
	Clusters int     `json:"clusters"`
	Registry Counts  `json:"registry"`
	Hub      Counts  `json:"hub"`
}

// Hourly is computed from Rest: what the same fleet asks in an hour if it polls every PollSeconds, nothing changes, and each cluster
// in reach reports once in an hour.
type Hourly struct {
	PollSeconds      float64 `json:"pollSeconds"`
	RegistryRequests int64   `json:"registryRequests"`
	RegistryBytes    int64   `json:"registryBytes"`
	HubRequests      int64   `json:"hubRequests"`
	HubBytes         int64   `json:"hubBytes"`
	// ReleaseBytes is what a release took in all, as measured.
	ReleaseBytes int64 `json:"releaseBytes"`
}

// Process is the process in which agents, hub and, without another one, registry ran together. Zero is not known.
type Process struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	// PeakRSS is the largest resident set in bytes, and PerCluster its share of each.
	PeakRSS    int64 `json:"peakRSS"`
	PerCluster int64 `json:"perCluster"`
}

// AsExpected reports whether every cluster in reach got the last release, but for those that were to fail, and no request failed.
func (r *Result) AsExpected() bool {
	return !r.Interrupted && r.Expected > 0 && r.Compliant == r.Expected && r.FailedRequests+r.Refused == 0
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// result is the stage as it is now.
func (st *stage) result() Stage {
	return Stage{Ring: st.ring, Clusters: len(st.waiting) + len(st.reached), Compliant: len(st.reached), Times: timesOf(st)}
}

func timesOf(stages ...*stage) Times {
	var all []float64
	for _, st := range stages {
		for _, d := range st.reached {
			all = append(all, seconds(d))
		}
	}
	slices.Sort(all)
	return Times{percentile(all, 50), percentile(all, 90), percentile(all, 99), percentile(all, 100)}
}

// percentile returns the value of sorted ones that so many percent do not exceed; zero without any.
func percentile(sorted []float64, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func distribution(all []float64) Distribution {
	if len(all) == 0 {
		return Distribution{}
	}
	slices.Sort(all)
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return Distribution{math.Round(sum / float64(len(all))), percentile(all, 50), percentile(all, 99), all[len(all)-1]}
}

// conclude completes the result.
func (s *simulation) conclude() *Result {
	r := s.result
	r.Seconds = seconds(time.Since(s.began))
	r.Setup = s.setup()
	r.FailedRequests, r.Deferred = s.load.failed.Load(), s.load.deferred.Load()
	r.Refused, r.Cut = s.load.refused.Load(), s.load.cut.Load()
	r.Failures = s.load.described()
	r.Registry, r.Hub = s.load.of(registryService), s.load.of(hubService)
	var installed, after []float64
	for _, c := range s.clusters {
		if !c.offline {
			until := cmp.Or(c.settled, c.line.crossed())
			installed = append(installed, float64(cmp.Or(c.installed, until)))
			after = append(after, float64(until-cmp.Or(c.installed, until)))
		}
	}
	r.InstallBytesPerCluster, r.BytesPerCluster = distribution(installed), distribution(after)
	if len(r.Releases) > 0 {
		last := r.Releases[len(r.Releases)-1]
		for _, c := range s.clusters {
			if c.due(last.Number) {
				r.Expected++
			}
		}
		for _, st := range last.Stages {
			r.Compliant += st.Compliant
		}
	}
	r.Process = usage(len(s.clusters))
	s.extrapolate(len(installed))
	return r
}

// extrapolate computes what the fleet takes in an hour, from what it took while nothing changed.
func (s *simulation) extrapolate(inReach int) {
	r := s.result
	if r.Rest == nil || r.Rest.Seconds <= 0 || r.Hub.Requests == 0 {
		return
	}
	hour := s.Poll.Seconds() / s.RealPoll.Seconds() * 3600 / r.Rest.Seconds
	r.Hourly = &Hourly{
		PollSeconds:      s.RealPoll.Seconds(),
		RegistryRequests: int64(math.Round(float64(r.Rest.Registry.Requests) * hour)), RegistryBytes: int64(math.Round(float64(r.Rest.Registry.Bytes) * hour)),
		ReleaseBytes: int64(r.BytesPerCluster.Mean) * int64(inReach) / int64(max(1, len(r.Releases))),
		HubRequests:  int64(inReach), HubBytes: r.Hub.Bytes / r.Hub.Requests * int64(inReach),
	}
}

func (s *simulation) setup() Setup {
	out := Setup{
		Clusters: len(s.clusters), Types: len(s.platform.types()), Changed: s.Changed, Releases: s.Releases,
		PollSeconds: s.Poll.Seconds(), Seed: s.Seed, Registry: s.Registry, Rings: []RingSize{},
	}
	for _, ct := range s.platform.result.ClusterTypes {
		out.Assignments = max(out.Assignments, len(ct.Assignments))
	}
	size := map[string]int{}
	for _, c := range s.clusters {
		size[c.ringOf(s.platform.result.Rings)]++
		for _, counted := range []struct {
			is bool
			n  *int
		}{{c.offline, &out.Offline}, {c.comesAndGoes, &out.ComeAndGo}, {c.failing, &out.Failing}} {
			if counted.is {
				*counted.n++
			}
		}
	}
	for _, ring := range s.platform.result.Rings {
		out.Rings = append(out.Rings, RingSize{ring, size[ring]})
	}
	return out
}

func (l *load) of(s service) Load {
	return Load{l.services[s].requests.Load(), l.services[s].bytes.Load(), l.services[s].peak.Load()}
}

func (l *load) described() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}
