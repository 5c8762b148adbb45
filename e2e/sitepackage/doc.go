// Package sitepackage tests that ordinary tools read site packages: oras-go, go-containerregistry, skopeo, crane and
// cosign, none of which knows anything of wherry. It also follows ships that share a stick, with the programs alone. The tests
// have the build tag e2e and need no cluster.
package sitepackage
