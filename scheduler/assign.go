package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/scheduler/check"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/memo"
	"github.com/wherry-dev/wherry/scheduler/template"
)

// assigner renders the assignments of one cluster type.
type assigner struct {
	*renderer
	ct               *kinds.ClusterType
	layerCandidates  []candidate
	schemaCandidates []candidate
	evaluator        *template.Evaluator
	checks           *check.Objects
	kept             *memo.Memo // nil without cache
	ofType           identity
	missing          missingFindings

	// Reused from one assignment to the next.
	layerKey, schemaKey, idParts []byte
	uses                         []schemaUse
}

func newAssigner(r *renderer, ct *kinds.ClusterType) *assigner {
	a := &assigner{
		renderer: r, ct: ct,
		layerCandidates:  r.layerMatcher.forType(ct),
		schemaCandidates: r.schemaMatcher.forType(ct),
		evaluator:        template.NewEvaluator(r.lib),
		checks:           r.checks.For(ct.Metadata.Labels),
	}
	if r.cache != nil {
		a.kept = memo.Open(r.cache, "rendered "+r.model.environment+"\x00"+r.model.platform+"\x00"+ct.Metadata.Name)
		a.ofType = r.ids.ofType(r, ct, a.checks)
	}
	return a
}

// assign returns one assignment, rendered now or, if its input has not changed, taken from the cache.
func (a *assigner) assign(ctx context.Context, i int) (*Assignment, error) {
	if a.kept == nil {
		made, _, err := a.render(ctx, i)
		return made, err
	}
	a.layerKey = appliesTo(a.layerKey[:0], a.layerCandidates, i)
	a.schemaKey = appliesTo(a.schemaKey[:0], a.schemaCandidates, i)
	id := a.identity(i, a.layerKey, a.schemaKey)
	if data, ok := a.kept.Find(id); ok {
		known := a.outline(i)
		if known.unpack(data) {
			known.Config = a.sources(a.layerKey)
			a.kept.Keep(id, data)
			return known, nil
		}
	}
	made, complete, err := a.render(ctx, i)
	if err == nil && complete {
		a.kept.Keep(id, made.pack())
	}
	return made, err
}

// sources lists the ConfigMaps of the layers of key, as in the configuration composed of them.
func (a *assigner) sources(key []byte) (all []ConfigSource) {
	for i := range members(key) {
		all = addSource(all, a.composer.layers[i].source)
	}
	return all
}

// render composes, checks and renders one assignment. Complete is false if it prints missing keys, or a check
// warns about it, which has to be reported at each rendering.
func (a *assigner) render(ctx context.Context, i int) (made *Assignment, complete bool, err error) {
	t := a.targets[i]
	in, err := a.input(i)
	if err != nil {
		return nil, false, err
	}
	if err := a.validator.validate(ctx, in.config, a.schemas(i)); err != nil {
		return nil, false, because(SchemaViolated, err)
	}
	files, err := a.files(ctx, in)
	if err != nil {
		return nil, false, because(TemplateFailed, err)
	}
	if a.refuseMissing {
		if err := missingKeysOf(in.Missing); err != nil {
			return nil, false, err
		}
	}
	a.missing.add(a.ct.Metadata.Name+"/"+t.Name, in.Missing)
	reconciler := files[len(files)-1].Data
	adapter, err := adapter(a.ct, t, reconciler)
	if err != nil {
		return nil, false, because(BadAnnotation, err)
	}
	made = a.outline(i)
	made.Config, made.ConfigDigest, made.Adapter, made.Files = in.config.sources, in.config.digest, adapter, files
	warnings, err := a.check(made, t)
	if err != nil {
		return nil, false, because(CheckFailed, err)
	}
	a.missing.add(a.ct.Metadata.Name+"/"+t.Name, warnings)
	return made, len(in.Missing)+len(warnings) == 0, nil
}

// outline returns an assignment with what is known before it is rendered.
func (a *assigner) outline(i int) *Assignment {
	t := a.targets[i]
	return &Assignment{
		Name:        t.Name,
		ClusterType: a.ct.Metadata.Name,
		Workspace:   t.Workspace,
		Workload:    t.Workload.Metadata.Name,
		Target:      t.Spec.Name,
		Namespace:   a.namespace(t),
	}
}

func (a *assigner) namespace(t *target) string {
	return a.model.environment + "-" + a.ct.Metadata.Name + "-" + t.Name
}

// input is the input of rendering one assignment.
type input struct {
	template.Input
	config *config
}

// input gathers the data for the templates of an assignment.
func (a *assigner) input(i int) (*input, error) {
	t := a.targets[i]
	a.layerKey = appliesTo(a.layerKey[:0], a.layerCandidates, i)
	in := &input{config: a.composer.config(a.layerKey)}
	in.Config = &in.config.view
	d := template.WithTenant(template.Data{
		DeploymentTargetName: t.Name,
		Namespace:            a.namespace(t),
		Environment:          a.model.environment,
		Workspace:            t.Workspace,
		Workload:             t.Workload.Metadata.Name,
		Labels:               t.Labels,
		Manifests:            t.Spec.Manifests,
		ClusterType:          a.ct.Metadata.Name,
	}, a.model.workspaces[t.Workspace].tenant)
	if len(d.Namespace) > validation.DNS1123LabelMaxLength {
		return nil, because(NameTooLong, finding.Errorf(finding.CodeLongNamespace, t.At, "shorten one of the names", "namespace %q would have %d characters, %d are permitted: environment %q, cluster type %q at %s, %s",
			d.Namespace, len(d.Namespace), validation.DNS1123LabelMaxLength, d.Environment, d.ClusterType, a.ct.At, t))
	}
	if a.shield != nil && hasBraces(t) {
		d, in.Shield = a.shield.Cover(d), a.shield
	}
	in.Data = &d
	return in, nil
}

// schemas lists the schemas that apply to an assignment: the platform's, then the workload's. The list is
// valid until the next call.
func (a *assigner) schemas(i int) []schemaUse {
	a.schemaKey = appliesTo(a.schemaKey[:0], a.schemaCandidates, i)
	a.uses = a.uses[:0]
	for s := range members(a.schemaKey) {
		a.uses = append(a.uses, a.renderer.schemas[s])
	}
	a.uses = append(a.uses, a.targets[i].schemas...)
	return a.uses
}

// files renders the three files of an assignment, sorted by path.
func (a *assigner) files(ctx context.Context, in *input) ([]File, error) {
	namespace, namespaceErr := a.file(ctx, "namespaceService", a.ct.Spec.NamespaceService, in)
	config, configErr := a.configFile(ctx, in)
	reconciler, reconcilerErr := a.file(ctx, "reconciler", a.ct.Spec.Reconciler, in)
	if err := errors.Join(namespaceErr, configErr, reconcilerErr); err != nil {
		return nil, err
	}
	if len(config.Data) > template.MaxBytes { // only the built-in ones can be: their parts are bounded, not their sum
		return nil, fmt.Errorf("%s: %w", config.Path, template.ErrTooLong)
	}
	files := []File{{Path: "namespace.yaml", Data: namespace}}
	if len(config.Data) > 0 {
		files = append(files, config)
	}
	return append(files, File{Path: "reconciler.yaml", Data: reconciler}), nil
}

// configFile renders platform-config.yaml or .sh, by a Template or in one of the built-in ways.
func (a *assigner) configFile(ctx context.Context, in *input) (File, error) {
	const yamlFile, shellFile = kinds.PlatformConfig + ".yaml", kinds.PlatformConfig + ".sh"
	configType := a.ct.Spec.ConfigType
	if t, ok := a.templates[configType]; ok {
		file := File{Path: yamlFile}
		if a.model.objects.Templates[configType].Spec.ContentType == "sh" {
			file.Path = shellFile
		}
		var err error
		file.Data, err = a.evaluator.Render(ctx, t, &in.Input)
		return file, err
	}
	switch configType {
	case "", kinds.ConfigMapType:
		data, err := a.configMapFile(ctx, in)
		return File{Path: yamlFile, Data: data}, err
	case kinds.EnvFileType:
		data, err := a.envFile(ctx, in)
		return File{Path: shellFile, Data: data}, err
	default:
		return File{}, a.noTemplate("configType", configType, kinds.ConfigMapType, kinds.EnvFileType)
	}
}

// file renders the Template that a field of the cluster type names.
func (a *assigner) file(ctx context.Context, field, template string, in *input) ([]byte, error) {
	t, ok := a.templates[template]
	if !ok {
		return nil, a.noTemplate(field, template)
	}
	return a.evaluator.Render(ctx, t, &in.Input)
}

func (a *assigner) noTemplate(field, template string, others ...string) error {
	if template == "" {
		return finding.Errorf(finding.CodeNoTemplate, a.ct.At, "it must name a Template", "cluster type %q has no spec.%s", a.ct.Metadata.Name, field)
	}
	names := append(slices.Collect(maps.Keys(a.templates)), others...)
	slices.Sort(names)
	return finding.Errorf(finding.CodeNoTemplate, a.ct.At, finding.DidYouMean(template, names), "cluster type %q: spec.%s names template %q, which does not exist", a.ct.Metadata.Name, field, template)
}
