package doctor

import (
	"context"
	"os"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/ansible"
)

// checkAnsible finds Ansible, if playbooks are to be run here.
func checkAnsible(ctx context.Context, e *examination) diagnosis.Finding {
	if e.Adapters.AnsiblePlaybook == "" {
		return diagnosis.Skipf("playbooks are not to be run here")
	}
	version, err := ansible.Version(ctx, e.Adapters.AnsiblePlaybook)
	switch {
	case err != nil:
		return diagnosis.Failf("install ansible-core, on Debian with apt-get install ansible-core, or name its program with --ansible-playbook", "%v", err)
	case os.Geteuid() != 0:
		return diagnosis.Failf("run the agent as root, or write playbooks that need no rights and pass over this", "%s; but this is not root, and users, cron jobs and packages are root's to change", version)
	default:
		return diagnosis.Okf("%s, as root", version)
	}
}
