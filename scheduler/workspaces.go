package scheduler

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/template"
)

// workspace is an entry of the Platform.
type workspace struct {
	account      string // a name, or NAMESPACE/NAME
	limits       kinds.Limits
	bound        bool // it may name these repositories only
	repositories []gitPlace
	tenant       *template.Tenant // what templates see of it
}

func newWorkspace(w *kinds.Workspace) workspace {
	return workspace{
		account: w.Account(), limits: w.Limits, bound: len(w.Repositories) > 0, repositories: placesOf(w.Repositories), tenant: tenantOf(w),
	}
}

// CheckPlatform returns the mistakes in a Platform that was not loaded into a [Model], which checks it too.
func CheckPlatform(p *kinds.Platform) error { return finding.Join(checkWorkspaces(p)) }

// checkWorkspaces returns errors for workspaces that are listed twice, and for invalid names of ServiceAccounts: a typing
// error must not leave a workspace unconfined.
func checkWorkspaces(p *kinds.Platform) []error {
	var errs []error
	seen := map[string]finding.Position{}
	for _, w := range p.Spec.Workspaces {
		at := p.Position(w.Line)
		if w.Name == "" {
			errs = append(errs, finding.Errorf(finding.CodeWorkspace, at, "give the workspace of a WorkloadRegistration", "a workspace of the Platform has no name"))
			continue
		}
		if first, twice := seen[w.Name]; twice {
			errs = append(errs, finding.Errorf(finding.CodeWorkspace, at, "remove one of them", "workspace %q is listed twice: first at %s", w.Name, first))
		}
		seen[w.Name] = at
		if l := w.Limits; min(l.Targets, l.Files, l.Bytes) < 0 {
			errs = append(errs, finding.Errorf(finding.CodeWorkspace, at, "leave it out for the default", "workspace %q: a limit is below zero", w.Name))
		}
		if problem := accountProblem(w.Account()); problem != "" {
			errs = append(errs, finding.Errorf(finding.CodeWorkspace, at, "give serviceAccount: NAME or NAMESPACE/NAME", "workspace %q: no ServiceAccount can be called %q: %s", w.Name, w.Account(), problem))
		}
		errs = append(errs, checkTenant(at, &w)...)
	}
	for _, i := range p.Spec.Ignore {
		if _, known := finding.Explain(i.Code); !known {
			var codes []string
			for _, e := range finding.Explanations() {
				codes = append(codes, e.Code)
			}
			errs = append(errs, finding.Errorf(finding.CodeType, p.Position(i.Line), finding.DidYouMean(i.Code, codes), "spec.ignore of the Platform: there is no code %q", i.Code))
		}
	}
	return append(errs, checkOwners(p.At, "the Platform", p.Spec.Owners)...)
}

// Ignores reports whether the Platform turns a code off for the environment.
func (m *Model) Ignores(code string) bool {
	return m.objects.Platform != nil && slices.ContainsFunc(m.objects.Platform.Spec.Ignore, func(i kinds.Ignored) bool {
		return strings.EqualFold(i.Code, code) && (len(i.Environments) == 0 || slices.Contains(i.Environments, m.environment))
	})
}

func accountProblem(account string) string {
	namespace, name, qualified := strings.Cut(account, "/")
	if !qualified {
		name = namespace
	} else if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return problems[0]
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return problems[0]
	}
	return ""
}

// accounts returns the ServiceAccounts of all workspaces that the Platform lists.
func (m *Model) accounts() map[string]string {
	accounts := make(map[string]string, len(m.workspaces))
	for name, w := range m.workspaces {
		accounts[name] = w.account
	}
	return accounts
}

// ServiceAccount returns the ServiceAccount, as NAMESPACE/NAME, that applies an assignment of a workspace;
// empty if the Platform does not list the workspace.
func (r *Result) ServiceAccount(workspace, namespace string) string {
	return accountIn(r.Accounts, workspace, namespace)
}

func accountIn(accounts map[string]string, workspace, namespace string) string {
	account, listed := accounts[workspace]
	if !listed || strings.Contains(account, "/") {
		return account
	}
	return namespace + "/" + account
}
