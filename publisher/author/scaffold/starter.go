package scaffold

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
