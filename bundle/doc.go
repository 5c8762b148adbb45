// Package bundle is the format that both ends of wherry agree on: media types, the release document,
// the tree of rendered files, signatures, and compliance reports.
//
// A publisher calls Pack and SignManifest; an agent calls Verify, judges the release with Expect.Check,
// and only then fetches the tree and calls Unpack. Errors of type *Refusal say that content was read
// and is not trusted; other errors say that it could not be read.
//
// The package knows nothing of registries, clusters or git, imports no sibling, and keeps no state.
package bundle
