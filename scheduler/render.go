package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options steers Render. The zero value is ready for use.
type Options struct {
	// BaseCommit, if not empty, is the base commit, whatever the BaseRepo called "main" says.
	BaseCommit string
	// Parallel is the number of cluster types that are rendered at once. Zero means as many as Go may
	// use cores.
	Parallel int
}

// Render decides and renders every assignment of the environment. What is wrong with one assignment is
// a [Failure] in the result and does not stop the others. The error is for what leaves unknown which
// assignments there are, such as a selector that says nothing, and for a ctx that has ended.
func (m *Model) Render(ctx context.Context, opts Options) (*Result, error) {
	if problems := validation.IsDNS1123Subdomain(m.environment); len(problems) > 0 {
		return nil, mistake(Position{}, "", "there can be no environment %q: %s", m.environment, problems[0])
	}
	r, err := newRenderer(m)
	if err != nil {
		return nil, err
	}
	types := sortedValues(m.clusterTypes)
	result := &Result{
		Environment:  m.environment,
		Platform:     m.platform,
		BaseCommit:   m.baseRepos["main"].Commit,
		ClusterTypes: make([]ClusterTypeResult, len(types)),
		Warnings:     append(slices.Clone(m.findings), r.findings...),
	}
	if opts.BaseCommit != "" {
		result.BaseCommit = opts.BaseCommit
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, opts.Parallel))
	if opts.Parallel == 0 {
		group.SetLimit(runtime.GOMAXPROCS(0))
	}
	for i, ct := range types {
		group.Go(func() error {
			result.ClusterTypes[i] = r.clusterType(ctx, i, ct)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(result.Warnings, func(a, b Finding) int {
		if c := comparePositions(a.Position, b.Position); c != 0 {
			return c
		}
		return strings.Compare(a.Message, b.Message)
	})
	return result, nil
}

// renderer holds what all cluster types share while one Render lasts.
type renderer struct {
	model       *Model
	targets     []*target // sorted by name
	policies    []selectedPair
	shield      *shield // nil where no target needs one
	library     *library
	templates   map[string]*compiledTemplate
	composer    *composer
	layers      *matcher
	schemas     []*configSchema
	schemaMatch *matcher
	validator   *validator
	findings    []Finding
}

// selectedPair is what a policy selects: each of its cluster types gets each of its targets.
type selectedPair struct {
	policy  string
	types   bitset
	targets bitset
}

func newRenderer(m *Model) (*renderer, error) {
	r := &renderer{model: m, templates: map[string]*compiledTemplate{}, validator: newValidator()}
	var err error
	if r.targets, err = m.targets(); err != nil {
		return nil, err
	}
	targetLabels := make([]map[string]string, len(r.targets))
	for i, t := range r.targets {
		targetLabels[i] = t.labels
	}
	index := newLabelIndex(targetLabels)
	if err := r.selectPairs(index); err != nil {
		return nil, err
	}

	r.composer = newComposer(layersOf(m.configMaps))
	r.layers = newMatcher(r.composer.conditions(), r.targets, index)
	r.schemas = sortedValues(m.schemas)
	conditions := make([][]condition, len(r.schemas))
	for i, s := range r.schemas {
		conditions[i] = conditionsOf(s.Metadata.Labels)
	}
	r.schemaMatch = newMatcher(conditions, r.targets, index)

	r.library = &library{functions: functions()}
	r.library.functions["toYaml"] = r.composer.toYAML
	if slices.ContainsFunc(r.targets, (*target).hasBraces) {
		r.shield = newShield(m.texts())
		r.library.shielded = r.shield.functions(r.library.functions)
	}
	for name, t := range m.templates {
		r.templates[name] = r.library.compile(t)
	}
	r.check()
	return r, nil
}

// selectPairs asks every policy what it selects.
func (r *renderer) selectPairs(targets *labelIndex) error {
	var typeLabels []map[string]string
	for _, ct := range sortedValues(r.model.clusterTypes) {
		typeLabels = append(typeLabels, ct.Metadata.Labels)
	}
	types := newLabelIndex(typeLabels)
	var errs []error
	for _, p := range sortedValues(r.model.policies) {
		byTarget, targetErr := p.Spec.DeploymentTargetSelector.LabelSelector.requirements(&p.object)
		byType, typeErr := p.Spec.ClusterTypeSelector.LabelSelector.requirements(&p.object)
		if err := errors.Join(targetErr, typeErr); err != nil {
			errs = append(errs, err)
			continue
		}
		selected := selectedPair{policy: p.Metadata.Name, types: types.selectBy(byType), targets: targets.selectBy(byTarget)}
		if w := p.Spec.DeploymentTargetSelector.Workspace; w != "" {
			selected.targets.intersect(targets.withAny("workspace", []string{w}))
		}
		for what, set := range map[string]bitset{"cluster type": selected.types, "deployment target": selected.targets} {
			if set.empty() {
				r.findings = append(r.findings, Finding{
					Position: p.at, Note: true,
					Message: fmt.Sprintf("SchedulingPolicy %q selects no %s in environment %q", p.Metadata.Name, what, r.model.environment),
				})
			}
		}
		r.policies = append(r.policies, selected)
	}
	return joinMistakes(errs)
}

// check adds what is odd about the objects, whether or not it is used.
func (r *renderer) check() {
	for _, ct := range r.model.clusterTypes {
		r.findings = append(r.findings, checkAnnotations(&ct.object, clusterTypeAnnotations)...)
	}
	for _, w := range r.model.workloads {
		r.findings = append(r.findings, checkAnnotations(&w.object, workloadAnnotations)...)
		for i := range w.Spec.DeploymentTargets {
			if t := &w.Spec.DeploymentTargets[i]; t.Environment != r.model.environment && strings.EqualFold(t.Environment, r.model.environment) {
				r.findings = append(r.findings, Finding{
					Position: w.position(t.Line),
					Message:  fmt.Sprintf("target %q is for environment %q, which is not %q", t.Name, t.Environment, r.model.environment),
					Hint:     "names of environments are compared to the letter",
				})
			}
		}
	}
}

// texts lists all text of the platform's that could come to be in a rendered document.
func (m *Model) texts() []string {
	var all []string
	for _, cm := range m.configMaps {
		for key, value := range cm.Data {
			all = append(all, key, value.Value)
		}
	}
	for _, t := range m.templates {
		for _, m := range t.Spec.Manifests {
			if m.object != nil {
				all = append(all, toYAML(m.object))
			}
			all = append(all, m.text.Value)
		}
	}
	return all
}

// clusterType decides and renders the assignments of the i-th cluster type.
func (r *renderer) clusterType(ctx context.Context, i int, ct *clusterType) ClusterTypeResult {
	result := ClusterTypeResult{Name: ct.Metadata.Name, Annotations: ownAnnotations(&ct.object)}
	selected := newBitset(len(r.targets))
	var policies []selectedPair
	for _, p := range r.policies {
		if p.types.has(i) {
			policies = append(policies, p)
			selected.union(p.targets)
		}
	}
	if selected.empty() {
		return result
	}
	a := newAssigner(r, ct)
	for t := range selected.all {
		if ctx.Err() != nil {
			break
		}
		target := r.targets[t]
		assignment, err := a.assign(ctx, t)
		if err != nil {
			if n := len(result.Failures); n == 0 || result.Failures[n-1].Name != target.name { // names that clash fail once
				result.Failures = append(result.Failures, Failure{Name: target.name, ClusterType: ct.Metadata.Name, Err: err})
			}
			continue
		}
		for _, p := range policies {
			if p.targets.has(t) {
				assignment.Policies = append(assignment.Policies, p.policy)
			}
		}
		result.Assignments = append(result.Assignments, *assignment)
	}
	return result
}

// assigner renders the assignments of one cluster type.
type assigner struct {
	*renderer
	ct        *clusterType
	layers    []candidate
	schemas   []candidate
	evaluator *evaluator
	key       []byte
}

func newAssigner(r *renderer, ct *clusterType) *assigner {
	return &assigner{
		renderer: r, ct: ct,
		layers:    r.layers.forType(ct),
		schemas:   r.schemaMatch.forType(ct),
		evaluator: newEvaluator(r.library),
	}
}

// assign composes, checks and renders one assignment.
func (a *assigner) assign(ctx context.Context, i int) (*Assignment, error) {
	t := a.targets[i]
	if t.clash != nil {
		return nil, t.clash
	}
	in, err := a.input(i)
	if err != nil {
		return nil, err
	}
	if err := a.validator.validate(in.config, a.schemaUses(i)); err != nil {
		return nil, err
	}
	files, err := a.files(ctx, in)
	if err != nil {
		return nil, err
	}
	reconciler := files[len(files)-1].Data
	adapter, err := adapter(a.ct, t, reconciler)
	if err != nil {
		return nil, err
	}
	return &Assignment{
		Name:         t.name,
		ClusterType:  a.ct.Metadata.Name,
		Workspace:    t.workspace,
		Workload:     t.workload.Metadata.Name,
		Target:       t.spec.Name,
		Namespace:    in.Namespace,
		Config:       in.config.sources,
		ConfigDigest: in.config.digest,
		Adapter:      adapter,
		Files:        files,
	}, nil
}

// input gathers what the templates of an assignment see.
func (a *assigner) input(i int) (*input, error) {
	t := a.targets[i]
	a.key = appliesTo(a.key[:0], a.layers, i)
	in := &input{config: a.composer.config(a.key)}
	d := data{
		DeploymentTargetName: t.name,
		Namespace:            a.model.environment + "-" + a.ct.Metadata.Name + "-" + t.name,
		Environment:          a.model.environment,
		Workspace:            t.workspace,
		Workload:             t.workload.Metadata.Name,
		Labels:               t.labels,
		Manifests:            t.spec.Manifests,
		ClusterType:          a.ct.Metadata.Name,
		ConfigData:           in.config.data,
		Repo:                 t.spec.Manifests["repo"],
		Branch:               t.spec.Manifests["branch"],
		Path:                 t.spec.Manifests["path"],
	}
	if len(d.Namespace) > validation.DNS1123LabelMaxLength {
		return nil, mistake(t.at, "shorten one of the names", "namespace %q would have %d characters, %d are permitted: environment %q, cluster type %q at %s, %s",
			d.Namespace, len(d.Namespace), validation.DNS1123LabelMaxLength, d.Environment, d.ClusterType, a.ct.at, t)
	}
	if a.shield != nil && t.hasBraces() {
		d, in.shield = a.shield.cover(d), a.shield
	}
	in.data = &d
	return in, nil
}

// schemaUses lists the schemas that apply to an assignment: the platform's and the workload's.
func (a *assigner) schemaUses(i int) []schemaUse {
	var uses []schemaUse
	for _, s := range members(string(appliesTo(nil, a.schemas, i))) {
		schema := a.renderer.schemas[s]
		uses = append(uses, schemaUse{
			owner: fmt.Sprintf("ConfigSchema %q", schema.Metadata.Name), at: schema.position(schema.Spec.Schema.line), text: schema.Spec.Schema.Value,
		})
	}
	t := a.targets[i]
	for _, s := range t.schemas {
		uses = append(uses, schemaUse{
			owner: fmt.Sprintf("a schema of workload %q", t.workload.Metadata.Name), at: t.workload.position(s.line), text: s.Value,
		})
	}
	return uses
}

// files renders the three files of an assignment, sorted by path.
func (a *assigner) files(ctx context.Context, in *input) ([]File, error) {
	namespace, namespaceErr := a.file(ctx, "namespaceService", a.ct.Spec.NamespaceService, in)
	config, configErr := a.configFile(ctx, in)
	reconciler, reconcilerErr := a.file(ctx, "reconciler", a.ct.Spec.Reconciler, in)
	if err := errors.Join(namespaceErr, configErr, reconcilerErr); err != nil {
		return nil, err
	}
	if len(config.Data) > maxTextBytes { // only the built-in ones can be: their parts are bounded, not their sum
		return nil, fmt.Errorf("%s: %w", config.Path, errTooLong)
	}
	files := []File{{Path: "namespace.yaml", Data: namespace}}
	if len(config.Data) > 0 {
		files = append(files, config)
	}
	return append(files, File{Path: "reconciler.yaml", Data: reconciler}), nil
}

// configFile renders platform-config.yaml or .sh, by a Template or in one of the built-in ways.
func (a *assigner) configFile(ctx context.Context, in *input) (File, error) {
	const yamlFile, shellFile = platformConfig + ".yaml", platformConfig + ".sh"
	configType := a.ct.Spec.ConfigType
	if t, ok := a.templates[configType]; ok {
		file := File{Path: yamlFile}
		if t.Spec.ContentType == "sh" {
			file.Path = shellFile
		}
		var err error
		file.Data, err = a.evaluator.render(ctx, t, in)
		return file, err
	}
	switch configType {
	case "", configMapType:
		data, err := a.evaluator.configMapFile(ctx, in)
		return File{Path: yamlFile, Data: data}, err
	case envFileType:
		data, err := a.evaluator.envFile(ctx, in)
		return File{Path: shellFile, Data: data}, err
	default:
		return File{}, a.noTemplate("configType", configType, configMapType, envFileType)
	}
}

// file renders the Template that a field of the cluster type names.
func (a *assigner) file(ctx context.Context, field, template string, in *input) ([]byte, error) {
	t, ok := a.templates[template]
	if !ok {
		return nil, a.noTemplate(field, template)
	}
	return a.evaluator.render(ctx, t, in)
}

func (a *assigner) noTemplate(field, template string, others ...string) error {
	if template == "" {
		return mistake(a.ct.at, "it must name a Template", "cluster type %q has no spec.%s", a.ct.Metadata.Name, field)
	}
	names := append(slices.Collect(maps.Keys(a.templates)), others...)
	slices.Sort(names)
	return mistake(a.ct.at, didYouMean(template, names), "cluster type %q: spec.%s names template %q, which does not exist", a.ct.Metadata.Name, field, template)
}
