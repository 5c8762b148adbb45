// Package scheduler holds what templates see, under the names that it has in Kalypso: templates can see the name of the
// package and of the type, with {{ typeOf . }} and {{ hash . }}, and must get the same answers here.
package scheduler

// Data is dataType, whose own name has to be Kalypso's.
type Data = dataType

// dataType has Kalypso's name and Kalypso's fields because templates can see both: {{ hash . }} and
// {{ typeOf . }} depend on them.
type dataType struct {
	DeploymentTargetName string
	Namespace            string
	Environment          string
	Workspace            string
	Workload             string
	Labels               map[string]string
	Manifests            map[string]string
	ClusterType          string
	ConfigData           map[string]any
}

// Repo is .Manifests.repo, for templates of the older generation.
func (d dataType) Repo() string { return d.Manifests["repo"] }

// Branch is .Manifests.branch in the same templates.
func (d dataType) Branch() string { return d.Manifests["branch"] }

// Path is .Manifests.path in the same templates.
func (d dataType) Path() string { return d.Manifests["path"] }
