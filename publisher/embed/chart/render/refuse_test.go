package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// chartWith is a chart with these files, and a Chart.yaml if they have none.
func chartWith(t *testing.T, files map[string]string) *Chart {
	t.Helper()
	source := fstest.MapFS{"Chart.yaml": {Data: []byte("apiVersion: v2\nname: web\nversion: 1.2.3\n")}}
	for name, text := range files {
		source[name] = &fstest.MapFile{Data: []byte(text)}
	}
	c, err := ReadFolder(source, ".")
	require.NoError(t, err)
	return c
}

func render(t *testing.T, template string, opts chart.Options) (string, error) {
	t.Helper()
	opts.ReleaseName = "my-release"
	result, err := chartWith(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\nmaintainers: [{name: me}]\n", "templates/a.yaml": template, "values.yaml": "password: ''\nnested: {key: x}\n"}).Render(opts)
	if err != nil || len(result.Files) == 0 {
		return "", err
	}
	return string(result.Files[0].Data), nil
}

func TestARandomValueFailsWhereItHasAnEffect(t *testing.T) {
	for _, c := range []struct{ name, template, want string }{
		{"a default", "a: {{ default (randAlphaNum 10) .Values.password }}", "templates/a.yaml:1: randAlphaNum gives a random value, which reaches templates/a.yaml: the same chart would give other files each time (set password)"},
		{"a default by pipe", "\na: {{ .Values.password | default (randAlpha 10) | b64enc | quote }}", "templates/a.yaml:2: randAlpha gives a random value"},
		{"derived", "a: {{ randNumeric 3 | sha256sum | trunc 3 | quote }}", "randNumeric gives a random value"},
		{"an else", "{{ if .Values.password }}a: b{{ else }}a: {{ randAscii 4 | b64enc }}{{ end }}", "(set password)"},
		{"where it is not set", "{{ if not .Values.nested.gone }}a: {{ randBytes 4 }}{{ end }}", "(set nested.gone)"},
		{"where it is set", "{{ if .Values.nested.key }}a: {{ uuidv4 }}{{ end }}", "(set nested.key to false, and give what the chart would make)"},
		{"an integer", "a: {{ randInt 0 2 }}", "randInt gives a random value"},
		{"a condition", "{{ if gt (randInt 0 2) 0 }}a: b{{ end }}", "randInt gives a random value"},
		{"letters in another order", `a: {{ shuffle "abc" }}`, "shuffle gives a random value"},
		{"a certificate", `{{ $ca := genCA "my" 10 }}{{ $c := genSignedCert "a" nil (list "a") 10 $ca }}a: {{ $c.Cert | b64enc }}`, "genSignedCert gives a new key or certificate"},
		{"a key", `a: {{ genPrivateKey "rsa" | b64enc }}`, "genPrivateKey gives a new key"},
		{"a hash of a password", `a: {{ htpasswd "a" "b" | quote }}`, "htpasswd gives a hash with a random salt"},
		{"the time", `a: {{ now | unixEpoch | quote }}`, "now gives the time"},
		{"the year", `a: {{ now | date "2006" }}`, "now gives the time"},
		{"a date of nothing", `a: {{ date "2006" nil }}`, "date gives the time"},
		{"an age", `a: {{ ago 0 }}`, "ago gives the time"},
		{"a template in a value", `a: {{ tpl "{{ uuidv4 }}" . }}`, "uuidv4 gives a random value"},
		{"a template of another file", `a: {{ include "p" . }}{{ define "p" }}{{ randAlpha 3 }}{{ end }}`, "randAlpha gives a random value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := render(t, c.template, chart.Options{})
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, chart.ErrNotReproducible)
		})
	}
}

func TestARandomValueWithoutEffectIsNoError(t *testing.T) {
	set := chart.Options{Values: map[string]any{"password": "known"}}
	for _, c := range []struct{ template, want string }{
		{"a: {{ default (randAlphaNum 10) .Values.password }}", "a: known\n"},
		{"a: {{ len (randAlphaNum 10) }}", "a: 10\n"},
		{"a: {{ randInt 3 4 }}", "a: 3\n"},
		{"{{ $c := genCA \"my\" 10 }}a: b", "a: b\n"},
		{"a: {{ .Values.password }}\n---\n{{ $x := now }}kind: Pod\nmetadata: {name: {{ uuidv4 }}, annotations: {helm.sh/hook: test}}", "a: known\n"},
		{`a: {{ 0 | date "2006-01-02" }}`, "a: 1970-01-01\n"},
		{`a: {{ dateInZone "15:04" 0 "UTC" | quote }}`, "a: \"00:00\"\n"},
		{`a: {{ htmlDate 0 }}`, "a: 1970-01-01\n"},
		{`a: {{ toDate "2006-01-02" "2020-02-03" | dateModify "24h" | date "2006-01-02" }}`, "a: 2020-02-04\n"},
	} {
		got, err := render(t, c.template, set)
		require.NoError(t, err, c.template)
		require.Equal(t, c.want, got)
	}
}

func TestOnlyThePlacesThatMatterAreNamed(t *testing.T) {
	_, err := render(t, "a: {{ default (randAlphaNum 10) .Values.nested.key }}\nb: {{ default (randAlphaNum 10) .Values.password }}", chart.Options{})
	require.EqualError(t, err, "templates/a.yaml:2: randAlphaNum gives a random value, which reaches templates/a.yaml: the same chart would give other files each time (set password)")
}

func TestWhatACallAsksOfOthersFails(t *testing.T) {
	for _, c := range []struct{ name, template, want string }{
		{"the network, where a value avoids it", "\n{{ if not .Values.password }}{{ getHostByName \"a\" }}{{ end }}", "templates/a.yaml:2: getHostByName asks the network (set password)"},
		{"the network", `a: {{ getHostByName "localhost" }}`, "getHostByName asks the network"},
		{"the environment", `a: {{ env "HOME" }}`, `function "env" not defined (Helm does not have it either, because it reads the environment)`},
		{"a function of another Helm", "\n{{ toIni . }}", `templates/a.yaml:2: function "toIni" not defined (the chart may need a newer Helm)`},
		{"the machine's time zones", `a: {{ dateInZone "15" 0 "Europe/Berlin" }}`, "dateInZone asks the machine for the time zone Europe/Berlin (use UTC)"},
		{"the address of a value", `a: {{ printf "%p" .Values }}`, "the text would have an address in memory"},
		{"the version of the clusters", "\na: {{ .Capabilities.KubeVersion.Minor }}", "templates/a.yaml:2: the chart reads .Capabilities (set the annotations wherry.dev/kube-version"},
		{"it by another way", `{{ $c := index . "Capabilities" }}a: {{ with $c }}{{ .APIVersions.Has "v1" }}{{ end }}`, "the chart reads .Capabilities"},
		{"it by its text", `a: {{ .Capabilities }}`, "the chart reads .Capabilities"},
		{"it by its YAML", `a: {{ toYaml . | len }}`, "the chart reads .Capabilities"},
		{"it in another template", `a: {{ include "p" (dict "ctx" $) }}{{ define "p" }}{{ .ctx.Capabilities.KubeVersion }}{{ end }}`, "the chart reads .Capabilities"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := render(t, c.template, chart.Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	got, err := render(t, "a: x {{ range .Chart.Maintainers }}{{ toJson . | sha256sum | trunc 3 }} {{ quote .Name }}{{ end }} {{ toDate `2006` `x` }} {{ semver `1.2.3` }} {{ toYaml .Chart.Maintainers | sha256sum | trunc 3 }}", chart.Options{})
	require.NoError(t, err)
	require.Equal(t, "a: x 3db \"me\" 0001-01-01 00:00:00 +0000 UTC 1.2.3 411\n", got)
	got, err = render(t, "{{ if false }}{{ lookup `v1` `Secret` `a` `b` }}{{ getHostByName `a` }}{{ .Capabilities.KubeVersion }}{{ end }}a: {{ if .Capabilities }}b{{ end }} # {{ .Capabilities.HelmVersion.Version | len }}", chart.Options{})
	require.NoError(t, err)
	require.Contains(t, got, "a: b")
	got, err = render(t, `a: {{ .Capabilities.KubeVersion }} {{ .Capabilities.KubeVersion.Minor }} {{ .Capabilities.APIVersions.Has "x.io/v1/Bee" }} {{ .Capabilities.APIVersions.Has "x.io/v1/Wasp" }}`, chart.Options{KubeVersion: "1.31", APIVersions: []string{"x.io/v1/Bee"}})
	require.NoError(t, err)
	require.Equal(t, "a: v1.31 31 true false\n", got)
}

func TestAdviceNamesTheValueOfTheWhole(t *testing.T) {
	files := map[string]string{"charts/db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 0.1.0\n"}
	for template, want := range map[string]string{
		"{{ if not .Values.auth.password }}{{ getHostByName `a` }}{{ end }}": "(set db.auth.password)",
		"a: {{ .Values.auth.password | default (randAlphaNum 5) }}":          "(set db.auth.password)",
	} {
		files["charts/db/templates/a.yaml"], files["charts/db/values.yaml"] = template, "auth: {}"
		_, err := chartWith(t, files).Render(chart.Options{ReleaseName: "a"})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "charts/db/templates/a.yaml:1: ")
	}
}

func TestTheChartsOwnMessagesAreKept(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{`{{ fail "give a name" }}`, "templates/a.yaml:1: give a name"},
		{"\n\n{{ required \"a name is needed\" .Values.name }}", "templates/a.yaml:3: a name is needed"},
		{`{{ include "p" . }}` + "{{ define \"p\" }}\n{{ .Values.gone.key }}{{ end }}", "templates/a.yaml:2: nil pointer evaluating interface {}.key (the template reads .Values.gone.key: set it, or the mapping that it is in, in the chart's values)"},
		{"{{ if }}", "templates/a.yaml:1: missing value for if"},
		{"a: [", "templates/a.yaml: the template does not give YAML"},
		{"just text", "templates/a.yaml: the template does not give YAML: a document is not a map"},
	} {
		_, err := render(t, c.template, chart.Options{})
		require.ErrorContains(t, err, c.want)
	}
}

func TestWhatAChartIsRefusedFor(t *testing.T) {
	const metadata = "apiVersion: v2\nname: web\nversion: 1.2.3\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		opts  chart.Options
		want  string
	}{
		{"a chart of another Helm", map[string]string{"Chart.yaml": strings.Replace(metadata, "v2", "v3", 1)}, chart.Options{}, "apiVersion v3, which needs a newer Helm"},
		{"a library", map[string]string{"Chart.yaml": metadata + "type: library\n"}, chart.Options{}, "a chart of type library cannot be rendered by itself"},
		{"another Kubernetes", map[string]string{"Chart.yaml": metadata + "kubeVersion: '>=1.40'\n"}, chart.Options{KubeVersion: "1.31"}, "the chart needs Kubernetes >=1.40, and the clusters have v1.31"},
		{"a Kubernetes that is not known", map[string]string{"Chart.yaml": metadata + "kubeVersion: '>=1.20'\n"}, chart.Options{}, "the version of the clusters is not known (set the annotations wherry.dev/kube-version"},
		{"a dependency that is not there", map[string]string{"Chart.yaml": metadata + "dependencies: [{name: redis, version: 1.x, repository: 'https://example.com'}]\n"}, chart.Options{}, "the chart depends on redis 1.x, not in its folder charts/"},
		{"values against the schema", map[string]string{"values.schema.json": `{"properties": {"port": {"type": "integer"}}}`}, chart.Options{Values: map[string]any{"port": "hunter2"}}, "the values do not fit the schema: port breaks type"},
		{"a release name", nil, chart.Options{ReleaseName: "No Name"}, `the release name "No Name"`},
		{"a version", nil, chart.Options{KubeVersion: "newest"}, `the version of Kubernetes "newest"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.opts.ReleaseName == "" {
				c.opts.ReleaseName = "web"
			}
			_, err := chartWith(t, c.files).Render(c.opts)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	disabled := chartWith(t, map[string]string{"Chart.yaml": metadata + "dependencies: [{name: redis, version: 1.x, condition: redis.enabled}, {name: other, version: 1.x, tags: [extra]}]\n", "values.yaml": "redis: {enabled: false}\ntags: {extra: false}\n"})
	_, err := disabled.Render(chart.Options{ReleaseName: "web"})
	require.NoError(t, err)
}

// archiveOf packs entries; a name with an arrow is a link.
func archiveOf(t testing.TB, entries ...[2]string) []byte {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		header := &tar.Header{Name: e[0], Mode: 0o644, Size: int64(len(e[1])), Typeflag: tar.TypeReg}
		if name, to, isLink := strings.Cut(e[0], " -> "); isLink {
			header = &tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
		}
		require.NoError(t, w.WriteHeader(header))
		if header.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(e[1]))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return packed.Bytes()
}

func TestAnArchiveIsReadWithinBounds(t *testing.T) {
	metadata := [2]string{"web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.2.3\n"}
	zeros := strings.Repeat("\x00", maxFileBytes)
	var bomb, many [][2]string
	for i := range 21 {
		bomb = append(bomb, [2]string{fmt.Sprintf("web/%d", i), zeros})
	}
	for i := range maxFiles + 1 {
		many = append(many, [2]string{fmt.Sprintf("web/%d", i), ""})
	}
	nested := [][2]string{metadata}
	for range maxNesting + 2 {
		nested = [][2]string{metadata, {"web/charts/web.tgz", string(archiveOf(t, nested...))}}
	}
	bombs := string(archiveOf(t, append(slices.Clone(bomb[:11]), metadata)...))
	for _, c := range []struct {
		name    string
		entries [][2]string
		want    string
	}{
		{"a link", [][2]string{metadata, {"web/values.yaml -> /etc/passwd", ""}}, "is a link"},
		{"a way out", [][2]string{metadata, {"web/../../x", ""}}, "does not lie in the chart's folder"},
		{"an absolute path", [][2]string{metadata, {"/etc/passwd", ""}}, "does not lie in the chart's folder"},
		{"an absolute path inside", [][2]string{metadata, {"web//etc/passwd", ""}}, "does not lie in the chart's folder"},
		{"a drive", [][2]string{metadata, {`web\c:\x`, ""}}, "does not lie in the chart's folder"},
		{"no folder", [][2]string{{"Chart.yaml", metadata[1]}}, "does not lie in the chart's folder"},
		{"a file twice", [][2]string{metadata, metadata}, "twice"},
		{"a large file", [][2]string{metadata, {"web/x", zeros + "x"}}, "more than 5242880 bytes"},
		{"many bytes", append(bomb, metadata), "more than 10000 files or 104857600 bytes"},
		{"many files", append(many, metadata), "more than 10000 files"},
		{"many bytes in charts below", [][2]string{metadata, {"web/charts/a.tgz", bombs}, {"web/charts/b.tgz", bombs}}, "more than 10000 files or 104857600 bytes"},
		{"charts in charts", nested, "charts in charts nest deeper than"},
		{"no chart", [][2]string{{"web/values.yaml", ""}}, "Chart.yaml file is missing"},
		{"nothing", nil, "has no files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(archiveOf(t, c.entries...)))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Read(strings.NewReader("apiVersion: v2"))
	require.ErrorContains(t, err, "is no .tgz archive")
	_, err = Read(bytes.NewReader(make([]byte, MaxArchiveBytes+1)))
	require.ErrorIs(t, err, chart.ErrTooLarge)
}

func TestAFolderIsReadWithoutWhatItIgnores(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n", "chart/.helmignore": "*.bak\n/docs\n",
		"chart/templates/a.yaml": "a: b\n", "chart/templates/a.yaml.bak": "{{", "chart/docs/x.md": "", "chart/files/x.txt": "x",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	c, err := ReadFolder(os.DirFS(dir), "chart")
	require.NoError(t, err)
	var names []string
	for _, f := range c.files {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	require.Equal(t, []string{".helmignore", "Chart.yaml", "files/x.txt", "templates/a.yaml"}, names)
	require.Equal(t, "web 1.2.3", c.Name()+" "+c.Version())

	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "chart/templates/link.yaml")))
	_, err = ReadFolder(os.DirFS(dir), "chart")
	require.ErrorContains(t, err, "chart/templates/link.yaml: is a link")
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "away")))
	_, err = ReadFolder(os.DirFS(dir), "away/chart")
	require.ErrorContains(t, err, "away: is a link")
	_, err = ReadFolder(os.DirFS(dir), "gone")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = ReadFolder(os.DirFS(dir), "../chart")
	require.ErrorContains(t, err, "outside of the repository")
}

func TestDependenciesInOtherFoldersAreRead(t *testing.T) {
	metadata := func(name, more string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("apiVersion: v2\nname: " + name + "\nversion: 1.2.3\n" + more)}
	}
	source := fstest.MapFS{
		"apps/web/Chart.yaml":            metadata("web", "dependencies:\n- {name: common, version: 1.x, repository: 'file://../../libs/common'}\n- {name: own, version: 1.x, repository: 'file://../gone'}\n- {name: common, alias: again, version: 1.x, repository: 'file://../../libs/common'}\n"),
		"apps/web/charts/own/Chart.yaml": metadata("own", ""),
		"libs/common/Chart.yaml":         metadata("common", "dependencies: [{name: base, version: '*', repository: 'file://../base'}]"),
		"libs/common/templates/c.yaml":   {Data: []byte("c: {{ .Chart.Name }}")},
		"libs/base/Chart.yaml":           metadata("base", ""),
		"libs/base/templates/b.yaml":     {Data: []byte("b: {{ .Chart.Name }}")},
	}
	c, err := ReadFolder(source, "apps/web")
	require.NoError(t, err)
	result, err := c.Render(chart.Options{ReleaseName: "a"})
	require.NoError(t, err)
	var got []string
	for _, f := range result.Files {
		got = append(got, f.Path+": "+strings.TrimSpace(string(f.Data)))
	}
	require.Equal(t, []string{
		"charts/again/charts/base/templates/b.yaml: b: base", "charts/again/templates/c.yaml: c: again",
		"charts/common/charts/base/templates/b.yaml: b: base", "charts/common/templates/c.yaml: c: common",
	}, got)

	require.Equal(t, []string{"apps/web", "libs/base", "libs/common"}, c.Folders())

	source["libs/base/Chart.yaml"] = metadata("base", "dependencies: [{name: common, version: '*', repository: 'file://../common'}]")
	_, err = ReadFolder(source, "apps/web")
	require.ErrorIs(t, err, chart.ErrTooLarge)
	source["libs/base/Chart.yaml"] = metadata("base", "dependencies: [{name: out, version: '*', repository: 'file://../../../out'}]")
	_, err = ReadFolder(source, "apps/web")
	require.ErrorContains(t, err, "lies outside of the repository")
}

func TestTwoHundredMegabytesAreRefused(t *testing.T) {
	_, err := render(t, "{{ range until 200 }}\na{{ . }}: {{ repeat 1000000 `x` }}{{ end }}", chart.Options{})
	require.ErrorIs(t, err, chart.ErrTooLarge)
}

func TestHooksAndCRDsAreTold(t *testing.T) {
	object := func(name, annotations string) string {
		return "kind: Job\nmetadata:\n  name: " + name + "\n  annotations: {" + annotations + "}\n"
	}
	files := map[string]string{
		"crds/bee.yaml": "kind: CustomResourceDefinition\n", "crds/README.md": "no",
		"templates/hooks.yaml": "# only a comment\n---\n" + object("one", "helm.sh/hook: 'post-install, pre-install', helm.sh/hook-weight: '-5'") + "---\n" + object("two", "a: b") +
			"---\n" + object("three", "helm.sh/hook: test") + "---\n" + object("four", "helm.sh/hook: crd-install"),
		"templates/NOTES.txt":      "{{ uuidv4 }}{{ .Capabilities.KubeVersion }}",
		"templates/empty.yaml":     "{{ if false }}a: b{{ end }}\n# nothing\n",
		"templates/_helpers.tpl":   "not rendered",
		"charts/sub/Chart.yaml":    "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
		"charts/sub/crds/wasp.yml": "kind: CustomResourceDefinition\n", "charts/sub/templates/x.yaml": "x: {{ .Values.x }}\n", "charts/sub/values.yaml": "x: {z: 1}",
	}
	result, err := chartWith(t, files).Render(chart.Options{ReleaseName: "a"})
	require.NoError(t, err)
	require.Equal(t, &chart.Result{
		Files: []chart.File{
			{Path: "charts/sub/crds/wasp.yml", Data: []byte("kind: CustomResourceDefinition\n"), Chart: "sub", Version: "0.1.0"},
			{Path: "crds/bee.yaml", Data: []byte("kind: CustomResourceDefinition\n"), Chart: "web", Version: "1.2.3"},
			{Path: "charts/sub/templates/x.yaml", Data: []byte("x: map[z:1]\n"), Chart: "sub", Version: "0.1.0"},
			{Path: "templates/hooks.yaml", Data: []byte(object("two", "a: b")), Chart: "web", Version: "1.2.3"},
		},
		Hooks: []chart.Hook{
			{Path: "templates/hooks.yaml", Kind: "Job", Name: "one", Events: []string{"post-install", "pre-install"}, Weight: -5, Data: []byte(object("one", "helm.sh/hook: 'post-install, pre-install', helm.sh/hook-weight: '-5'")), Chart: "web", Version: "1.2.3"},
			{Path: "templates/hooks.yaml", Kind: "Job", Name: "four", Events: []string{"crd-install"}, Weight: 0, Data: []byte(object("four", "helm.sh/hook: crd-install")), Chart: "web", Version: "1.2.3"},
		},
	}, result)
	result, err = chartWith(t, files).Render(chart.Options{ReleaseName: "a", WithoutCRDs: true})
	require.NoError(t, err)
	require.Len(t, result.Files, 2)

	maps.Copy(files, map[string]string{"templates/NOTES.txt": `{{ fail "check your values" }}`})
	_, err = chartWith(t, files).Render(chart.Options{ReleaseName: "a"})
	require.ErrorContains(t, err, "check your values")
}

func TestARenderingChangesNoGivenValues(t *testing.T) {
	given := map[string]any{"a": map[string]any{"b": "x"}}
	c := chartWith(t, map[string]string{"values.yaml": "a: {b: 1, c: 2}", "templates/a.yaml": `{{ $_ := set .Values.a "b" "changed" }}a: {{ .Values.a.c }}`})
	_, err := c.Render(chart.Options{ReleaseName: "a", Values: given})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": map[string]any{"b": "x"}}, given)
}

func TestALookupFindsNothing(t *testing.T) {
	const helper = "{{ define \"password\" }}\n{{- $known := lookup \"v1\" \"Secret\" .Release.Namespace \"db\" }}\n{{- if $known }}{{ index $known.data \"password\" }}{{ else if .Values.password }}{{ .Values.password | b64enc }}{{ else }}{{ randAlphaNum 10 | b64enc }}{{ end }}{{ end }}"
	files := map[string]string{"templates/_password.tpl": helper, "templates/a.yaml": "data: {password: {{ include \"password\" . }}}\n"}
	result, err := chartWith(t, files).Render(chart.Options{ReleaseName: "a", Values: map[string]any{"password": "given"}})
	require.NoError(t, err)
	require.Equal(t, "data: {password: Z2l2ZW4=}\n", string(result.Files[0].Data))
	require.Equal(t, []finding.Finding{{
		Position: finding.Position{File: "templates/_password.tpl", Line: 2}, Code: finding.CodeLookup, Note: true,
		Message: "lookup asks the cluster, and finds nothing here, as with helm template",
	}}, result.Notes)
	_, err = chartWith(t, files).Render(chart.Options{ReleaseName: "a"})
	require.ErrorIs(t, err, chart.ErrNotReproducible)
	require.ErrorContains(t, err, "templates/_password.tpl:3: randAlphaNum gives a random value")
}

func TestASchemaIsReadWithoutWhatItRefersTo(t *testing.T) {
	files := map[string]string{
		"values.schema.json": `{"$id": "https://own.example/values.json", "$schema": "https://schemas.example/meta", "$defs": {"n": {"type": "integer"}},
			"properties": {"port": {"$ref": "https://own.example/values.json#/$defs/n"}, "probe": {"$ref": "https://schemas.example/probe.json#/definitions/p"}, "disk": {"$ref": "file:///etc/passwd"}, "near": {"$ref": "other.json"}}}`,
		"templates/a.yaml": "a: b\n",
	}
	result, err := chartWith(t, files).Render(chart.Options{ReleaseName: "a", Values: map[string]any{"port": 1, "probe": "x", "disk": "y", "near": "z"}})
	require.NoError(t, err)
	var got []string
	for _, n := range result.Notes {
		require.Equal(t, finding.CodeSchemaElsewhere, n.Code)
		got = append(got, n.String())
	}
	slices.Sort(got)
	require.Equal(t, []string{
		"values.schema.json: it refers to file:///etc/passwd, which is not read: the values are checked against the rest (put that schema into the chart, below $defs)",
		"values.schema.json: it refers to https://own.example/other.json, which is not read: the values are checked against the rest (put that schema into the chart, below $defs)",
		"values.schema.json: it refers to https://schemas.example/meta, which is not read: the values are checked against the rest (put that schema into the chart, below $defs)",
		"values.schema.json: it refers to https://schemas.example/probe.json, which is not read: the values are checked against the rest (put that schema into the chart, below $defs)",
	}, got)
	_, err = chartWith(t, files).Render(chart.Options{ReleaseName: "a", Values: map[string]any{"port": "hunter2"}})
	require.ErrorContains(t, err, "values.schema.json: the values do not fit the schema: port breaks type")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestBlockTextsKeepTheirEnds(t *testing.T) {
	const clip, keep = "data:\n  a: |\n    x\n", "data:\n  a: |+\n    x\n\n\n"
	result, err := chartWith(t, map[string]string{"templates/a.yaml": clip + "\n\n---\n" + keep + "---\n" + keep, "templates/b.yaml": keep, "templates/c.yaml": "data:\n  a: |-\n    x  "}).Render(chart.Options{ReleaseName: "a"})
	require.NoError(t, err)
	require.Equal(t, []string{clip + "---\n" + keep + "---\n" + keep, keep, "data:\n  a: |-\n    x  \n"},
		[]string{string(result.Files[0].Data), string(result.Files[1].Data), string(result.Files[2].Data)})
}

func TestAnExclamationMarkInHelmignoreIsNamed(t *testing.T) {
	source := fstest.MapFS{"Chart.yaml": {Data: []byte("apiVersion: v2\nname: web\nversion: 1.2.3\n")}, ".helmignore": {Data: []byte("*.bak\n!templates/\n")}}
	_, err := ReadFolder(source, ".")
	require.EqualError(t, err, ".helmignore:2: with !templates/ Helm leaves out all that does not match, Chart.yaml too (list what to leave out instead)")
}
