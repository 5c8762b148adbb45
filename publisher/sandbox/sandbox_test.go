package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/publisher/embed/chart/render"
	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
	"github.com/wherry-dev/wherry/publisher/meter"
)

// TestMain is a child where it is told to be one, also one that does not keep to what is agreed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case Name:
			os.Exit(Child(os.Stdin, os.Stdout, Engines{Chart: render.Do, Kustomization: kustomization.Do}))
		case "silent":
			time.Sleep(time.Hour)
		case "ends":
			os.Exit(7)
		}
		if hostile := strays[os.Args[1]]; hostile != nil {
			stray(hostile)
		}
	}
	os.Exit(m.Run())
}

const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"

func tree(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func chartWith(template string) Source {
	return Source{Files: tree(map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n", "app/templates/a.yaml": template})}
}

var rendered = chart.Job{Dir: "app", Render: true, Options: chart.Options{ReleaseName: "a"}}

// open returns a sandbox whose children and goroutines have to have ended when the test does.
func open(t *testing.T, opts Options) *Sandbox {
	t.Helper()
	if opts.Command == nil {
		opts.Command = child.Self(Name)
	}
	settled := childtest.Settled(t)
	s := New(opts)
	t.Cleanup(func() {
		s.Close()
		settled()
	})
	return s
}

func pid(s *Sandbox, registration string) int { return s.of[registration].process.cmd.Process.Pid }

func TestAJobGivesWhatItsEngineGives(t *testing.T) {
	s := open(t, Options{})
	from := chartWith("a: {{ .Values.whole }} {{ .Values.float }} {{ .Values.text }} {{ .Values.given }} {{ .Values.none }}{{ .Values.list }}\n")
	job := rendered
	job.Options.Values = map[string]any{"whole": int64(12345678), "float": float64(12345678), "text": "x", "none": nil, "list": []any{1.5, int64(2), true}}
	job.Values = []chart.Values{{Text: []byte("text: other\ngiven: z")}}
	job.Parameters = []chart.Parameter{{Path: "given", Value: "1"}}
	job.Pack = true
	got, err := s.Chart(t.Context(), "team", from, job)
	require.NoError(t, err)
	c, err := render.ReadFolder(from.Files, "app")
	require.NoError(t, err)
	opts := job.Options
	opts.Values = chart.MergeValues(opts.Values, map[string]any{"text": "other", "given": int64(1)})
	want, err := c.Render(opts)
	require.NoError(t, err)
	require.Equal(t, want, got.Rendered)
	require.Equal(t, "a: 12345678 1.2345678e+07 other 1 [1.5 2 true]\n", string(want.Files[0].Data))
	archive, err := c.Pack()
	require.NoError(t, err)
	require.Equal(t, &chart.Done{Name: "web", Version: "1.2.3", Folders: []string{"app"}, Archive: archive, Rendered: want}, got)

	again, err := s.Chart(t.Context(), "team", Source{}, chart.Job{Archive: archive, Pack: true})
	require.NoError(t, err)
	require.Equal(t, archive, again.Archive)

	files := tree(map[string]string{"app/kustomization.yaml": "resources: [../base]", "base/kustomization.yaml": "resources: [one.yaml]", "base/one.yaml": object})
	argo := []byte(`{"namePrefix": "my-"}`)
	yaml, read, err := s.Kustomization(t.Context(), "team", Source{Files: files}, "app", argo)
	require.NoError(t, err)
	sameYAML, sameRead, err := kustomization.Do(files, "app", argo, nil)
	require.NoError(t, err)
	require.Equal(t, string(sameYAML), string(yaml))
	require.Equal(t, sameRead, read)
}

func TestTheErrorsOfAJobAreThoseOfItsEngineAndOfTheParent(t *testing.T) {
	s := open(t, Options{})
	_, err := s.Chart(t.Context(), "team", chartWith(`{{ fail "no" }}`), rendered)
	require.EqualError(t, err, "templates/a.yaml:1: no")
	require.NotErrorIs(t, err, ErrUnfinished)
	_, err = s.Chart(t.Context(), "team", Source{Files: tree(nil)}, rendered)
	require.EqualError(t, err, "open app: file does not exist")
	job := rendered
	job.Values = []chart.Values{{Text: []byte("a: ["), From: "the values of the test"}}
	_, err = s.Chart(t.Context(), "team", chartWith("a: b"), job)
	require.ErrorContains(t, err, "the values of the test: ")

	broken := errors.New("broken")
	from := Source{
		Files:  tree(map[string]string{"kustomization.yaml": "resources: ['https://git.example/a/b?ref=" + strings.Repeat("a", 40) + "']"}),
		Remote: func(context.Context, string, string) (fs.FS, error) { return nil, broken },
	}
	_, _, err = s.Kustomization(t.Context(), "team", from, ".", nil)
	require.ErrorIs(t, err, broken)
	from.Remote = nil
	_, _, err = s.Kustomization(t.Context(), "team", from, ".", nil)
	require.ErrorContains(t, err, "none are fetched here")
}

func TestAChildIsOfOneRegistration(t *testing.T) {
	s := open(t, Options{})
	for _, registration := range []string{"one", "two", "one"} {
		_, err := s.Chart(t.Context(), registration, chartWith("a: b"), rendered)
		require.NoError(t, err)
	}
	require.NotEqual(t, pid(s, "one"), pid(s, "two"))
	first := pid(s, "one")
	_, err := s.Chart(t.Context(), "one", chartWith("a: b"), rendered)
	require.NoError(t, err)
	require.Equal(t, first, pid(s, "one"), "jobs of a registration share a child")
	s.Release("one")
	_, err = s.Chart(t.Context(), "one", chartWith("a: b"), rendered)
	require.NoError(t, err)
	require.NotEqual(t, first, pid(s, "one"))
}

// slow is a kustomization that takes kustomize a time with the square of its objects.
func slow() Source {
	var all strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&all, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n---\n", i)
	}
	return Source{Files: tree(map[string]string{"kustomization.yaml": "resources: [all.yaml]", "all.yaml": all.String()})}
}

func TestALimitHoldsItsJobAlone(t *testing.T) {
	s := open(t, Options{Memory: 96 << 20, CPU: 1500 * time.Millisecond})
	honest := func() string {
		r, err := s.Chart(t.Context(), "team", chartWith("a: b"), rendered)
		require.NoError(t, err)
		return string(r.Rendered.Files[0].Data)
	}
	before := honest()
	_, _, err := s.Kustomization(t.Context(), "team", slow(), ".", nil)
	require.ErrorIs(t, err, ErrUnfinished)
	require.ErrorIs(t, err, child.ErrCPU)
	require.Regexp(t, `^rendering takes more than 1.5s of processor time: \d\.\d s used \(divide it, or raise spec\.sandbox\.cpuSeconds of the Platform\)$`, err.Error())
	require.Equal(t, before, honest())
	_, err = s.Chart(t.Context(), "team", chartWith(`{{ $all := list }}{{ range until 12 }}{{ $all = append $all (repeat (int (add 20000000 .)) "a") }}{{ end }}a: {{ len $all }}`), rendered)
	require.ErrorIs(t, err, ErrUnfinished)
	require.ErrorIs(t, err, child.ErrMemory)
	require.Regexp(t, `^rendering takes more than 96 MiB of memory: (\d+ MiB in use|more was asked for at once than there was left) \(divide it, or raise spec\.sandbox\.memory of the Platform\)$`, err.Error())
	require.Equal(t, before, honest())
}

// The processor time of all jobs of a registration is bounded, and the platform's own is only counted.
func TestARegistrationHasABudgetOfProcessorTime(t *testing.T) {
	meters := meter.NewSet(meter.Budget{})
	s := open(t, Options{Total: time.Millisecond, Meters: meters})
	render := func(registration string) error {
		_, err := s.Chart(t.Context(), registration, chartWith("a: b"), rendered)
		return err
	}
	require.NoError(t, render("evil"), "which takes more")
	err := render("evil")
	require.ErrorIs(t, err, ErrUnfinished)
	require.ErrorIs(t, err, meter.ErrExceeded)
	require.Regexp(t, `^budget exceeded: registration "evil" uses \d+ms of processor time, and at most 1ms are allowed in one publication \(divide it, or raise spec\.sandbox\.cpuSeconds of the Platform\)$`, err.Error())
	require.NoError(t, render("good"))
	require.NoError(t, render(""))
	require.NoError(t, render(""))
	told := meters.Of("evil").Used().CPU
	s.Release("evil")
	require.GreaterOrEqual(t, meters.Of("evil").Used().CPU, told, "what the system says of a process that has ended")

	cpu := 100 * time.Millisecond
	s = open(t, Options{CPU: cpu, Meters: meters})
	_, _, err = s.Kustomization(t.Context(), "slow", slow(), ".", nil)
	require.ErrorIs(t, err, child.ErrCPU)
	require.Greater(t, meters.Of("slow").Used().CPU, cpu, "of a process that its limit has ended")
}

// hooked calls a function before it reads a file.
type hooked struct {
	fs.FS
	hook func()
}

func (h hooked) Open(name string) (fs.File, error) {
	h.hook()
	return h.FS.Open(name)
}

func TestASignalFromOutsideIsNoVerdict(t *testing.T) {
	s := open(t, Options{})
	killed := 0
	kill := func(times int) Source {
		from := chartWith("a: b")
		return Source{Files: hooked{from.Files, func() {
			if killed < times {
				killed++
				require.NoError(t, s.of["team"].process.cmd.Process.Kill())
			}
		}}}
	}
	_, err := s.Chart(t.Context(), "team", kill(maxKilled-1), rendered)
	require.NoError(t, err)
	require.Equal(t, maxKilled-1, killed)
	s.Release("team")
	_, err = s.Chart(t.Context(), "team", kill(1_000_000), rendered)
	require.ErrorIs(t, err, ErrUnfinished)
	require.ErrorIs(t, err, child.ErrKilled)
	require.Equal(t, 2*maxKilled-1, killed)
}

func TestAJobEndsWithItsContext(t *testing.T) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	from := chartWith("a: b")
	_, err := s.Chart(ctx, "team", Source{Files: hooked{from.Files, cancel}}, rendered)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Chart(t.Context(), "team", from, rendered)
	require.NoError(t, err)
}

func TestAChildThatDoesNothingIsEnded(t *testing.T) {
	s := open(t, Options{Command: child.Self("silent"), idle: 50 * time.Millisecond})
	_, err := s.Chart(t.Context(), "team", chartWith("a: b"), rendered)
	require.ErrorIs(t, err, ErrUnfinished)
	require.ErrorIs(t, err, errIdle)
}

func TestAProcessThatIsNoChildIsAnError(t *testing.T) {
	for _, command := range [][]string{{}, {"/nowhere"}, child.Self("ends")} {
		s := open(t, Options{Command: command})
		_, err := s.Chart(t.Context(), "team", chartWith("a: b"), rendered)
		require.ErrorIs(t, err, ErrUnfinished)
	}
}

// strays are what children may send that do not keep to what is agreed, once they have a job.
var strays = map[string]*message{
	"another tree":               {Question: &question{Read: &file{Tree: 7, Name: "a"}}},
	"a negative tree":            {Question: &question{Read: &file{Tree: -1, Name: "a"}}},
	"a path that leads out":      {Question: &question{Read: &file{Name: "../secret"}}},
	"an absolute path":           {Question: &question{List: &file{Name: "/etc"}}},
	"nothing":                    {Question: &question{}},
	"a result of neither":        {Outcome: &outcome{}},
	"a result without its files": {Outcome: &outcome{Chart: &chart.Done{Rendered: &chart.Result{Files: make([]chart.File, 3)}}}},
	"no question":                {Ready: []string{"again"}},
	"a cause that is none":       {Outcome: &outcome{Failed: true, Err: "why", Cause: 99}},
}

// stray is such a child. It ends with the error of the parent's answer.
func stray(m *message) {
	c := newConn(os.Stdin, os.Stdout)
	_, _ = c.receive()
	_ = c.send(message{Ready: []string{"process"}})
	_, _ = c.receive()
	_ = c.send(*m)
	answered, err := c.receive()
	if err == nil && answered.Answer != nil {
		_ = c.send(message{Outcome: &outcome{Failed: true, Err: answered.Answer.Text}})
	}
	_, _ = c.receive()
	os.Exit(0)
}

func TestAChildThatIsTakenOverGetsNothing(t *testing.T) {
	for name := range strays {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Command: child.Self(name)})
			_, err := s.Chart(t.Context(), "team", chartWith("a: b"), rendered)
			require.Error(t, err)
			t.Log(err)
		})
	}
}

func TestARenderingIsBounded(t *testing.T) {
	s := open(t, Options{Memory: 64 << 20, CPU: 300 * time.Millisecond})
	for name, template := range map[string]string{
		"a template that includes itself":    `{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`,
		"a template that is in itself":       `{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`,
		"a template by tpl that does":        `{{ define "a" }}{{ tpl "{{ include \"a\" . }}" . }}{{ end }}{{ include "a" . }}`,
		"a loop without end":                 `{{ range 1000000000000 }}{{ end }}`,
		"a long list":                        `{{ until 1000000000 }}`,
		"a text that doubles":                `{{ $x := "xx" }}{{ range until 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`,
		"a value that doubles, and is shown": `{{ $x := list "x" }}{{ range until 60 }}{{ $x = list $x $x }}{{ end }}{{ $x }}`,
		"the release that holds itself":      `{{ $_ := set .Release "x" .Release }}{{ .Release }}`,
		"a slow expression":                  `{{ regexMatch "((a?){99}(a){99}){9}" (repeat 1000000 "a") }}`,
	} {
		_, err := s.Chart(t.Context(), "team", chartWith(template), rendered)
		require.Error(t, err, name)
		t.Logf("%s: %s", name, err)
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "x%d: &x%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d, ", i), 10), ", "))
	}
	return b.String()
}

func TestABuildEndsAtItsLimits(t *testing.T) {
	s := open(t, Options{Memory: 64 << 20, CPU: 300 * time.Millisecond})
	const one = "resources: [one.yaml]\n"
	var copies, replacements strings.Builder // each of which doubles the object
	for i := range 40 {
		fmt.Fprintf(&copies, "    - {op: copy, from: /data, path: /data/x%d}\n", i)
		fmt.Fprintf(&replacements, "- {source: {kind: ConfigMap, fieldPath: data}, targets: [{select: {kind: ConfigMap}, fieldPaths: [data.x%d], options: {create: true}}]}\n", i)
	}
	for name, text := range map[string]string{
		"aliases":      "resources: [bomb.yaml]",
		"patches":      one + "patches:\n- patch: |\n    " + strings.ReplaceAll(bomb(), "\n", "\n    "),
		"copies":       one + "patches:\n- target: {kind: ConfigMap}\n  patch: |\n" + copies.String(),
		"replacements": one + "replacements:\n" + replacements.String(),
	} {
		files := tree(map[string]string{"kustomization.yaml": text, "one.yaml": object + "data: {a: b}\n", "bomb.yaml": bomb()})
		_, _, err := s.Kustomization(t.Context(), "team", Source{Files: files}, ".", nil)
		require.Error(t, err, name)
		t.Logf("%s: %s", name, err)
	}
}
