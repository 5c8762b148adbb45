package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/template"
)

// tenantOf returns what templates see of a workspace; nil for nothing.
func tenantOf(w *kinds.Workspace) *template.Tenant {
	t := &template.Tenant{NamespaceLabels: w.Namespaces.Labels, NamespaceAnnotations: w.Namespaces.Annotations}
	for _, g := range w.Groups {
		t.Groups = append(t.Groups, template.Group{Name: g.Name, Role: g.GivenRole()})
	}
	if w.CreateServiceAccount {
		t.ServiceAccount = w.Account()
	}
	if len(t.Groups)+len(t.NamespaceLabels)+len(t.NamespaceAnnotations) == 0 && t.ServiceAccount == "" {
		return nil
	}
	return t
}

// texts lists what templates may print of the workspace.
func (w workspace) texts() []string {
	if w.tenant == nil {
		return nil
	}
	all := []string{w.tenant.ServiceAccount}
	for _, g := range w.tenant.Groups {
		all = append(all, g.Name, g.Role)
	}
	for _, m := range []map[string]string{w.tenant.NamespaceLabels, w.tenant.NamespaceAnnotations} {
		for key, value := range m {
			all = append(all, key, value)
		}
	}
	return all
}

// maxGroupName bounds the name of a group, in bytes.
const maxGroupName = 256

// checkTenant returns the mistakes in the owners, groups, repositories and namespaces of a workspace.
func checkTenant(at finding.Position, w *kinds.Workspace) []error {
	who := fmt.Sprintf("workspace %q", w.Name)
	errs := checkOwners(at, who, w.Owners)
	add := func(hint, format string, args ...any) {
		errs = append(errs, finding.Errorf(finding.CodeTenant, at, hint, "%s: %s", who, fmt.Sprintf(format, args...)))
	}
	var known []kinds.Group
	for _, g := range w.Groups {
		g.Role = g.GivenRole()
		switch {
		case g.Name == "":
			add("give the group of the identity provider", "a group has no name")
		case len(g.Name) > maxGroupName || strings.ContainsFunc(g.Name, unicode.IsControl):
			add("", "%.80q cannot be a group", g.Name)
		case strings.ContainsAny(g.Role, "/%") || strings.ContainsFunc(g.Role, unicode.IsControl) || g.Role == "." || g.Role == "..":
			add("give a ClusterRole, such as view, edit or admin", "group %q: %.80q cannot be a role", g.Name, g.Role)
		case slices.Contains(known, g):
			add("remove one of them", "group %q has role %q twice", g.Name, g.Role)
		}
		known = append(known, g)
	}
	if w.Repositories != nil && len(w.Repositories) == 0 {
		add("leave repositories out to allow all, or list some", "the list of repositories is empty")
	}
	for i, r := range w.Repositories {
		if _, err := parseGitPlace(r); err != nil { // without the text, which may hold credentials
			add("write https://HOST/PATH, which stands for the repository and all that lies below", "repositories[%d]: %v", i, err)
		}
	}
	if w.CreateServiceAccount && strings.Contains(w.Account(), "/") {
		add("make it yourself, or give a name without a namespace", "createServiceAccount: %q is not in the namespaces of its assignments", w.Account())
	}
	problems := slices.Concat(
		metav1validation.ValidateLabels(w.Namespaces.Labels, field.NewPath("namespaces", "labels")),
		checkAnnotationKeys(w.Namespaces.Annotations, field.NewPath("namespaces", "annotations")))
	for _, problem := range problems {
		add("", "%s: %s", problem.Field, problem.Detail)
	}
	return errs
}

func checkAnnotationKeys(annotations map[string]string, at *field.Path) (problems field.ErrorList) {
	for _, key := range sortedKeys(annotations) {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
			problems = append(problems, field.Invalid(at, key, problem))
		}
	}
	return problems
}

// Owners as GitHub and GitLab both know them: a user, a team or group with its organisation, or a mail address.
var ownerForm = lazyregexp.New(`^(@@?[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*|[A-Za-z0-9_.+-]+@[A-Za-z0-9.-]+)$`)

// checkOwners returns an error for each owner that CODEOWNERS cannot have: it could be read as several, or as a comment.
func checkOwners(at finding.Position, who string, owners []string) []error {
	var errs []error
	for _, o := range owners {
		if !ownerForm.MatchString(o) {
			errs = append(errs, finding.Errorf(finding.CodeTenant, at, "write @ORG/TEAM, @USER or a mail address", "%s: %.80q cannot be an owner", who, o))
		}
	}
	return errs
}
