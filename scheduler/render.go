package scheduler

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/scheduler/check"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/template"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// Options steers Render. The zero value is ready for use.
type Options struct {
	// BaseCommit, if not empty, overrides the commit of the BaseRepo named "main".
	BaseCommit string
	// Parallel is the number of cluster types that are rendered at once. Zero means GOMAXPROCS.
	Parallel int
	// Decision, if not nil, replaces the platform's scheduling policies.
	Decision *Decision
	// Incomplete is true if an app team's source could not be read. Then a deployment target that Decision names
	// and no source has is a Failure, and not an error.
	Incomplete bool
	// Cache, if not nil, holds earlier renderings. Then only assignments whose input has changed are rendered; the
	// result is the same.
	Cache Cache
	// RefuseMissing makes an assignment fail if its templates print a key that does not exist. Otherwise the key is
	// printed as "<no value>", as Kalypso does, with a warning.
	RefuseMissing bool
	// LastRelease, if not nil, returns the assignments of the last verified release of a cluster type, none if there is
	// no release. Render calls it, from several goroutines, when several registrations want one name. Its error ends
	// Render.
	LastRelease func(ctx context.Context, clusterType string) ([]Released, error)
	// Each, if not nil, is called with each cluster type once it is rendered, from several goroutines and in no order.
	// It may take the Files out of the assignments, to free their memory. Its error ends Render.
	Each func(*ClusterTypeResult) error
}

// Render decides and renders every assignment of the environment. A mistake in one assignment is a [Failure] in the result
// and does not stop the others. Render returns an error if the list of assignments cannot be determined, such as for an
// invalid selector, and if ctx has ended.
func (m *Model) Render(ctx context.Context, opts Options) (*Result, error) {
	if err := m.checkEnvironment(); err != nil {
		return nil, err
	}
	rings, err := m.Rings()
	if err != nil {
		return nil, err
	}
	r, err := newRenderer(m, opts)
	if err != nil {
		return nil, err
	}
	if opts.Cache != nil {
		r.cache, r.ids = opts.Cache, newIdentities(r)
	}
	r.refuseMissing = opts.RefuseMissing
	types := sortedValues(m.objects.ClusterTypes)
	missing := make([]missingFindings, len(types))
	result := &Result{
		Environment:    m.environment,
		Platform:       m.platform,
		Rings:          rings,
		Accounts:       r.accounts,
		Checks:         r.checks,
		MaxRemoved:     m.maxRemoved,
		FailedPolicies: m.FailedPolicies(),
		BaseCommit:     cmp.Or(opts.BaseCommit, m.baseRepos["main"].Commit),
		ClusterTypes:   make([]ClusterTypeResult, len(types)),
		Workloads:      m.workloads(),
		Warnings:       sortedFindings(m.findings, r.findings),
	}
	if opts.Decision == nil {
		result.Declared = m.declared()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, cmp.Or(opts.Parallel, runtime.GOMAXPROCS(0))))
	for _, i := range r.order(types) {
		group.Go(func() error {
			var err error
			if result.ClusterTypes[i], missing[i], err = r.clusterType(ctx, i, types[i]); err != nil {
				return err
			}
			r.addUnknown(&result.ClusterTypes[i])
			if opts.Each != nil && ctx.Err() == nil {
				return opts.Each(&result.ClusterTypes[i])
			}
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all missingFindings
	for _, of := range missing {
		all.merge(of)
	}
	result.Warnings = sortedFindings(result.Warnings, all.findings())
	return result, nil
}

func sortedFindings(lists ...[]finding.Finding) []finding.Finding {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b finding.Finding) int {
		return cmp.Or(a.Position.Compare(b.Position), strings.Compare(a.Message, b.Message))
	})
	return all
}

// renderer holds the data that all cluster types share during one Render.
type renderer struct {
	model    *Model
	accounts map[string]string // see Result.Accounts
	targets  []*target         // sorted by name
	policies []selectedPair
	findings []finding.Finding
	// lastRelease is Options.LastRelease.
	lastRelease func(ctx context.Context, clusterType string) ([]Released, error)
	unknown     map[string][]Failure // by cluster type: unknown targets of a decision

	composer      *composer
	layerMatcher  *matcher // of the composer's layers
	schemas       []schemaUse
	schemaMatcher *matcher
	validator     *validator

	refuseMissing bool       // see Options.RefuseMissing
	checks        *check.Set // of the environment
	siteSchemas   *siteSchemas

	cache Cache       // nil for none
	ids   *identities // nil without cache

	shield    *template.Shield // nil if no target needs one
	lib       *template.Library
	templates map[string]*template.Template
}

// selectedPair is the selection of a policy: each of its cluster types gets each of its targets.
type selectedPair struct {
	policy  string // empty if a decision gives no reason
	types   bitset
	targets bitset
	// The terms of its selectors; see DecidedBy.
	targetTerms, typeTerms []string
}

// CheckErrors returns the mistakes in PlatformChecks, which keep the platform from being rendered, each with its place.
func (m *Model) CheckErrors() error {
	_, err := check.Compile(sortedValues(m.objects.Checks), m.environment)
	return err
}

func newRenderer(m *Model, opts Options) (*renderer, error) {
	r := &renderer{model: m, accounts: m.accounts(), templates: map[string]*template.Template{}, validator: newValidator(), lastRelease: opts.LastRelease}
	var err error
	if r.checks, err = check.Compile(sortedValues(m.objects.Checks), m.environment); err != nil {
		return nil, err
	}
	index, err := r.list()
	if err != nil {
		return nil, err
	}
	if opts.Decision != nil {
		err = r.obey(opts.Decision, opts.Incomplete)
	} else {
		err = r.selectPairs(index)
	}
	if err != nil {
		return nil, err
	}

	r.composer = newComposer(layersOf(m.objects.ConfigMaps))
	r.layerMatcher = newMatcher(r.composer.conditions(), r.targets, index)
	var conditions [][]kinds.Condition
	for _, s := range sortedValues(m.objects.Schemas) {
		r.schemas = append(r.schemas, schemaUse{owner: fmt.Sprintf("ConfigSchema %q", s.Metadata.Name), at: s.Position(s.Spec.Schema.Line), text: s.Spec.Schema.Value})
		conditions = append(conditions, kinds.ConditionsOf(s.Metadata.Labels))
	}
	r.schemaMatcher = newMatcher(conditions, r.targets, index)

	if slices.ContainsFunc(r.targets, hasBraces) {
		r.shield = template.NewShield(m.texts())
	}
	r.lib = template.NewLibrary(r.composer.writer.Marshal, r.shield)
	for name, t := range m.objects.Templates {
		r.templates[name] = r.lib.Compile(sourceOf(t))
	}
	r.siteSchemas = newSiteSchemas(m.objects.SiteValues)
	r.check()
	return r, nil
}

// list lists the environment's targets and indexes their labels.
func (r *renderer) list() (*labelIndex, error) {
	var err error
	r.targets, err = r.model.targets()
	labels := make([]map[string]string, len(r.targets))
	for i, t := range r.targets {
		labels[i] = t.Labels
	}
	return newLabelIndex(labels), err
}

// order sorts the types so that those to which the same layers can apply follow one another: their
// assignments share configurations.
func (r *renderer) order(types []*kinds.ClusterType) []int {
	order, alike := make([]int, len(types)), make([]string, len(types))
	for i, ct := range types {
		var key []byte
		for _, c := range r.layerMatcher.forType(ct) {
			key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(c.member)), uint64(len(c.rest)))
		}
		order[i], alike[i] = i, string(key)
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(alike[a], alike[b]) })
	return order
}

// selectPairs applies every policy.
func (r *renderer) selectPairs(targets *labelIndex) error {
	all := sortedValues(r.model.objects.ClusterTypes)
	var typeLabels []map[string]string
	for _, ct := range all {
		typeLabels = append(typeLabels, ct.Metadata.Labels)
	}
	types := newLabelIndex(typeLabels)
	paths, err := newPathIndex(all, r.model.pathLabels())
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range sortedValues(r.model.objects.Policies) {
		if len(p.Mistakes) > 0 {
			continue
		}
		byTarget, targetErr := requirements(&p.Spec.DeploymentTargetSelector.LabelSelector, &p.Common)
		byType, typeErr := requirements(&p.Spec.ClusterTypeSelector.LabelSelector, &p.Common)
		if err := errors.Join(targetErr, typeErr); err != nil {
			errs = append(errs, err)
			continue
		}
		selected := selectedPair{
			policy: p.Metadata.Name, types: types.selectBy(byType), targets: targets.selectBy(byTarget),
			targetTerms: terms(byTarget), typeTerms: terms(byType),
		}
		if w := p.Spec.DeploymentTargetSelector.Workspace; w != "" {
			selected.targets.intersect(targets.withAny("workspace", []string{w}))
			selected.targetTerms = append([]string{"workspace=" + w}, selected.targetTerms...)
		}
		const selectsNo = "SchedulingPolicy %q selects no %s in environment %q"
		if p.Under != (kinds.Under{}) {
			selected.types.intersect(paths.under(p.Under))
			selected.typeTerms = append([]string{p.Under.String()}, selected.typeTerms...)
		}
		if p.Under != (kinds.Under{}) && paths.under(p.Under).empty() {
			r.findings = append(r.findings, r.nobodyUnder(p, paths))
		} else if selected.types.empty() {
			r.findings = append(r.findings, finding.New(finding.CodeNoClusterType, p.At, "", selectsNo, p.Metadata.Name, "cluster type", r.model.environment))
		}
		if selected.targets.empty() { // which an app team may be about to bring
			r.findings = append(r.findings, finding.New(finding.CodeNoTarget, p.At, "", selectsNo, p.Metadata.Name, "deployment target", r.model.environment))
		}
		r.policies = append(r.policies, selected)
	}
	return finding.Join(errs)
}

// nobodyUnder returns the finding about a policy for a place where no cluster type is.
func (r *renderer) nobodyUnder(p *kinds.SchedulingPolicy, paths *pathIndex) finding.Finding {
	known := paths.places(p.Under.Key)
	hint := finding.DidYouMean(p.Under.Path, known)
	switch {
	case len(known) == 0:
		hint = fmt.Sprintf("no ClusterType has a label %s", p.Under.Key)
	case hint == "" && len(known) <= maxSuggestions:
		hint = "known: " + strings.Join(known, ", ")
	}
	at := p.Position(p.Metadata.Annotations[kinds.UnderAnnotation].Line)
	return finding.New(finding.CodeNobodyUnder, at, hint, "SchedulingPolicy %q: no ClusterType of environment %q has a %s under %s",
		p.Metadata.Name, r.model.environment, p.Under.Key, p.Under.Path)
}

// pathLabels names the labels of cluster types that policies read as paths.
func (m *Model) pathLabels() map[string]bool {
	keys := map[string]bool{}
	for _, p := range m.objects.Policies {
		if p.Under != (kinds.Under{}) {
			keys[p.Under.Key] = true
		}
	}
	return keys
}

// check adds the findings about the objects, whether or not they are used.
func (r *renderer) check() {
	for _, ct := range r.model.objects.ClusterTypes {
		r.findings = append(r.findings, checkAnnotations(&ct.Common, kinds.ClusterTypeAnnotations, nil)...)
	}
	for _, t := range r.model.objects.Templates {
		r.findings = append(r.findings, checkAnnotations(&t.Common, kinds.TemplateAnnotations, nil)...)
		r.findings = append(r.findings, checkMissingKeys(t)...)
	}
	for _, w := range r.model.objects.Workloads {
		r.findings = append(r.findings, checkAnnotations(&w.Common, kinds.WorkloadAnnotations, w.TargetNames())...)
		r.findings = append(r.findings, checkEnvironments(w, r.model.environment)...)
	}
}

// sourceOf returns the Template as a source for package template.
func sourceOf(t *kinds.Template) template.Source {
	src := template.Source{Name: t.Metadata.Name, PermitsMissing: permitsMissing(t)}
	for _, m := range t.Spec.Manifests {
		if m.Object != nil {
			src.Manifests = append(src.Manifests, template.Manifest{Object: m.Object, At: t.Position(kinds.Line(m.Object.Line))})
		} else {
			src.Manifests = append(src.Manifests, template.Manifest{Text: m.Text.Value, At: t.Position(m.Text.First)})
		}
	}
	return src
}

// texts lists all text of the platform that a rendered document may contain.
func (m *Model) texts() []string {
	var all []string
	for _, cm := range m.objects.ConfigMaps {
		for key, value := range cm.Data {
			all = append(all, key, value.Value)
		}
	}
	for _, t := range m.objects.Templates {
		for _, manifest := range t.Spec.Manifests {
			if manifest.Object != nil {
				all = append(all, yamlvalue.Marshal(manifest.Object))
			}
			all = append(all, manifest.Text.Value)
		}
	}
	for _, w := range m.workspaces {
		all = append(all, w.texts()...)
	}
	return all
}

// selecting returns the policies that select the i-th cluster type, and the targets that they select for it.
func (r *renderer) selecting(i int) (policies []selectedPair, targets bitset) {
	targets = newBitset(len(r.targets))
	for _, p := range r.policies {
		if p.types.has(i) {
			policies = append(policies, p)
			targets.union(p.targets)
		}
	}
	return policies, targets
}

// clusterType decides and renders the assignments of the i-th cluster type.
func (r *renderer) clusterType(ctx context.Context, i int, ct *kinds.ClusterType) (ClusterTypeResult, missingFindings, error) {
	result := ClusterTypeResult{Name: ct.Metadata.Name, Labels: ct.Metadata.Labels, Annotations: ownAnnotations(&ct.Common), Sites: r.sites(ct)}
	policies, selected := r.selecting(i)
	if selected.empty() {
		return result, nil, nil
	}
	names := r.share(ctx, ct, selected)
	a, use := newAssigner(r, ct), newUsage(r.model)
	result.Assignments = make([]Assignment, 0, selected.count())
	for t := range selected.all {
		if ctx.Err() != nil {
			break
		}
		target := r.targets[t]
		if err := names.lost[t]; err != nil {
			result.addClash(target, err, names.taken.has(t))
			continue
		}
		var assignment *Assignment
		err := use.exceeded(target.Workload.Registration)
		if err == nil {
			assignment, err = a.assign(ctx, t)
		}
		if err != nil {
			result.Failures = append(result.Failures, newFailure(target.Name, ct.Metadata.Name, err))
			continue
		}
		assignment.Manifests = target.Spec.Manifests
		assignment.Registration = target.Workload.Registration // rendering does not depend on it
		assignment.ServiceAccount = accountIn(r.accounts, target.Workspace, assignment.Namespace)
		for _, p := range policies {
			if p.targets.has(t) && p.policy != "" {
				assignment.Policies = append(assignment.Policies, p.policy)
			}
		}
		use.addFiles(assignment)
		result.Assignments = append(result.Assignments, *assignment)
	}
	if a.kept != nil && ctx.Err() == nil { // otherwise the cache would lose the assignments that were not reached
		a.kept.Close()
	}
	selected.subtract(names.taken)
	r.annotate(ct, selected, names.released, &result)
	use.enforce(&result)
	return result, a.missing, names.released.err
}

// addClash adds the failure of a target that does not get its name: one for a name that no target gets, and one for
// each registration if another target has the name.
func (r *ClusterTypeResult) addClash(t *target, err error, taken bool) {
	f := newFailure(t.Name, r.Name, because(NameClash, err))
	f.Registration, f.Taken = t.Workload.Registration, taken
	for _, known := range slices.Backward(r.Failures) {
		if known.Name != f.Name {
			break
		}
		if known.Taken == f.Taken && (!taken || known.Registration == f.Registration) {
			return
		}
	}
	r.Failures = append(r.Failures, f)
}
