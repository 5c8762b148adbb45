// Package scheduler holds the data for templates, under Kalypso's names: templates can read the names of the
// package and of the type, with {{ typeOf . }} and {{ hash . }}, and must get the same results here.
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

// Repo returns .Manifests.repo, for templates of the older generation.
func (d dataType) Repo() string { return d.Manifests["repo"] }

// Branch returns .Manifests.branch, for the same templates.
func (d dataType) Branch() string { return d.Manifests["branch"] }

// Path returns .Manifests.path, for the same templates.
func (d dataType) Path() string { return d.Manifests["path"] }
