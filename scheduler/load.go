package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

const (
	// maxFileBytes bounds one input file; etcd would not take an object of that size.
	maxFileBytes = 8 << 20
	// maxFiles bounds the files of one source, so that a home folder given by mistake is refused soon.
	maxFiles = 100_000
)

// Load adds the objects in all *.yaml, *.yml and *.json files of src, at any depth. It skips folders whose
// name starts with a dot, except .environments.
//
// The error joins the errors of all files, each with file and line (see [finding.Error]); after an error, the model has no
// object of src. Objects of kinds that are not part of a platform are skipped with a note; unknown fields are warnings.
// Both are in the [Result].
func (m *Model) Load(ctx context.Context, src Source) error {
	if r, known := m.registrations[src.Registration]; known {
		if err := m.CheckRegistration(r); err != nil {
			return err
		}
	}
	l := &loader{src: src, seen: map[objectKey]finding.Position{}, known: m.seen, model: m}
	l.limits, l.limited = m.limitsOf(src.Registration)
	if err := fs.WalkDir(src.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return l.visit(name, entry, err)
	}); err != nil {
		return err
	}
	if len(l.errs) > 0 {
		return finding.Join(l.errs)
	}
	if err := m.checkLimits(src.Registration, l.workloads); err != nil {
		return err
	}
	for _, o := range l.objects {
		m.add(o)
	}
	for key, at := range l.seen {
		m.seen[key] = at
	}
	m.findings = append(m.findings, l.findings...)
	return nil
}

// loader reads one source.
type loader struct {
	src      Source
	files    int
	known    map[objectKey]finding.Position // from the sources before
	seen     map[objectKey]finding.Position
	objects  []kinds.Object // added to the model once all files are valid
	errs     []error
	findings []finding.Finding

	model     *Model
	limits    kinds.Limits
	limited   bool
	bytes     int64
	workloads []*kinds.Workload
}

func (l *loader) visit(name string, entry fs.DirEntry, err error) error {
	switch ext := path.Ext(name); {
	case err != nil:
		return fmt.Errorf("read %s: %w", l.display(name), err)
	case entry.IsDir():
		if base := entry.Name(); strings.HasPrefix(base, ".") && base != "." && base != ".environments" {
			return fs.SkipDir
		}
		return nil
	case ext != ".yaml" && ext != ".yml" && ext != ".json":
		return nil
	case !entry.Type().IsRegular():
		l.note(finding.CodeNotRegular, finding.Position{File: l.display(name)}, "not a regular file: passed over")
		return nil
	}
	if l.files++; l.files > maxFiles {
		return fmt.Errorf("read %s: more than %d files: is this the right folder?", l.display("."), maxFiles)
	}
	data, err := l.read(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", l.display(name), err)
	}
	if err := l.count(int64(len(data))); err != nil {
		return err
	}
	if len(data) > maxFileBytes {
		l.errs = append(l.errs, finding.Errorf(finding.CodeTooLarge, finding.Position{File: l.display(name)}, "", "the file is larger than %d bytes", maxFileBytes))
		return nil
	}
	if l.src.OnlyEnvironments && !bytes.Contains(data, []byte("Environment")) {
		return nil
	}
	l.parse(l.display(name), data)
	return nil
}

// count counts a file of an app team's source.
func (l *loader) count(bytes int64) error {
	l.bytes += bytes
	switch {
	case !l.limited:
	case int64(l.files) > l.limits.Files:
		return l.model.exceeded(l.src.Registration, "files", l.limits.Files, "in its source")
	case l.bytes > l.limits.Bytes:
		return l.model.exceeded(l.src.Registration, "bytes", l.limits.Bytes, "in its source")
	}
	return nil
}

// read returns at most one byte more than a file may have.
func (l *loader) read(name string) ([]byte, error) {
	f, err := l.src.FS.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// display returns the name of a file of this source for messages.
func (l *loader) display(name string) string {
	switch {
	case l.src.Name == "":
		return name
	case name == ".":
		return l.src.Name
	default:
		return strings.TrimSuffix(l.src.Name, "/") + "/" + name
	}
}

func (l *loader) note(code string, at finding.Position, format string, args ...any) {
	l.findings = append(l.findings, finding.New(code, at, "", format, args...))
}

// parse takes the documents of one file.
func (l *loader) parse(file string, data []byte) {
	if err := yamlvalues.Check(data); l.src.Registration != "" && errors.Is(err, yamlvalues.ErrTooLarge) {
		l.errs = append(l.errs, syntaxError(file, data, err))
		return
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil && l.src.OnlyEnvironments { // another environment's mistake, or reported when all is read
			return
		}
		if err != nil {
			l.errs = append(l.errs, syntaxError(file, data, err))
			return
		}
		if len(n.Content) == 1 {
			l.document(file, n.Content[0])
		}
	}
}

func syntaxError(file string, data []byte, err error) error {
	line, message := yamltext.Mistake(data, err)
	return finding.Errorf(finding.CodeSyntax, finding.Position{File: file, Line: line}, "", "%s", message)
}

// objectKey identifies an object. Two app teams may use the same name for a workload: only the names of their
// targets may clash, so that one team cannot stop the other.
type objectKey struct {
	kind, name, registration string
}

// document takes one object, or the items of a List.
func (l *loader) document(file string, n *yaml.Node) {
	at := finding.Position{File: file, Line: n.Line}
	apiVersion, kind := kinds.StringField(n, "apiVersion"), kinds.StringField(n, "kind")
	into := kinds.New(apiVersion, kind)
	nearest, near := kinds.Near(n)
	switch {
	case n.ShortTag() == "!!null":
	case apiVersion == kinds.CoreAPI && kind == "List":
		for _, item := range kinds.SequenceField(n, "items") {
			l.document(file, item)
		}
	case l.src.OnlyEnvironments && kind != "Environment" && nearest.Kind != "Environment":
	case kind == "" && path.Base(file) == kinds.SettingsFile: // of the commands, not of the platform
	case near && (l.src.Registration == "" || nearest.Kind == "" || nearest.Kind == "Workload" || nearest.Kind == "List"):
		l.nearlyOurs(at, kinds.Type{APIVersion: apiVersion, Kind: kind}, nearest)
	case l.src.Registration != "" && isTeamsOwn(n, into): // what the workloads deploy lies beside them
	case kind == "":
		l.note(finding.CodeNoObject, at, "no object (there is no kind): passed over")
	case into == nil:
		l.unknownKind(at, apiVersion, kind)
	case l.src.Registration != "" && kind != "Workload":
		l.note(finding.CodeNotATeams, at, "a %s in the source of registration %q: passed over, app teams give Workloads only", kind, l.src.Registration)
	default:
		l.object(at, n, into)
	}
}

// isTeamsOwn reports whether a document in an app team's repository is no part of any platform: a manifest, or a file such as
// the values of a chart.
func isTeamsOwn(n *yaml.Node, into kinds.Object) bool {
	apiVersion, kind := kinds.StringField(n, "apiVersion"), kinds.StringField(n, "kind")
	if kind == "ConfigMap" && into != nil {
		labels := kinds.Field(kinds.Field(n, "metadata"), "labels")
		return kinds.StringField(labels, kinds.PlatformConfig) == "" && kinds.StringField(labels, kinds.SiteValues) == ""
	}
	group, _, _ := strings.Cut(apiVersion, "/")
	return into == nil && !kinds.IsUnknown(group, kind)
}

// nearlyOurs refuses an object whose kind is one of ours but for a mistake: passed over, what it says would not hold, and
// what it assigns would be removed.
func (l *loader) nearlyOurs(at finding.Position, has, nearest kinds.Type) {
	hint := fmt.Sprintf("did you mean kind %s of %s?", nearest.Kind, nearest.APIVersion)
	if nearest.Kind == "" {
		hint = "name its kind, such as " + kinds.Names()[0]
	}
	l.errs = append(l.errs, finding.Errorf(finding.CodeNearKind, at, hint, "unknown kind %s of %s", cmp.Or(has.Kind, `""`), cmp.Or(has.APIVersion, "no apiVersion")))
}

// unknownKind notes a foreign kind, and warns of one that nobody knows of a group that is ours.
func (l *loader) unknownKind(at finding.Position, apiVersion, kind string) {
	code := finding.CodeForeignKind
	if group, _, _ := strings.Cut(apiVersion, "/"); kinds.IsUnknown(group, kind) {
		code = finding.CodeUnknownKind
	}
	l.note(code, at, "kind %s of %s is not part of a platform: passed over", kind, cmp.Or(apiVersion, "no apiVersion"))
}

// object decodes n into the struct that into points to, checks it and keeps it for later.
func (l *loader) object(at finding.Position, n *yaml.Node, into kinds.Object) {
	policy, _ := into.(*kinds.SchedulingPolicy)
	check, _ := into.(*kinds.PlatformCheck)
	promoted, _ := into.(*kinds.PromotionPolicy)
	d := kinds.Decode(at.File, n, into, policy != nil || check != nil || promoted != nil) // what lost a term selects, or lets in, too much
	l.errs, l.findings = append(l.errs, d.Errs...), append(l.findings, d.Findings...)
	if len(d.Errs) > 0 {
		return
	}
	o := into.Base()
	o.At, o.InBase = at, l.src.Base != ""
	cm, _ := into.(*kinds.ConfigMap)
	if cm != nil && cm.IsSiteValues() && cm.IsLabelled() {
		l.errs = append(l.errs, finding.Errorf(finding.CodeSiteSchema, at, "remove one of the labels", "ConfigMap %q has the labels %s and %s: the declaration of site values is no configuration", o.Metadata.Name, kinds.PlatformConfig, kinds.SiteValues))
		return
	}
	if cm != nil && !cm.IsPlatform() && !cm.IsSiteValues() {
		l.note(finding.CodeNotLabelled, at, "ConfigMap %q has no label %s: \"true\": passed over", o.Metadata.Name, kinds.PlatformConfig)
		return
	}
	if policy != nil {
		for _, f := range d.Unknown {
			policy.Mistakes = append(policy.Mistakes, &finding.Error{
				Position: f.Position, Code: finding.CodeSelectorField, Column: f.Column, Hint: f.Hint,
				Message: fmt.Sprintf("SchedulingPolicy %q: %s", o.Metadata.Name, f.Message),
			})
		}
		readAnnotations(policy)
	}
	if check != nil {
		for _, f := range d.Unknown {
			l.errs = append(l.errs, &finding.Error{
				Position: f.Position, Code: finding.CodeCheck, Column: f.Column, Hint: f.Hint,
				Message: fmt.Sprintf("PlatformCheck %q: %s", o.Metadata.Name, f.Message),
			})
		}
	}
	if w, ok := into.(*kinds.Workload); ok {
		w.Registration = l.src.Registration
		l.workloads = append(l.workloads, w)
		l.errs = append(l.errs, checkTargets(w)...)
	}
	if p, ok := into.(*kinds.Platform); ok {
		l.errs = append(l.errs, checkWorkspaces(p)...)
		l.errs = append(l.errs, promotion.CheckRings(at, p.Spec.Rings)...)
		if _, err := newMaxRemoved(p); err != nil {
			l.errs = append(l.errs, err)
		}
		if err := checkSandbox(p); err != nil {
			l.errs = append(l.errs, err)
		}
	}
	if promoted != nil {
		for _, f := range d.Unknown {
			l.errs = append(l.errs, &finding.Error{
				Position: f.Position, Code: finding.CodePromotion, Column: f.Column, Hint: f.Hint,
				Message: fmt.Sprintf("PromotionPolicy %q: %s", o.Metadata.Name, f.Message),
			})
		}
		l.errs = append(l.errs, promotion.Mistakes(promoted)...)
	}
	if err := checkName(at, o.Kind, o.Metadata.Name); err != nil {
		l.errs = append(l.errs, err)
		return
	}
	if err := l.claim(into); err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.objects = append(l.objects, into)
}

// claim returns an error if an object is defined twice.
func (l *loader) claim(into kinds.Object) error {
	o := into.Base()
	key := objectKey{kind: o.Kind, name: o.Metadata.Name}
	switch w := into.(type) {
	case *kinds.Workload:
		key.registration = w.Registration
	case *kinds.Platform:
		key.name = "" // a platform has only one
	}
	first, ok := l.known[key]
	if !ok {
		first, ok = l.seen[key]
	}
	if ok {
		return finding.Errorf(finding.CodeDefinedTwice, o.At, "remove one of them", "%s %q is defined twice%s: first at %s", o.Kind, o.Metadata.Name, l.origin(), first)
	}
	l.seen[key] = o.At
	return nil
}

// origin returns the kind of this source, for a message.
func (l *loader) origin() string {
	switch {
	case l.src.Base != "":
		return fmt.Sprintf(" (here in base repository %q)", l.src.Base)
	case l.src.Registration != "":
		return fmt.Sprintf(" (here in the source of registration %q)", l.src.Registration)
	default:
		return ""
	}
}

// checkName returns an error unless name is a valid name of an object. Names become folders, so this also keeps
// them inside the output.
func checkName(at finding.Position, kind, name string) error {
	if name == "" {
		return finding.Errorf(finding.CodeObjectName, at, "", "%s has no metadata.name", kind)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return finding.Errorf(finding.CodeObjectName, at, "", "%s cannot be called %q: %s", kind, name, problems[0])
	}
	return nil
}

// checkTargets checks the names of deployment targets.
func checkTargets(w *kinds.Workload) []error {
	var errs []error
	for i := range w.Spec.DeploymentTargets {
		t := &w.Spec.DeploymentTargets[i]
		at := w.Position(t.Line)
		if t.Name == "" {
			errs = append(errs, finding.Errorf(finding.CodeNoTargetName, at, "", "deployment target has no name"))
		} else if problems := validation.IsDNS1123Subdomain(w.Metadata.Name + "-" + t.Name); len(problems) > 0 {
			errs = append(errs, finding.Errorf(finding.CodeNoTargetName, at, "", "deployment target cannot be called %q: %s", t.Name, problems[0]))
		}
	}
	return errs
}
