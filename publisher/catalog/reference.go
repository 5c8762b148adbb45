package catalog

import (
	"fmt"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// bundleRepository finds where a location's prefix ends.
var bundleRepository = lazyregexp.New(`^(?:(.+)/)?(bundles/[^/]+/[^/]+)$`)

// BundleReference returns ref with its path split into the location's prefix and the repository, which must be a bundle's.
func BundleReference(ref oci.Reference) (oci.Reference, error) {
	name := ref.Repository
	if dir, tag, ok := cutLast(name); ok && ref.Location.Local() && ref.Tag == "" && ref.Digest == "" && strings.Count(name, "/") == 3 {
		name, ref.Tag = dir, tag // DIR/bundles/dev/drone/latest, as a layout's index has it
	}
	m := bundleRepository.FindStringSubmatch(name)
	if m == nil || m[1] != "" && ref.Location.Local() {
		return ref, fmt.Errorf("%s names no bundle, which is LOCATION/bundles/ENVIRONMENT/TYPE", ref)
	}
	if ref.Repository = m[2]; m[1] != "" {
		ref.Location.Prefix = m[1]
	}
	return ref, nil
}

func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}
