package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/bundle"
	shared "github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// declaration is that of the tests.
const declaration = `{"type":"object","additionalProperties":false,"title":"drone","properties":{
	"dns": {"type": "string", "siteMaySet": true},
	"gate": {"type": "string", "default": "gate.{{ .cluster.name }}"},
	"port": {"type": "integer", "default": 80, "siteMaySet": true}}}`

// valued is a draft whose assignment app-live uses dns, gate and port, and other-live none.
func (s *site) valued(n int64, manifest string) draft {
	d := s.draft(n, map[string]string{
		"app-live/app.yaml": manifest, "other-live/b.txt": "${site.dns}\n",
		shared.DocumentPath: declaration,
	})
	d.ChangeList = func(list []bundle.Assignment) { list[0].SiteValues = []string{"dns", "gate", "port"} }
	return d
}

// ownFile has the agent read the site's own values from a file, which write writes.
func (s *site) ownFile() (path string, write func(text string)) {
	path = filepath.Join(s.t.TempDir(), "site.yaml")
	s.opts.SiteValues = sitevalues.File{Path: path}
	return path, func(text string) { require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600)) }
}

func (s *site) onHost(name string) string {
	data, err := os.ReadFile(filepath.Join(s.host, filepath.FromSlash(name)))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(s.t, err)
	return string(data)
}

const manifest = "# ${site.dns}\nhost: ${site.dns}\nport: ${site.port}\ntext: \"${site.port}\"\nurl: https://${site.gate}:${site.port}/$${site.dns}\n"

func TestAssignmentsGetTheValuesOfTheirSite(t *testing.T) {
	s := newSite(t)
	path, write := s.ownFile()
	s.publish(s.valued(1, manifest))

	r := s.once()
	i := item(t, r, "app-live")
	require.Equal(t, bundle.Pending, i.State, "%+v", i)
	require.Equal(t, assignments.ReasonSiteValueMissing, i.Reason)
	require.Contains(t, i.Message, "dns: it has no value")
	require.Contains(t, i.Message, path)
	require.Equal(t, bundle.Compliant, item(t, r, "other-live").State, "it uses no values")
	require.Equal(t, "${site.dns}\n", s.onHost("other-live/b.txt"))

	write("dns: plant-7.example.com\n")
	i = item(t, s.once(), "app-live")
	require.Equal(t, bundle.Compliant, i.State, "%+v", i)
	require.NotEmpty(t, i.SiteValues)
	require.Equal(t, "# ${site.dns}\nhost: plant-7.example.com\nport: 80\ntext: \"80\"\nurl: https://gate.plant-7:80/${site.dns}\n", s.onHost("app-live/app.yaml"))
	require.Equal(t, "DNS=plant-7.example.com\nGATE=gate.plant-7\nPORT=80\n", s.onHost("app-live/site.env"))

	write("dns: 'x: y'\nport: 8443\n")
	i = item(t, s.once(), "app-live")
	require.Equal(t, bundle.Compliant, i.State, "%+v", i)
	require.Contains(t, s.onHost("app-live/app.yaml"), "host: \"x: y\"\nport: 8443\ntext: \"8443\"\n")
	require.Equal(t, "DNS=\"x: y\"\nGATE=gate.plant-7\nPORT=8443\n", s.onHost("app-live/site.env"))
	kept, err := os.ReadDir(filepath.Join(s.dir, content.SitesDir))
	require.NoError(t, err)
	require.Len(t, kept, 1, "that of the values before is gone")

	for text, want := range map[string]string{
		"dns: a\nport: eighty\n": path + ":2: port: it must be an integer",
		"dns: a\ngate: b\n":      path + ":2: gate: the site may not set it",
		"port: 1\n":              "dns: it has no value",
	} {
		write(text)
		i = item(t, s.once(), "app-live")
		require.Equal(t, bundle.Pending, i.State, text)
		require.Equal(t, assignments.ReasonSiteValueMissing, i.Reason, text)
		require.Contains(t, i.Message, want)
		require.Contains(t, s.onHost("app-live/site.env"), "8443", "the old content runs on")
	}
	write("dns: 'x: y'\nport: 8443\n")
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	require.NotContains(t, s.log.String(), "plant-7.example.com")
	require.NotContains(t, s.log.String(), "8443")
}

func TestAFileThatCannotBeReadChangesNothingThatRuns(t *testing.T) {
	s := newSite(t)
	path, write := s.ownFile()
	write("dns: a\n")
	s.publish(s.valued(1, manifest))
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)

	write("dns: a\nport: [\n")
	i := item(t, s.once(), "app-live")
	require.Equal(t, bundle.Compliant, i.State, "%+v", i)
	require.NoError(t, os.Remove(filepath.Join(s.host, "app-live", "site.env")))
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	require.Contains(t, s.onHost("app-live/site.env"), "DNS=a\n", "drift is corrected with the last valid values")

	s.publish(s.valued(2, manifest+"more: 1\n"))
	r := s.once()
	i = item(t, r, "app-live")
	require.Equal(t, bundle.Pending, i.State, "%+v", i)
	require.Equal(t, assignments.ReasonSiteValuesInvalid, i.Reason)
	require.Contains(t, i.Message, path+":2: it is not valid YAML")
	require.NotContains(t, s.onHost("app-live/app.yaml"), "more")
	require.Equal(t, bundle.Compliant, item(t, r, "other-live").State)

	write("dns: a\n")
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	require.Contains(t, s.onHost("app-live/app.yaml"), "more")
	require.Equal(t, 1, strings.Count(s.log.String(), "the last valid ones stay"), "it is said once")
}

func TestContentThatCannotGetValuesWaitsAlone(t *testing.T) {
	for name, c := range map[string]struct{ manifest, want string }{
		"a key that is not listed":   {"a:\n  b: ${site.other}\n", "app.yaml:2: ${site.other} is not one of the keys"},
		"a file that is no YAML":     {"a: [\nb: ${site.dns}\n", "app.yaml:1: it is not valid YAML"},
		"a value that is no one-key": {"a: {b: ${site.dns}}\n", "it is not valid YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			_, write := s.ownFile()
			write("dns: a\n")
			s.publish(s.valued(1, manifest))
			require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
			s.publish(s.valued(2, c.manifest))
			r := s.once()
			i := item(t, r, "app-live")
			require.Equal(t, bundle.Pending, i.State, "%+v", i)
			require.Equal(t, assignments.ReasonSiteValueMissing, i.Reason)
			require.Contains(t, i.Message, c.want)
			require.Equal(t, bundle.Compliant, item(t, r, "other-live").State)
			require.Contains(t, s.onHost("app-live/app.yaml"), "host: a\n")
		})
	}
}

func TestARowOfTheReleaseGivesValues(t *testing.T) {
	s := newSite(t)
	_, write := s.ownFile()
	d := s.valued(1, manifest)
	d.Files[shared.RowsPath] = "{\"uid\":\"plant-7\",\"name\":\"seven\",\"values\":{\"dns\":\"{{ .cluster.name }}.example.com\"}}\n{\"uid\":\"plant-8\",\"name\":\"eight\"}\n"
	s.publish(d)
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	require.Contains(t, s.onHost("app-live/site.env"), "DNS=seven.example.com\nGATE=gate.seven\n")
	write("dns: own\n")
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	require.Contains(t, s.onHost("app-live/site.env"), "DNS=own\n", "the site's own value comes first")
}

func TestAReleaseThatUsesNoValuesAnyMoreHasNone(t *testing.T) {
	s := newSite(t)
	_, write := s.ownFile()
	write("dns: a\n")
	s.publish(s.valued(1, manifest))
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	d := s.valued(2, manifest)
	d.ChangeList = nil
	s.publish(d)
	i := item(t, s.once(), "app-live")
	require.Equal(t, bundle.Compliant, i.State, "%+v", i)
	require.Empty(t, i.SiteValues)
	require.Equal(t, manifest, s.onHost("app-live/app.yaml"))
	require.Empty(t, s.onHost("app-live/site.env"))
	kept, err := os.ReadDir(filepath.Join(s.dir, content.SitesDir))
	require.NoError(t, err)
	require.Empty(t, kept)
}

// Whenever the agent dies, the next one has the values of the site, or waits for them as before.
func TestADeathAmidValuesLeavesNothingHalf(t *testing.T) {
	seen := map[string]bool{}
	for n := 0; ; n++ {
		s := newSite(t)
		_, write := s.ownFile()
		write("dns: a\n")
		s.publish(s.valued(1, manifest))
		require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
		write("dns: b\n")
		cut := func() (cut bool) {
			defer func() { cut = recover() != nil }()
			s.agent(func(a *Agent) {
				left := n
				a.state.db.Moment = func(name string) {
					if strings.HasPrefix(name, "site: ") {
						if left--; left < 0 {
							a.state.db.Moment = nil
							seen[name] = true
							panic(name)
						}
					}
				}
				a.Once(t.Context(), 0)
			})
			return false
		}()
		env := s.onHost("app-live/site.env")
		require.Contains(t, []string{"DNS=a\nGATE=gate.plant-7\nPORT=80\n", "DNS=b\nGATE=gate.plant-7\nPORT=80\n"}, env)
		r := s.once()
		require.Equal(t, bundle.Compliant, item(t, r, "app-live").State, "cut at moment %d: %s", n, r.Error)
		require.Contains(t, s.onHost("app-live/app.yaml"), "host: b\n")
		kept, err := os.ReadDir(filepath.Join(s.dir, content.SitesDir))
		require.NoError(t, err)
		require.Len(t, kept, 1)
		if !cut {
			break
		}
	}
	require.Len(t, seen, 5, "%v", seen)
}

func TestAFolderThatSomebodyChangedIsMadeAgain(t *testing.T) {
	s := newSite(t)
	_, write := s.ownFile()
	write("dns: a\n")
	s.publish(s.valued(1, manifest))
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	found, err := filepath.Glob(filepath.Join(s.dir, content.SitesDir, "*", "app.yaml"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(found[0], []byte("host: other\n"), 0o600))
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	require.Contains(t, s.onHost("app-live/app.yaml"), "host: a\n")
}

func TestReportsHaveDigestsAndNoValues(t *testing.T) {
	s := newSite(t)
	_, write := s.ownFile()
	write("dns: very-own.example.com\n")
	s.publish(s.valued(1, manifest))
	s.once()
	s.agent(func(a *Agent) {
		reports, err := a.state.outbox.Reports()
		require.NoError(t, err)
		require.NotEmpty(t, reports)
		var last bundle.Report
		require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) (err error) {
			last, err = a.compose(tx, s.now)
			return err
		}))
		data, err := json.Marshal(last)
		require.NoError(t, err)
		require.NotContains(t, string(data), "very-own")
		require.Equal(t, []bundle.SiteValue{
			{Key: "dns", Source: "site", Digest: digest.FromString("very-own.example.com")},
			{Key: "gate", Source: "default", Digest: digest.FromString("gate.plant-7")},
			{Key: "port", Source: "default", Digest: digest.FromString("80")},
		}, last.SiteValues)
	})
}

func TestAReleaseIsNotGivenUpForAValueOfTheSite(t *testing.T) {
	s := newSite(t)
	_, write := s.ownFile()
	write("dns: a\n")
	fussy := &fussy{Reconciler: s.opts.Engines.Reconcilers["directory"], hates: "b"}
	s.opts.Engines.Reconcilers["directory"] = fussy
	s.publish(s.valued(1, manifest))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	fussy.stuck = "other-live" // which keeps the release from proving good
	d := s.valued(2, manifest+"more: 1\n")
	d.Files["other-live/b.txt"] = "two\n"
	s.publish(d)
	require.Equal(t, bundle.Compliant, item(t, s.once(), "app-live").State)
	write("dns: b\n")
	for range 5 {
		s.now = s.now.Add(DefaultDeadline)
		s.once()
	}
	r := s.once()
	require.Equal(t, bundle.Failed, item(t, r, "app-live").State)
	require.Equal(t, int64(2), r.Status.Release.Running.Number, "the site's own value is no fault of the release")

	s.publish(func() draft { d := s.valued(3, manifest+"more: 2\n"); d.Files["other-live/b.txt"] = "two\n"; return d }())
	for range 5 {
		s.now = s.now.Add(DefaultDeadline)
		r = s.once()
	}
	require.Equal(t, int64(1), r.Status.Release.Running.Number, "new content that fails is given up as ever")
}

// fussy fails where a value is the one that it hates, and has one assignment fail by the fault of the site.
type fussy struct {
	reconcilers.Reconciler
	hates, stuck string
}

func (f *fussy) judge(a reconcilers.Assignment, res reconcilers.Result) reconcilers.Result {
	switch {
	case a.Values["dns"] == f.hates:
		return unhealthy
	case a.Name == f.stuck:
		return reconcilers.Result{State: bundle.Failed, Reason: "Asleep", Fault: reconcilers.FaultSite}
	}
	return res
}

func (f *fussy) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return f.judge(a, f.Reconciler.Apply(ctx, a))
}

func (f *fussy) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return f.judge(a, f.Reconciler.Observe(ctx, a))
}
