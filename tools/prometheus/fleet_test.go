package prometheus

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// fleet starts the fleet of testdata/fleet.sh with the programs that WHERRY_E2E_PROGRAMS names, and returns what Prometheus would
// have of it. The programs end with the test.
func fleet(t *testing.T) memory {
	t.Helper()
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	require.NotEmpty(t, programs, "run make prometheus-check, which builds the programs")
	script, err := filepath.Abs("testdata/fleet.sh")
	require.NoError(t, err)
	examples, err := filepath.Abs("../../examples")
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", script)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"), "EXAMPLES="+examples, "PORT1="+freePort(t), "PORT2="+freePort(t))
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone already, if the script has started nothing
		if t.Failed() {
			for _, name := range []string{"hub.log", "promoter.log", "promoter.out", "agent-1.log", "agent-2.log"} {
				data, _ := os.ReadFile(filepath.Join(dir, name))
				t.Logf("%s:\n%s", name, data)
			}
		}
	})
	require.NoError(t, cmd.Wait(), "%s", &said)

	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return strings.TrimSpace(string(data))
	}
	now := time.Now()
	var all memory
	all = append(all, page(t, scrape(t, read("hub-url"), read("metrics.token"), hubKnows), "hub", now)...)
	all = append(all, page(t, scrape(t, read("promoter-url"), "", []string{"wherry_follow_last_success_timestamp_seconds "}), "promoter", now)...)
	all = append(all, page(t, scrape(t, read("agent-1.url"), "", []string{`wherry_agent_state{state="compliant"} 1`, "wherry_agent_queue_reports 0"}), "site-1", now)...)
	return append(all, page(t, scrape(t, read("agent-2.url"), "", []string{`wherry_agent_state{state="rejected"} 1`}), "site-2", now)...)
}

// hubKnows is what the hub has once it has heard of all, in any order of the labels' values.
var hubKnows = []string{
	`wherry_hub_clusters{environment="dev",state="compliant"} 1`,
	`wherry_hub_clusters{environment="dev",state="rejected"} 1`,
	`wherry_hub_clusters{environment="dev",state="unreported"} 1`,
	`verdict="failed"} 1`,
	`wherry_hub_deployments{environment="dev",workload="menu",version="`,
}

// scrape asks a program for its metrics, until they have all of what is wanted.
func scrape(t *testing.T, url, token string, wanted []string) (text string) {
	t.Helper()
	var missing string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
		require.NoError(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			missing = err.Error()
			continue
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s", data)
		missing = ""
		for _, w := range wanted {
			if !strings.Contains(string(data), w) {
				missing = w
			}
		}
		if text = string(data); missing == "" {
			return text
		}
	}
	t.Fatalf("%s has no %s:\n%s", url, missing, text)
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// dashboard is what the test reads of a dashboard.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct{ List []struct{ Name string } }
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]dashboard{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(data, &d), file)
		require.Equal(t, strings.TrimSuffix(filepath.Base(file), ".json"), d.UID)
		require.NotEmpty(t, d.Panels, file)
		all[d.UID] = d
	}
	return all
}

// Each expression of alerts and dashboards is about metrics that the programs have, with labels and values that they have; and each
// panel of a dashboard shows something of this fleet.
func TestExpressionsFitTheMetricsOfTheProgramsThatRun(t *testing.T) {
	metrics, now := fleet(t), time.Now()
	for name, r := range alerts(t) {
		metrics.requireSelectors(t, name, r.Expr)
		metrics.evaluate(t, r.Expr, now)
	}
	for _, d := range dashboards(t) {
		variables := []string{"$__rate_interval", "5m"}
		for _, v := range d.Templating.List {
			variables = append(variables, "$"+v.Name, ".*")
		}
		for _, p := range d.Panels {
			require.NotEmpty(t, p.Targets, "%s: %s", d.Title, p.Title)
			for _, target := range p.Targets {
				expr := strings.NewReplacer(variables...).Replace(target.Expr)
				metrics.requireSelectors(t, d.Title+": "+p.Title, expr)
				require.NotEmpty(t, metrics.evaluate(t, expr, now), "%s: %s: %s", d.Title, p.Title, expr)
			}
		}
	}
	// What is wrong in this fleet raises its alerts, and nothing else does.
	firing := map[string]bool{}
	for name, r := range alerts(t) {
		r.For = 0
		if len(metrics.firing(t, r, now)) > 0 {
			firing[name] = true
		}
	}
	require.Equal(t, map[string]bool{"WherryClustersSilent": true, "WherryRolloutFailing": true, "WherryAgentFailing": true}, firing)
}

// exceptions are parts of selectors that may select nothing: no cluster of this fleet is on its way.
var exceptions = []string{`state=~"suspended|pending|pulling`}

// requireSelectors requires that each selector of an expression selects something.
func (m memory) requireSelectors(t *testing.T, where, expr string) {
	t.Helper()
	parsed, err := language.ParseExpr(expr)
	require.NoError(t, err, "%s: %s", where, expr)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if ok && !slices.ContainsFunc(exceptions, func(part string) bool { return strings.Contains(s.String(), part) }) {
			require.NotEmpty(t, m.matching(s.LabelMatchers), "%s: nothing has %s", where, s)
		}
		return nil
	})
}
