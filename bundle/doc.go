// Package bundle is the format that both ends of wherry agree on: media types, the release document,
// the tree of rendered files, signatures, and compliance reports.
//
// A publisher calls Pack and SignManifest; an agent calls Verify, judges the release with Expect.Check,
// and only then fetches the tree and calls Unpack. An error of type *Refusal means that content was read
// and is not trusted; any other error means that it could not be read.
//
// The package knows nothing of registries, clusters or git, imports no sibling, and keeps no state.
package bundle
