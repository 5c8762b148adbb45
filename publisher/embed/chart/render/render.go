package render

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Render renders the templates of c. Errors are of type [finding.Error]: they name the template and its line, and what to do.
//
// Functions whose result is random, or is the time, may be called as long as their result has no effect: a password that a
// value overrides is no error. Whether it has is found by rendering twice, with two sets of such results.
func (c *Chart) Render(opts chart.Options) (result *chart.Result, err error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = 16 << 20
	}
	if opts.Namespace == "" {
		opts.Namespace = "default"
	}
	defer func() {
		if p := recover(); p != nil { // a chart that Helm's library cannot cope with
			result, err = nil, fmt.Errorf("chart %s: %v", c.Name(), p)
		}
	}()
	p, err := c.compose(opts)
	if err != nil {
		return nil, err
	}
	if result, err = p.reproducible(); err == nil {
		result.Notes = append(p.schemaNotes, result.Notes...)
	}
	return result, err
}

// composed is a chart with its values.
type composed struct {
	chart *helm.Chart
	top   map[string]any // what .Release, .Values and so on are
	opts  chart.Options
	known *common.Capabilities // nil if they are not
	sites []*site              // the calls that are marked; nil before

	schemaNotes []finding.Finding
}

// compose puts values and dependencies together, as "helm template" does.
func (c *Chart) compose(opts chart.Options) (*composed, error) {
	loaded, err := loader.LoadFiles(c.files)
	if err != nil {
		return nil, err
	}
	sortDependencies(loaded)
	chartFile := finding.Position{File: chartutil.ChartfileName}
	switch {
	case loaded.Metadata.APIVersion != helm.APIVersionV1 && loaded.Metadata.APIVersion != helm.APIVersionV2:
		return nil, finding.Errorf("", chartFile, "", "the chart has apiVersion %s, which needs a newer Helm (known: v1, v2)", loaded.Metadata.APIVersion)
	case loaded.Metadata.Type != "" && loaded.Metadata.Type != "application":
		return nil, finding.Errorf("", chartFile, "name a chart that depends on it", "a chart of type %s cannot be rendered by itself", loaded.Metadata.Type)
	}
	if err := chartutil.ValidateReleaseName(opts.ReleaseName); err != nil {
		return nil, fmt.Errorf("the release name %q: %w", opts.ReleaseName, err)
	}
	known, err := capabilities(opts)
	if err != nil {
		return nil, err
	}
	if err := checkKubeVersion(loaded.Metadata.KubeVersion, known); err != nil {
		return nil, err
	}
	values, err := copyOf(opts.Values)
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(loaded, values); err != nil {
		return nil, finding.Errorf("", chartFile, "", "the dependencies: %s", err)
	}
	if err := checkDependencies(loaded); err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: opts.ReleaseName, Namespace: opts.Namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValuesWithSchemaValidation(loaded, values, release, known, true)
	if err != nil {
		return nil, finding.Errorf("", finding.Position{File: chartutil.ValuesfileName}, "", "the values: %s", err)
	}
	p := &composed{chart: loaded, top: top, opts: opts, known: known}
	if merged, ok := top["Values"].(common.Values); ok && !opts.WithoutSchema {
		if err := p.checkSchemas(loaded, merged); err != nil {
			return nil, err
		}
	}
	orderFiles(loaded, map[*common.File]bool{})
	return p, nil
}

func copyOf(values map[string]any) (map[string]any, error) {
	if values == nil {
		return map[string]any{}, nil
	}
	return deepCopy(values).(map[string]any), nil
}

// deepCopy returns a copy of a value of YAML, which shares no map and no list with it.
func deepCopy(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return copyMap(v)
	case common.Values:
		return common.Values(copyMap(v))
	case []any:
		if v == nil {
			return v
		}
		all := make([]any, len(v))
		for i := range v {
			all[i] = deepCopy(v[i])
		}
		return all
	}
	return value
}

func copyMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	all := make(map[string]any, len(m))
	for key, value := range m {
		all[key] = deepCopy(value)
	}
	return all
}

// sortDependencies undoes the order of a map, in which Helm's loader leaves them.
func sortDependencies(c *helm.Chart) {
	below := slices.Clone(c.Dependencies())
	slices.SortFunc(below, func(a, b *helm.Chart) int {
		return strings.Compare(a.Name()+" "+a.Metadata.Version, b.Name()+" "+b.Metadata.Version)
	})
	c.SetDependencies(below...)
	for _, b := range below {
		sortDependencies(b)
	}
}

func checkKubeVersion(wanted string, known *common.Capabilities) error {
	at := finding.Position{File: chartutil.ChartfileName}
	switch {
	case wanted == "":
	case known == nil:
		return &finding.Error{Position: at, Message: "the chart needs Kubernetes " + wanted + ", and the version of the clusters is not known", Hint: kubeVersionAdvice, Err: chart.ErrCapabilities}
	case !chartutil.IsCompatibleRange(wanted, known.KubeVersion.Version):
		return finding.Errorf("", at, "", "the chart needs Kubernetes %s, and the clusters have %s", wanted, known.KubeVersion.Version)
	}
	return nil
}

// checkDependencies looks for the charts that are enabled and not there.
func checkDependencies(c *helm.Chart) error {
	var missing []string
	for _, wanted := range c.Metadata.Dependencies {
		there := slices.ContainsFunc(c.Dependencies(), func(d *helm.Chart) bool { return d.Name() == wanted.Name })
		if !there {
			missing = append(missing, strings.TrimSpace(wanted.Name+" "+wanted.Version))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return finding.Errorf("", finding.Position{File: chartutil.ChartfileName}, `run "helm dependency build" and commit charts/, name a packaged chart, or disable them by their condition or tags`,
		"the chart depends on %s, not in its folder charts/", strings.Join(missing, ", "))
}

// maxTold bounds the places that one error names.
const maxTold = 5

// reproducible renders the chart, and again if it calls impure functions: what then differs depends on them.
func (p *composed) reproducible() (*chart.Result, error) {
	first, r, err := p.result(func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	first.Notes = p.lookups(r)
	if len(r.called) == 0 {
		return first, nil
	}
	second, _, err := p.result(func(string) bool { return true })
	together, differ := firstDifference(first, second)
	if err == nil && !differ {
		return first, nil
	}
	return nil, p.blame(together)
}

// lookups returns a note for each place that asks the cluster, for which the calls are marked.
func (p *composed) lookups(r *run) []finding.Finding {
	if len(r.looked) == 0 {
		return nil
	}
	if p.mark() {
		if _, marked, err := p.once(func(string) bool { return false }); err == nil {
			r = marked
		}
	}
	var notes []finding.Finding
	for _, place := range slices.Sorted(maps.Keys(r.looked)) {
		s := r.looked[place]
		notes = append(notes, finding.Finding{
			Position: finding.Position{File: inside(s.template), Line: s.line}, Code: finding.CodeLookup, Note: true,
			Message: "lookup asks the cluster, and finds nothing here, as with helm template", Hint: s.advice(prefixOf(s.template)),
		})
	}
	return notes
}

// mark marks the impure calls, and reports whether there are any that were not marked.
func (p *composed) mark() (marked bool) {
	if p.sites != nil {
		return false
	}
	p.sites = mark(p.chart, map[*common.File]bool{}, []*site{})
	return len(p.sites) > 0
}

// blame returns an error with the places whose values reach the output. Together is the file that differs because of all of
// them.
func (p *composed) blame(together string) error {
	p.mark()
	first, r, err := p.result(func(string) bool { return false })
	if err != nil {
		return err
	}
	var errs []error
	places := slices.Sorted(maps.Keys(r.called))
	for _, place := range places {
		other, _, err := p.result(func(at string) bool { return at == place })
		if file, differ := firstDifference(first, other); err == nil && differ {
			errs = append(errs, r.called[place].notReproducible(file))
		}
		if len(errs) == maxTold {
			break
		}
	}
	if len(errs) == 0 { // only all together have an effect
		for _, place := range places[:min(len(places), maxTold)] {
			errs = append(errs, r.called[place].notReproducible(together))
		}
	}
	return errors.Join(errs...)
}

// result renders once, and makes files and hooks of what the templates give. What a call asks of others is refused with its
// place, for which the calls are marked.
func (p *composed) result(varied func(place string) bool) (*chart.Result, *run, error) {
	rendered, r, err := p.once(varied)
	for err != nil && (errors.Is(r.err, chart.ErrNotReproducible) || errors.Is(r.err, chart.ErrCapabilities)) && p.withoutNotes(err) {
		rendered, r, err = p.once(varied)
	}
	if errors.Is(err, chart.ErrNotReproducible) && p.mark() {
		rendered, r, err = p.once(varied)
	}
	if err != nil {
		return nil, r, explain(err)
	}
	result, err := p.split(rendered, varied)
	return result, r, err
}

// firstDifference is the path of the first file or hook that two results differ in.
func firstDifference(a, b *chart.Result) (string, bool) {
	if b == nil {
		b = new(chart.Result)
	}
	for i, f := range a.Files {
		if i >= len(b.Files) || f.Path != b.Files[i].Path || !bytes.Equal(f.Data, b.Files[i].Data) {
			return f.Path, true
		}
	}
	for i, h := range a.Hooks {
		if i >= len(b.Hooks) || h.Path != b.Hooks[i].Path || !bytes.Equal(h.Data, b.Hooks[i].Data) {
			return h.Path, true
		}
	}
	switch {
	case len(b.Files) > len(a.Files):
		return b.Files[len(a.Files)].Path, true
	case len(b.Hooks) > len(a.Hooks):
		return b.Hooks[len(a.Hooks)].Path, true
	}
	return "", false
}

// split makes files and hooks of what the templates gave.
func (p *composed) split(rendered map[string]string, varied func(place string) bool) (*chart.Result, error) {
	result := &chart.Result{}
	charts := map[string]*helm.Chart{}
	byPath(p.chart, charts)
	size := 0
	if !p.opts.WithoutCRDs {
		crds := p.chart.CRDObjects()
		slices.SortFunc(crds, func(a, b helm.CRD) int { return strings.Compare(a.Filename, b.Filename) })
		for _, crd := range crds {
			of := ownerOf(crd.Filename, charts)
			size += len(crd.File.Data)
			result.Files = append(result.Files, chart.File{Path: inside(crd.Filename), Data: crd.File.Data, Chart: of.Name(), Version: of.Metadata.Version})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if len(rendered[name]) > p.opts.MaxBytes {
			return nil, fmt.Errorf("%w: the template %s gives more than %d bytes", chart.ErrTooLarge, inside(name), p.opts.MaxBytes)
		}
		of := ownerOf(name, charts)
		var kept []string
		for _, text := range documents(rendered[name]) {
			hook, empty, err := hookOf(text, p.opts.KeysOnce)
			var twice *twiceError
			switch {
			case errors.As(err, &twice):
				return nil, p.refuseTwice(name, rendered[name], text, twice.key, varied)
			case err != nil:
				return nil, finding.Errorf("", finding.Position{File: inside(name)}, "", "the template does not give YAML: %s", err)
			case empty:
			case hook == nil:
				kept = append(kept, text)
			case !slices.ContainsFunc(hook.Events, isNoTest):
			default:
				hook.Path, hook.Chart, hook.Version = inside(name), of.Name(), of.Metadata.Version
				result.Hooks = append(result.Hooks, *hook)
			}
			size += len(text)
		}
		if len(kept) > 0 {
			result.Files = append(result.Files, chart.File{Path: inside(name), Data: []byte(strings.Join(kept, "---\n")), Chart: of.Name(), Version: of.Metadata.Version})
		}
	}
	if size > p.opts.MaxBytes {
		return nil, fmt.Errorf("%w: the chart gives more than %d bytes", chart.ErrTooLarge, p.opts.MaxBytes)
	}
	return result, nil
}

func byPath(c *helm.Chart, all map[string]*helm.Chart) {
	all[c.ChartFullPath()] = c
	for _, below := range c.Dependencies() {
		byPath(below, all)
	}
}

// ownerOf is the chart that has a template or file.
func ownerOf(name string, charts map[string]*helm.Chart) *helm.Chart {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if c, ok := charts[dir]; ok {
			return c
		}
	}
}

// separator is Helm's.
var separator = lazyregexp.New(`(?m)^---[ \t]*`)

// documents splits the output of a template. Each ends with a line break, and has no other space around it but what belongs
// to a block text at its end.
func documents(text string) []string {
	var all []string
	for _, document := range separator.Split(strings.TrimLeftFunc(text, unicode.IsSpace), -1) {
		document = strings.TrimLeftFunc(document, unicode.IsSpace)
		trimmed := strings.TrimSpace(document) + "\n"
		switch {
		case trimmed == "\n":
			continue
		case document != trimmed && document+"\n" != trimmed && !sameYAML(document, trimmed):
			trimmed = strings.TrimSuffix(document, "\n") + "\n"
		}
		all = append(all, trimmed)
	}
	return all
}

func sameYAML(a, b string) bool {
	var first, second any
	return yaml.Unmarshal([]byte(a), &first) != nil || yaml.Unmarshal([]byte(b), &second) == nil && reflect.DeepEqual(first, second)
}

// hookOf reads the part of an object that makes it a hook; nil if it is none. It may refuse a key that is there twice, with a
// [twiceError].
func hookOf(text string, keysOnce bool) (hook *chart.Hook, empty bool, err error) {
	var object any
	if keysOnce {
		err = yaml.UnmarshalStrict([]byte(text), &object)
	}
	if err != nil { // also where a key overrides a merged one
		if key := keyTwice(text); key != nil {
			return nil, false, &twiceError{key}
		}
	}
	if err != nil || !keysOnce {
		err = yaml.Unmarshal([]byte(text), &object)
	}
	if err != nil || object == nil {
		return nil, object == nil, err
	}
	head, ok := object.(map[string]any)
	if !ok {
		return nil, false, errors.New("a document is not a map, as Kubernetes' objects are")
	}
	metadata, _ := head["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	events, isHook := annotations["helm.sh/hook"]
	if !isHook {
		return nil, false, nil
	}
	hook = &chart.Hook{Weight: atoi(fmt.Sprint(annotations["helm.sh/hook-weight"])), Data: []byte(text)}
	hook.Kind, _ = head["kind"].(string)
	hook.Name, _ = metadata["name"].(string)
	for _, event := range strings.Split(fmt.Sprint(events), ",") {
		hook.Events = append(hook.Events, strings.ToLower(strings.TrimSpace(event)))
	}
	slices.Sort(hook.Events)
	return hook, false, nil
}

func isNoTest(event string) bool {
	return event != "test" && event != "test-success" && event != "test-failure"
}
