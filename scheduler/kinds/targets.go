package kinds

import (
	"fmt"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Target is a deployment target of this environment.
type Target struct {
	Name      string // <workload>-<target>
	Workspace string
	Workload  *Workload
	Spec      *DeploymentTarget
	At        finding.Position
	Labels    map[string]string
}

// String names the target, its workload and its registration.
func (t *Target) String() string {
	s := fmt.Sprintf("target %q of workload %q", t.Spec.Name, t.Workload.Metadata.Name)
	if r := t.Workload.Registration; r != "" {
		s += fmt.Sprintf(" (registration %q)", r)
	}
	return s
}

// TargetNames lists the names of the deployment targets, as they are written.
func (w *Workload) TargetNames() []string {
	var names []string
	for i := range w.Spec.DeploymentTargets {
		names = append(names, w.Spec.DeploymentTargets[i].Name)
	}
	return names
}
