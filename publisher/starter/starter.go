// Package starter holds files for platforms that begin: YAML to copy into a platform repository, and to change there.
//
// [NamespaceService] is the Template of a namespace with quota, limits, network policies and rights for the groups of a
// workspace. [ClusterRole] is what a site applies for it. The example "namespaces" has the same files, and tests render and
// apply them there.
package starter

import _ "embed"

// NamespaceServiceName is the name of the Template, for spec.namespaceService of a ClusterType.
const NamespaceServiceName = "namespace-service"

// NamespaceService is the Template of a namespace as a service.
//
//go:embed namespace-service.yaml
var NamespaceService []byte

// ClusterRole holds the ClusterRole wherry-workspace and the agent's permissions for it. A person applies it to a cluster.
//
//go:embed cluster-role.yaml
var ClusterRole []byte
