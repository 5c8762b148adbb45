package scheduler

import (
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"k8s.io/apimachinery/pkg/util/validation"
)

// accountPrefix begins the name of a workspace's ServiceAccount for which the Platform names none.
const accountPrefix = "wherry-"

// platformObject is what is said once for the whole platform.
type platformObject struct {
	object `yaml:",inline"`
	Spec   struct {
		Workspaces []platformWorkspace `yaml:"workspaces"`
		// Rings are those of all environments for which no PromotionPolicy names any, narrowest first.
		Rings []string `yaml:"rings"`
	} `yaml:"spec"`
}

// platformWorkspace has the assignments of a workspace applied in the name of a ServiceAccount.
type platformWorkspace struct {
	Name string `yaml:"name"`
	// ServiceAccount is a name, which stands for one in each assignment's own namespace, or NAMESPACE/NAME.
	// Empty is accountPrefix and the workspace's name.
	ServiceAccount string `yaml:"serviceAccount"`
	// Limits bound what each registration of the workspace may bring.
	Limits limits `yaml:"limits"`
	Line   line
}

func (p *platformObject) addTo(m *Model) {
	m.platform, m.platformRings = p.Metadata.Name, p.Spec.Rings
	for _, w := range p.Spec.Workspaces {
		m.workspaces[w.Name] = workspace{w.account(), w.Limits, p.position(w.Line)}
	}
}

// workspace is what the Platform says of one.
type workspace struct {
	account string // a name, or NAMESPACE/NAME
	limits  limits
	at      finding.Position
}

func (w platformWorkspace) account() string {
	if w.ServiceAccount == "" {
		return accountPrefix + w.Name
	}
	return w.ServiceAccount
}

// checkWorkspaces finds those that are there twice, and names that no ServiceAccount can have: what is
// listed to be confined must not go without that because of a slip.
func (p *platformObject) checkWorkspaces() []error {
	var errs []error
	seen := map[string]finding.Position{}
	for _, w := range p.Spec.Workspaces {
		at := p.position(w.Line)
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
		if problem := accountProblem(w.account()); problem != "" {
			errs = append(errs, finding.Errorf(finding.CodeWorkspace, at, "give serviceAccount: NAME or NAMESPACE/NAME", "workspace %q: no ServiceAccount can be called %q: %s", w.Name, w.account(), problem))
		}
	}
	return errs
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

// ServiceAccount returns the one, as NAMESPACE/NAME, in whose name an assignment of a workspace is applied;
// empty where the Platform does not list the workspace.
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
