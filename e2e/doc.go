// Package e2e tests the whole flow with real parts: the programs wherry and wherry-agent as child
// processes, a registry, and an API server. The tests have the build tag e2e, and those that make this
// machine a node of the cluster the tag pods as well. "make e2e" builds the required programs and runs all tests,
// except those with pods if it is given a cluster.
// No test is skipped: a missing program is a failure. docs/development.md describes how to run one test, or
// all tests on a cluster of your own.
package e2e
