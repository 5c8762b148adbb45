// Package findings collects the mistakes of a platform: in its environments, in their rendered files, and in the
// artifacts that they need. Begin with Collect.
package findings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/embed"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

// Finding is a finding of one environment, or the same of several. Its JSON form is an interface.
type Finding struct {
	Code         string   `json:"code"`
	Severity     string   `json:"severity"`
	File         string   `json:"file,omitempty"`
	Line         int      `json:"line,omitempty"`
	Column       int      `json:"column,omitempty"`
	Message      string   `json:"message"`
	Hint         string   `json:"hint,omitempty"`
	Environments []string `json:"environments"`
}

// Result holds the findings by place. Its JSON form is an interface.
type Result struct {
	platform     string    // may hold credentials
	Environments []string  `json:"environments"`
	Findings     []Finding `json:"findings"`
	Errors       int       `json:"errors"`
	Warnings     int       `json:"warnings"`
	Notes        int       `json:"notes"`
	// Incomplete is true if objects could not be read, so that references to them were not checked.
	Incomplete bool `json:"incomplete"`
}

// Options are the options of Collect.
type Options struct {
	Ignore []string // codes to leave out, in upper case
	// Cache, if not nil, has the output and the findings of earlier runs.
	Cache scheduler.Cache
	// AfterLoad is called with each environment that can be read; may be nil.
	AfterLoad func(*platform.Loaded)
	// OCI configures the access to registries with manifests and charts that are embedded.
	OCI oci.Options
}

// Collect checks the environments of one platform that from names, or all of its environments if its only source names none.
// The platform's mistakes are in the result; an error means that a source cannot be read, as with platform.Load.
func Collect(ctx context.Context, from []platform.Source, opts Options) (*Result, error) {
	environments, all := from, false
	if len(from) == 1 && from[0].Environment == "" {
		found, err := platform.Environments(ctx, from[0])
		if err == nil {
			environments, all = found, true
		} else if !errors.Is(err, platform.ErrNoEnvironments) { // without Environment objects, it is inferred
			return nil, err
		}
	}
	c := &collector{
		cache: opts.Cache, afterLoad: opts.AfterLoad, oci: opts.OCI, result: &Result{platform: from[0].Platform, Environments: []string{}, Findings: []Finding{}},
		known: map[string]int{}, unused: map[string]int{},
	}
	read := 0
	var failed error
	for _, e := range environments {
		err := c.environment(ctx, e)
		var source *platform.SourceError
		switch {
		case err == nil:
			read++
		case !errors.As(err, &source) || len(environments) == 1:
			return nil, err
		default: // such as a branch that was not fetched: the others are looked at all the same
			failed = cmp.Or(failed, err)
			c.unreadEnvironment(e, source)
		}
	}
	if read == 0 && failed != nil {
		return nil, failed
	}
	if all {
		c.promotions()
	}
	if all && len(environments) > 1 {
		c.unusedIn(len(environments))
	}
	return c.finish(opts.Ignore), nil
}

// promotions adds what the gates of environments have wrong about the others. All environments were looked at.
func (c *collector) promotions() {
	for _, p := range c.promotion {
		var below *lint.Promotion
		for i := range c.promotion {
			if c.promotion[i].Environment == p.Below() {
				below = &c.promotion[i]
			}
		}
		c.add(p.Environment, p.AcrossEnvironments(c.result.Environments, below))
	}
}

// collector combines the findings of several environments.
type collector struct {
	cache     scheduler.Cache
	afterLoad func(*platform.Loaded)
	oci       oci.Options
	result    *Result
	promotion []lint.Promotion // of each environment that can be read
	known     map[string]int   // index in result.Findings, by the finding
	unused    map[string]int   // number of environments that do not use an object of a base
	bases     []finding.Finding
}

func (c *collector) environment(ctx context.Context, o platform.Source) error {
	loaded, err := platform.Load(ctx, o)
	if err == nil {
		o.Environment = loaded.Model.EnvironmentName()
		if c.afterLoad != nil {
			c.afterLoad(loaded)
		}
	}
	if o.Environment != "" {
		c.result.Environments = append(c.result.Environments, o.Environment)
	}
	if err != nil {
		found := finding.In(err)
		if len(found) == 0 {
			return err
		}
		c.result.Incomplete = true
		c.add(o.Environment, found)
		return nil
	}
	needs := artifacts.Linter{Finder: artifacts.Finder{Cache: c.cache, Scope: o.Environment}}
	report, err := lint.Run(ctx, loaded.Model, lint.Options{Cache: c.cache, Each: needs.Take, Complete: func(ctx context.Context, result *scheduler.Result) error {
		resolver := sources.NewResolver(sources.Options{Timeout: o.Timeout, Mirrors: o.Mirrors, OCI: c.oci, Access: loaded.Access})
		defer func() { _ = resolver.Close() }() // removes temporary files only
		return platform.Embed(ctx, o, loaded, result, nil, embed.Options{Resolver: resolver, Cache: c.cache, KeepTags: true}, func() error { return nil })
	}})
	if err != nil {
		return err
	}
	c.promotion = append(c.promotion, lint.PromotionOf(loaded.Model))
	found := slices.Concat(loaded.Warnings, report.Findings, needs.Findings(report))
	c.add(o.Environment, c.unread(loaded, found))
	for _, f := range report.Unused {
		key := f.Code + " " + f.Position.String()
		if c.unused[key]++; c.unused[key] == 1 {
			c.bases = append(c.bases, f)
		}
	}
	return nil
}

// unreadEnvironment adds the error of an environment that cannot be read.
func (c *collector) unreadEnvironment(e platform.Source, err *platform.SourceError) {
	c.result.Incomplete = true
	f := finding.Finding{Code: finding.CodeUnreadSource, Position: err.At, Message: fmt.Sprintf("environment %q: %s", e.Environment, unplaced(err))}
	if errors.Is(err, fs.ErrNotExist) {
		f.Hint = "make this folder, or correct the path in the Environment object"
	} else if !err.Unreachable {
		f.Hint = `fetch the branch with "git fetch", or correct the Environment object`
	}
	c.add(e.Environment, []finding.Finding{f})
}

// unread replaces the findings that follow from an unreadable source of an app team by the errors of that source.
func (c *collector) unread(loaded *platform.Loaded, found []finding.Finding) []finding.Finding {
	for _, u := range loaded.Unread {
		c.result.Incomplete = true
		mistakes := finding.In(u.Err)
		for _, r := range loaded.Model.Registrations() {
			if r.Name != u.Registration {
				continue
			}
			found = slices.DeleteFunc(found, func(f finding.Finding) bool {
				return f.Code == finding.CodeEmptyRegistration && f.Position == r.Position
			})
			if len(mistakes) == 0 {
				mistakes = []finding.Finding{{Code: finding.CodeUnreadSource, Position: r.Position, Message: unplaced(u.Err)}}
			}
		}
		found = append(found, mistakes...)
	}
	return found
}

// unplaced returns the text of err without the position, which a finding has anyway.
func unplaced(err error) string {
	var source *platform.SourceError
	if errors.As(err, &source) {
		there := *source
		there.At = finding.Position{}
		return there.Error()
	}
	return err.Error()
}

// add adds findings of an environment, empty where it is not known yet.
func (c *collector) add(environment string, found []finding.Finding) {
	for _, f := range found {
		key := strings.Join([]string{f.Code, f.Position.String(), f.Message}, "\n")
		i, ok := c.known[key]
		if !ok {
			i = len(c.result.Findings)
			c.known[key] = i
			c.result.Findings = append(c.result.Findings, Finding{
				Code: f.Code, Severity: f.Severity(), File: f.File, Line: f.Line, Column: f.Column, Message: f.Message, Hint: f.Hint, Environments: []string{},
			})
		}
		of := &c.result.Findings[i].Environments
		if environment != "" && !slices.Contains(*of, environment) {
			*of = append(*of, environment)
		}
	}
}

// unusedIn adds the objects of a base that none of all the environments uses.
func (c *collector) unusedIn(environments int) {
	for _, f := range c.bases {
		if c.unused[f.Code+" "+f.Position.String()] == environments {
			for _, e := range c.result.Environments {
				c.add(e, []finding.Finding{f})
			}
		}
	}
}

// finish removes ignored findings, sorts and counts.
func (c *collector) finish(ignore []string) *Result {
	r := c.result
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return slices.Contains(ignore, f.Code) })
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	for _, f := range r.Findings {
		switch f.Severity {
		case finding.SeverityError:
			r.Errors++
		case finding.SeverityWarning:
			r.Warnings++
		default:
			r.Notes++
		}
	}
	return r
}
