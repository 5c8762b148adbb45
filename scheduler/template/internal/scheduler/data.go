// Package scheduler holds the data for templates, under Kalypso's names: templates can read the names of the
// package and of the type, with {{ typeOf . }} and {{ hash . }}, and must get the same results here.
package scheduler

import "fmt"

// Data is dataType, whose own name has to be Kalypso's.
type Data = dataType

// dataType has Kalypso's name and Kalypso's fields because templates can see both: {{ hash . }} and
// {{ typeOf . }} depend on them. What wherry adds is reached by methods, and is neither hashed nor printed with the rest.
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

	tenant *Tenant // nil for a workspace that the Platform says nothing about
}

// Tenant is what the Platform says about a workspace.
type Tenant struct {
	Groups                                []Group
	ServiceAccount                        string
	NamespaceLabels, NamespaceAnnotations map[string]string
}

// Group is a group of the clusters' identity provider, with the ClusterRole that it is to have.
type Group struct {
	Name, Role string
}

// WithTenant returns d of a workspace about which the Platform says t, which may be nil.
func WithTenant(d Data, t *Tenant) Data {
	d.tenant = t
	return d
}

// Groups returns the groups of the workspace.
func (d dataType) Groups() []Group {
	if d.tenant == nil {
		return nil
	}
	return d.tenant.Groups
}

// ServiceAccount returns the name of the workspace's ServiceAccount if the namespace service is to make it; else "".
func (d dataType) ServiceAccount() string {
	if d.tenant == nil {
		return ""
	}
	return d.tenant.ServiceAccount
}

// NamespaceLabels returns the labels that namespaces of the workspace get.
func (d dataType) NamespaceLabels() map[string]string {
	if d.tenant == nil {
		return nil
	}
	return d.tenant.NamespaceLabels
}

// NamespaceAnnotations returns the annotations that namespaces of the workspace get.
func (d dataType) NamespaceAnnotations() map[string]string {
	if d.tenant == nil {
		return nil
	}
	return d.tenant.NamespaceAnnotations
}

// Format writes d as package fmt writes Kalypso's type, which has no tenant.
func (d dataType) Format(to fmt.State, verb rune) {
	type dataType struct {
		DeploymentTargetName, Namespace, Environment, Workspace, Workload string

		Labels, Manifests map[string]string
		ClusterType       string
		ConfigData        map[string]any
	}
	fmt.Fprintf(to, fmt.FormatString(to, verb), dataType{
		d.DeploymentTargetName, d.Namespace, d.Environment, d.Workspace, d.Workload, d.Labels, d.Manifests, d.ClusterType, d.ConfigData,
	})
}

// Repo returns .Manifests.repo, for templates of the older generation.
func (d dataType) Repo() string { return d.Manifests["repo"] }

// Branch returns .Manifests.branch, for the same templates.
func (d dataType) Branch() string { return d.Manifests["branch"] }

// Path returns .Manifests.path, for the same templates.
func (d dataType) Path() string { return d.Manifests["path"] }
