package doctor

import (
	"context"
	"os"

	"github.com/wherry-dev/wherry/reconcilers/ansible"
)

// ansible says which Ansible there is, where playbooks are to be run.
func (e *examination) ansible(ctx context.Context) {
	const check = "ansible"
	if e.AnsiblePlaybook == "" {
		e.skipped(check, "playbooks are not to be run here")
		return
	}
	version, err := ansible.Version(ctx, e.AnsiblePlaybook)
	switch {
	case err != nil:
		e.failed(check, "install ansible-core, on Debian with apt-get install ansible-core, or name its program with --ansible-playbook", "%v", err)
	case os.Geteuid() != 0:
		e.failed(check, "run the agent as root, or write playbooks that need no rights and pass over this", "%s; but this is not root, and users, cron jobs and packages are root's to change", version)
	default:
		e.ok(check, "%s, as root", version)
	}
}
