package render

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"text/template"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// run is one rendering of all templates of a chart.
type run struct {
	// varied reports whether a place gets its other random values and times.
	varied func(place string) bool
	called map[string]*site // the impure places that were called, by place
	calls  map[string]int   // of each
	looked map[string]*site // the places that ask the cluster
	err    error            // the first error of a function of ours
}

func (r *run) seed(s *site) byte {
	if r.varied(s.place) {
		return 1
	}
	return 0
}

// fails keeps the first error of a function, and returns err. Helm's engine returns its errors as texts alone.
func (r *run) fails(err error) error {
	if r.err == nil {
		r.err = err
	}
	return err
}

func refused(format string, args ...any) error {
	return &finding.Error{Message: finding.Sentence(format, args...), Err: chart.ErrNotReproducible}
}

// once renders all templates, with the results of impure calls that varied chooses.
func (p *composed) once(varied func(place string) bool) (map[string]string, *run, error) {
	r := &run{varied: varied, called: map[string]*site{}, looked: map[string]*site{}, calls: map[string]int{}}
	top := maps.Clone(p.top)
	for _, part := range []string{"Release", "Values"} { // templates can change them
		top[part] = deepCopy(p.top[part])
	}
	if p.known != nil {
		top["Capabilities"] = knownCapabilities{p.known}
	} else {
		top["Capabilities"] = unknownCapabilities{common.DefaultCapabilities.HelmVersion, r}
	}
	rendered, err := engine.Engine{CustomTemplateFuncs: r.functions(p.sites)}.RenderWithContext(context.Background(), p.chart, top) // the process bounds it
	if r.err != nil {
		err = located(r.err, err)
	}
	for name := range rendered {
		if strings.HasSuffix(name, notesFile) {
			delete(rendered, name)
		}
	}
	return rendered, r, err
}

const notesFile = "NOTES.txt"

// withoutNotes removes the notes that a rendering has failed at, if they need what is not known here: they are executed for
// the checks of values that charts have in them.
func (p *composed) withoutNotes(err error) bool {
	at := firstLocation.FindStringSubmatch(err.Error())
	return at != nil && strings.HasSuffix(at[1], notesFile) && dropTemplate(p.chart, at[1])
}

func dropTemplate(c *helm.Chart, name string) (found bool) {
	var kept []*common.File
	for _, t := range c.Templates {
		if c.ChartFullPath()+"/"+t.Name == name {
			found = true
			continue
		}
		kept = append(kept, t)
	}
	c.Templates = kept
	for _, below := range c.Dependencies() {
		found = dropTemplate(below, name) || found
	}
	return found
}

// functions are those that take the place of Helm's, and of marked calls.
func (r *run) functions(sites []*site) template.FuncMap {
	all := template.FuncMap{
		"keys": keys, "values": values,
		"toDate":          func(layout, text string) time.Time { t, _ := time.Parse(layout, text); return t },
		"mustToDate":      time.Parse,
		"buildCustomCert": buildCustomCert,
		"required": func(message string, value any) (any, error) {
			if text, ok := value.(string); value == nil || ok && text == "" {
				return value, r.fails(chartError(message))
			}
			return value, nil
		},
		"fail": func(message string) (string, error) { return "", r.fails(chartError(message)) },
		"printf": func(format string, args ...any) (string, error) {
			if formatPointer.MatchString(format) {
				return "", r.fails(refused("the text would have an address in memory, which is another one each time; write the fields one by one"))
			}
			return fmt.Sprintf(format, args...), nil
		},
		filesFunction: func(of map[string]any) string {
			of["Files"] = newFiles(of["Files"])
			return ""
		},
	}
	for name, impure := range impureFunctions {
		all[name] = impure(r, &site{function: name, place: name})
	}
	for i, s := range sites {
		all[siteName(i)] = impureFunctions[s.function](r, s)
	}
	return all
}

var formatPointer = lazyregexp.New(`%[-+# 0-9.*\[\]]*p`)
