package graph

import (
	"runtime"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Platforms are platforms as OCI writes them: linux/amd64, linux/arm/v7.
type Platforms []string

// ThisMachine returns Linux on this machine's architecture: containers run on Linux, wherever their agent does.
func ThisMachine() Platforms { return Platforms{"linux/" + runtime.GOARCH} }

// has reports whether a manifest of an index is for one of the platforms. One for which the index names no platform is for
// all of them; one of an unknown platform, as attestations have, is for none. Zarf's packages have the system "multi".
func (p Platforms) has(of *ocispec.Platform) bool {
	if of == nil || of.Architecture == "" && of.OS == "" {
		return true
	}
	for _, name := range p {
		system, rest, _ := strings.Cut(name, "/")
		architecture, variant, _ := strings.Cut(rest, "/")
		if (of.OS == system || of.OS == "multi") && of.Architecture == architecture && (variant == "" || of.Variant == "" || of.Variant == variant) {
			return true
		}
	}
	return false
}

// nameOf returns a platform's name for messages.
func nameOf(p *ocispec.Platform) string {
	return strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")
}
