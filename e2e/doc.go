// Package e2e tests the whole line on real parts: the programs wherry and wherry-agent as child
// processes, a registry, and an API server. The tests carry the build tag e2e, and those that make this
// machine a node of the cluster the tag pods as well; "make e2e" builds what they need and runs them all,
// but those with pods not on a cluster that is given.
// Nothing is skipped: what is missing is a failure. docs/development.md tells how to run one of them, or
// all on a cluster of your own.
package e2e
