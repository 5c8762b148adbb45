package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/metrics"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// probed starts an agent that serves its probes, and returns how to ask them. It ends with the test.
func (s *site) probed(t *testing.T) (*Agent, func(path string) (int, string)) {
	t.Helper()
	return s.probedBy(t, time.Now)
}

// probedBy is probed for a process with that clock.
func (s *site) probedBy(t *testing.T, clock func() time.Time) (*Agent, func(path string) (int, string)) {
	t.Helper()
	s.opts.Listen = "127.0.0.1:0"
	state, err := OpenState(s.dir, s.opts.Now)
	require.NoError(t, err)
	a := s.agentOn(state)
	a.pulse = metrics.NewPulse(a.opts.Traffic, a.opts.Engines.Deadline, clock)
	p, err := metrics.Listen(a.opts.Listen, a.pulse, state.db)
	require.NoError(t, err)
	address := p.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Serve(ctx, a.metrics, a.opts.Log) }()
	t.Cleanup(func() { cancel(); <-ended; require.NoError(t, state.Close()) })
	return a, func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
}

// hung is an engine that does not answer before it is let go.
type hung struct {
	reconcilers.Reconciler
	called, free chan struct{}
}

func (h *hung) Apply(context.Context, reconcilers.Assignment) reconcilers.Result {
	close(h.called)
	<-h.free // and not ctx
	return reconcilers.Result{State: bundle.Compliant}
}

func TestAnAgentIsReadyOnceItHasJudgedWhatIsOffered(t *testing.T) {
	s := newSite(t)
	engine := &hung{called: make(chan struct{}), free: make(chan struct{})}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, shop))
	a, get := s.probed(t)
	code, body := get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "the first pass goes on\n", body)

	passed := make(chan struct{})
	go func() { defer close(passed); a.sync(context.Background(), 0) }()
	<-engine.called
	code, body = get("/readyz")
	require.Equal(t, http.StatusOK, code, body)
	close(engine.free)
	<-passed
	code, body = get("/readyz")
	require.Equal(t, http.StatusOK, code, body)
	require.Equal(t, "ok\n", body)
}

func TestAnAgentThatReachesNobodyIsHealthyAndReady(t *testing.T) {
	s := newSite(t)
	s.registry.away.Store(true)
	a, get := s.probed(t)
	require.Equal(t, Unreachable, a.sync(context.Background(), 0).Verdict)
	for _, path := range []string{"/healthz", "/readyz"} {
		code, body := get(path)
		require.Equal(t, http.StatusOK, code, body)
	}
}

func TestAnEngineThatDoesNotAnswerIsNotHealthyForEver(t *testing.T) {
	s := newSite(t)
	engine := &hung{called: make(chan struct{}), free: make(chan struct{})}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, shop))
	var late atomic.Int64
	a, get := s.probedBy(t, func() time.Time { return time.Now().Add(time.Duration(late.Load())) })
	passed := make(chan struct{})
	go func() { defer close(passed); a.sync(context.Background(), 0) }()
	<-engine.called
	late.Store(int64(15*time.Minute + time.Hour)) // as if it had been that long
	code, body := get("/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "step apply has shown no sign of life for 1h15m")
	close(engine.free)
	<-passed
	code, body = get("/healthz")
	require.Equal(t, http.StatusOK, code, body)
}

func TestAnAddressThatCannotBeHadEndsTheStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := newSite(t)
	s.opts.Listen = taken.Addr().String()
	s.agent(func(a *Agent) {
		err := a.Run(context.Background())
		require.ErrorIs(t, err, metrics.ErrListen)
		require.ErrorContains(t, err, "listen at "+s.opts.Listen)
	})
	require.NoFileExists(t, s.dir+"/"+control.SocketFile)
}

func TestNobodyChangesAnythingThroughTheProbes(t *testing.T) {
	_, get := newSite(t).probed(t)
	for _, path := range []string{"/", "/status", "/sync", "/debug/pprof/"} {
		code, _ := get(path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}

// scrape reads the page as Prometheus does.
func scrape(t *testing.T, page string) map[string]map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	require.NoError(t, err, page)
	values := map[string]map[string]float64{}
	for name, family := range families {
		values[name] = map[string]float64{}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				value = float64(h.GetSampleCount())
				require.Len(t, h.Bucket, 8)
				require.Equal(t, h.GetSampleCount(), h.Bucket[7].GetCumulativeCount())
			}
			values[name][strings.Join(labels, ",")] = value
		}
	}
	return values
}

func TestMetricsAreWhatStatusSays(t *testing.T) {
	s, _ := underTrust(t)
	s.opts.Version = `v1 "quoted" \`
	s.opts.Traffic = new(metrics.Traffic)
	s.publish(s.draft(7, shop))
	a, get := s.probed(t)
	require.Equal(t, Done, a.sync(context.Background(), 0).Verdict)
	s.publish(s.draft(6, shop))
	require.Equal(t, Refused, a.sync(context.Background(), 0).Verdict)
	s.opts.Traffic.Registry.Requests.Add(3)
	s.opts.Traffic.Hub.Bytes.Add(5)

	code, page := get("/metrics")
	require.Equal(t, http.StatusOK, code)
	got := scrape(t, page)
	for name, want := range map[string]map[string]float64{
		"wherry_agent_release_sequence":                  {"": 7},
		"wherry_agent_release_epoch":                     {"": 1},
		"wherry_agent_release_refused":                   {"": 1},
		"wherry_agent_reason_info":                       {"reason=OlderRelease": 1},
		"wherry_agent_last_contact_timestamp_seconds":    {"": float64(s.now.Unix())},
		"wherry_agent_last_contact_age_seconds":          {"": 0},
		"wherry_agent_release_issued_timestamp_seconds":  {"": float64(s.now.Add(7*time.Minute - time.Hour).Unix())},
		"wherry_agent_pass_duration_seconds":             {"": 2},
		"wherry_agent_requests_total":                    {"peer=hub": 0, "peer=registry": 3},
		"wherry_agent_received_bytes_total":              {"peer=hub": 5, "peer=registry": 0},
		"wherry_agent_queue_reports":                     {"": 2},
		"wherry_agent_queue_oldest_age_seconds":          {"": 0},
		"wherry_agent_trust_version":                     {"": 1},
		"wherry_agent_queue_dropped_total":               {"": 0},
		"wherry_agent_clock_behind_seconds":              {"": 0},
		"wherry_agent_release_expires_timestamp_seconds": {"": float64(s.now.Add(7*time.Minute - time.Hour + 90*24*time.Hour).Unix())},
	} {
		require.Equal(t, want, got[name], name)
	}
	for name, want := range map[string][2]any{
		"wherry_agent_state":        {"state=rejected", 1.0},
		"wherry_agent_items":        {"state=compliant", 1.0},
		"wherry_agent_passes_total": {"verdict=refused", 1.0},
	} {
		require.Equal(t, want[1], got[name][want[0].(string)], name)
		sum := 0.0
		for _, v := range got[name] {
			sum += v
		}
		require.Equal(t, map[string]float64{"wherry_agent_passes_total": 2}[name]+map[string]float64{"wherry_agent_state": 1, "wherry_agent_items": 1}[name], sum, name)
	}
	require.Len(t, got["wherry_agent_build_info"], 1)
	for labels := range got["wherry_agent_build_info"] {
		require.Contains(t, labels, "version="+s.opts.Version)
	}
	require.Positive(t, got["wherry_agent_store_bytes"]["part=blobs"])
	for _, name := range []string{"wherry_agent_state_file_bytes", "go_gc_heap_live_bytes", "go_goroutines"} {
		require.Positive(t, got[name][""], name)
	}
	if runtime.GOOS == "linux" {
		require.Greater(t, got["process_resident_memory_bytes"][""], got["go_gc_heap_live_bytes"][""])
	}
	require.NotContains(t, page, "shop-main", "no metric is about one assignment")
}

// What a person has decided shows also while the agent has something worse to tell, and before the next pass.
func TestMetricsOfWhatWasDecided(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.moody(map[string]reconcilers.Result{"a-x=2": unhealthy})
	s.release(1, "1")
	s.release(2, "2")
	s.attempts(3)
	s.release(3, "3")
	s.now = s.now.Add(2 * time.Hour)
	s.once() // a heartbeat, which the next report makes superfluous
	a, get := s.probed(t)
	decided := func() (all [4]float64) {
		code, page := get("/metrics")
		require.Equal(t, http.StatusOK, code, page)
		got := scrape(t, page)
		for i, name := range []string{"paused", "held", "quarantined_releases", "queue_coalesced_total"} {
			all[i] = got["wherry_agent_"+name][""]
		}
		return all
	}
	require.Equal(t, [4]float64{0, 0, 1, 0}, decided())
	_, err := a.RollBack(Wish{To: "1"})
	require.NoError(t, err)
	require.Equal(t, [4]float64{0, 1, 1, 0}, decided())
	_, err = a.Pause("harvest", 0)
	require.NoError(t, err)
	require.Equal(t, [4]float64{1, 1, 1, 0}, decided())
	s.publish(s.draft(2, nil))
	r := a.sync(context.Background(), 0)
	require.Equal(t, "OlderRelease", r.Status.Reason)
	require.Equal(t, [4]float64{1, 1, 1, 1}, decided())
}
