package chart

import (
	"errors"
	"path"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
)

// run is one rendering of all templates of a chart.
type run struct {
	// varied reports whether a place gets its other random values and times.
	varied func(place string) bool

	sites    []*site
	prepared map[*parse.Tree]bool
	called   map[string]*site // the impure places that were called, by place
	calls    map[string]int

	steps, depth, text, listed int
	left                       int // bytes of output
}

func newRun(maxBytes int, varied func(string) bool) *run {
	return &run{varied: varied, prepared: map[*parse.Tree]bool{}, called: map[string]*site{}, calls: map[string]int{}, left: maxBytes}
}

func (r *run) seed(s *site) byte {
	if r.varied(s.place) {
		return 1
	}
	return 0
}

// source is a template with its values and its base path.
type source struct {
	text     string
	values   chartutil.Values
	basePath string
}

// sources lists the templates of a chart and those below it, by Helm's names.
func sources(c *helm.Chart, values map[string]any) map[string]source {
	all := map[string]source{}
	collect(c, all, values)
	return all
}

// collect does what Helm's engine does before it renders: each chart gets its own part of the values.
func collect(c *helm.Chart, all map[string]source, above chartutil.Values) map[string]any {
	subcharts := map[string]any{}
	own := map[string]any{
		"Chart": struct {
			helm.Metadata
			IsRoot bool
		}{*c.Metadata, c.IsRoot()},
		"Files":        newFiles(c.Files),
		"Release":      above["Release"],
		"Capabilities": above["Capabilities"],
		"Values":       chartutil.Values{},
		"Subcharts":    subcharts,
	}
	if c.IsRoot() {
		own["Values"] = above["Values"]
	} else if table, err := above.Table("Values." + c.Name()); err == nil {
		own["Values"] = table
	}
	for _, below := range c.Dependencies() {
		subcharts[below.Name()] = collect(below, all, own)
	}
	for _, t := range c.Templates {
		if t == nil || strings.EqualFold(c.Metadata.Type, "library") && !strings.HasPrefix(path.Base(t.Name), "_") {
			continue
		}
		all[path.Join(c.ChartFullPath(), t.Name)] = source{string(t.Data), own, path.Join(c.ChartFullPath(), "templates")}
	}
	return own
}

// inOrder lists templates as Helm does: later definitions of a name win, and those of the chart itself come last.
func inOrder(all map[string]source) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if depth := strings.Count(b, "/") - strings.Count(a, "/"); depth != 0 {
			return depth
		}
		return strings.Compare(b, a)
	})
	return names
}

const notesFile = "NOTES.txt"

// render executes the templates, and returns their output by name. Notes are executed, because charts check their values
// there, and dropped.
func (r *run) render(all map[string]source) (rendered map[string]string, err error) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if err, ok = p.(error); !ok {
				err = refused("the templates cannot be read: %v", p)
			}
		}
	}()
	t := template.New("gotpl").Option("missingkey=zero")
	functions := pureFunctions()
	for name := range impureFunctions {
		functions[name] = func(...any) (string, error) { return "", errors.New("called in a way that is not known here") } // for the parser alone
	}
	r.boundedAll(functions)
	functions["include"], functions["tpl"] = r.bounded("include", r.include(t)), r.bounded("tpl", r.tpl(t))
	t.Funcs(functions)
	names := inOrder(all)
	for _, name := range names {
		if err := checkText(all[name].text); err != nil {
			return nil, err
		}
		if _, err := t.New(name).Parse(all[name].text); err != nil {
			return nil, err
		}
	}
	t.Funcs(template.FuncMap{
		tickFunction:    func() string { r.step(); return "" },
		enterFunction:   r.enter,
		leaveFunction:   func() string { r.depth--; return "" },
		measureFunction: r.measured,
	})
	r.prepare(t)
	rendered = make(map[string]string, len(names))
	for _, name := range names {
		if strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		values := all[name].values
		values["Template"] = chartutil.Values{"Name": name, "BasePath": all[name].basePath}
		out := &output{run: r}
		err := t.ExecuteTemplate(out, name, values)
		isNotes := strings.HasSuffix(name, notesFile)
		if isNotes && (errors.Is(err, ErrNotReproducible) || errors.Is(err, ErrCapabilities)) {
			r.depth, err = 0, nil
		}
		if err != nil {
			return nil, err
		}
		if !isNotes {
			rendered[name] = strings.ReplaceAll(out.String(), "<no value>", "")
		}
	}
	return rendered, nil
}

// measured checks a value that a template writes. It stays a reflect.Value, which can have methods that a copy has not.
func (r *run) measured(v reflect.Value) (reflect.Value, error) {
	r.step()
	m := measure{nodes: maxNodes, text: maxText, closed: true, formats: true}
	if v.Kind() == reflect.Pointer && !v.IsNil() && !hasText(v) {
		return v, m.value(v.Elem(), 0) // as text/template writes it
	}
	return v, m.value(v, 0)
}

func (r *run) enter() string {
	r.step()
	if r.depth++; r.depth > maxDepth {
		panic(tooSlow("templates include each other more than %d deep", maxDepth))
	}
	return ""
}

// checkText bounds the actions of a text before it is parsed, because the parser calls itself for each block.
func checkText(text string) error {
	if strings.Count(text, "{{") > maxActions {
		return tooLarge("a template has more than %d actions", maxActions)
	}
	return nil
}

func (r *run) include(t *template.Template) func(string, any) (string, error) {
	return func(name string, data any) (string, error) {
		out := &output{run: r}
		err := t.ExecuteTemplate(out, name, data)
		return out.String(), err
	}
}

func (r *run) tpl(parent *template.Template) func(string, any) (string, error) {
	return func(text string, values any) (string, error) {
		if len(text) > maxTpl {
			return "", tooLarge("a text for tpl has more than %d bytes", maxTpl)
		}
		if err := checkText(text); err != nil {
			return "", err
		}
		if !strings.Contains(text, "{{") {
			return strings.ReplaceAll(text, "<no value>", ""), nil // most values are no templates
		}
		t, err := parent.Clone()
		if err != nil {
			return "", err
		}
		t.Option("missingkey=zero") // which Clone forgets, as Helm's engine says
		t.Funcs(template.FuncMap{"include": r.bounded("include", r.include(t)), "tpl": r.bounded("tpl", r.tpl(t))})
		if t, err = t.New(parent.Name()).Parse(text); err != nil {
			return "", err
		}
		r.prepare(t)
		out := &output{run: r}
		if err := t.Execute(out, values); err != nil {
			return "", err
		}
		return strings.ReplaceAll(out.String(), "<no value>", ""), nil
	}
}

// output is what one template writes, within the bound of the whole.
type output struct {
	strings.Builder
	run *run
}

func (o *output) Write(p []byte) (int, error) {
	if o.Len()+len(p) > o.run.left {
		return 0, tooLarge("the chart gives more than %d bytes", o.run.left)
	}
	return o.Builder.Write(p)
}

func (o *output) WriteString(s string) (int, error) {
	if o.Len()+len(s) > o.run.left {
		return 0, tooLarge("the chart gives more than %d bytes", o.run.left)
	}
	return o.Builder.WriteString(s)
}
