package oci

import (
	"fmt"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry"
)

// The schemes of a location.
const (
	schemeRegistry = "oci://"
	schemeLayout   = "oci-layout:"
	schemeArchive  = "oci-archive:"
)

// Location is a place for bundles: a prefix of a registry, an OCI layout on disk, or one in a tar, which is only read.
type Location struct {
	// Host is the registry's name or address, with a port where it has one.
	Host string
	// Prefix is the path in the registry below which the repositories lie. It may be empty.
	Prefix string
	// Dir is the layout's folder; Host and Prefix are empty where it is set.
	Dir string
	// Archive is the tar's path, that of a folder with one such file, or those of its parts, separated by commas; all
	// else is empty where it is set.
	Archive string
}

// Local reports whether l is a folder or an archive.
func (l Location) Local() bool { return l.Dir != "" || l.Archive != "" }

// IsLocation reports whether s is written as a location; it may still be wrong.
func IsLocation(s string) bool {
	return strings.HasPrefix(s, schemeArchive) || strings.HasPrefix(s, schemeLayout) || strings.HasPrefix(s, schemeRegistry)
}

// Parse reads oci://HOST/PREFIX, oci-layout:DIR or oci-archive:FILE.
func Parse(s string) (Location, error) {
	if files, ok := strings.CutPrefix(s, schemeArchive); ok {
		if slices.Contains(strings.Split(files, ","), "") {
			return Location{}, fmt.Errorf("location %q names no file: write oci-archive:FILE", s)
		}
		return Location{Archive: files}, nil
	}
	if dir, ok := strings.CutPrefix(s, schemeLayout); ok {
		if dir == "" {
			return Location{}, fmt.Errorf("location %q names no folder: write oci-layout:DIR", s)
		}
		return Location{Dir: dir}, nil
	}
	rest, ok := strings.CutPrefix(s, schemeRegistry)
	if !ok {
		return Location{}, fmt.Errorf("location %q: write oci://HOST/PREFIX for a registry, oci-layout:DIR for a folder or, to read, oci-archive:FILE", s)
	}
	host, prefix, _ := strings.Cut(rest, "/")
	if err := CheckHost(host); err != nil {
		return Location{}, fmt.Errorf("location %q: %w", s, err)
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix != "" {
		if err := CheckName(prefix); err != nil {
			return Location{}, fmt.Errorf("location %q: prefix: %w", s, err)
		}
	}
	return Location{Host: host, Prefix: prefix}, nil
}

// CheckHost returns an error unless host is a registry's name or address, with an optional port.
func CheckHost(host string) error {
	if host == "" {
		return fmt.Errorf("no registry host: write oci://HOST/PREFIX")
	}
	if strings.Contains(host, "@") {
		return fmt.Errorf("credentials do not belong into a location: use wherry login")
	}
	if err := (registry.Reference{Registry: host}).ValidateRegistry(); err != nil {
		return fmt.Errorf("%q is not a registry host", host)
	}
	return nil
}

// CheckName returns an error unless name is a valid name of a repository, or of one component of it. See OCI
// distribution-spec v1.1, "Pulling manifests".
func CheckName(name string) error {
	if len(name) > 255 {
		return fmt.Errorf("repository name of %d characters, at most 255 are allowed", len(name))
	}
	switch {
	case (registry.Reference{Repository: name}).ValidateRepository() == nil:
		return nil
	case (registry.Reference{Repository: strings.ToLower(name)}).ValidateRepository() == nil:
		return fmt.Errorf("%q is not a repository name: registries allow lower case only", name)
	}
	return fmt.Errorf("%q is not a repository name: each part is lower-case letters and digits, joined by single '.', '_' or by '-'", name)
}

// CheckTag returns an error unless tag is valid: up to 128 letters, digits, '.', '_' and '-', of which the first is
// neither '.' nor '-'.
func CheckTag(tag string) error {
	if (registry.Reference{Reference: tag}).ValidateReferenceAsTag() != nil {
		return fmt.Errorf("%q is not a tag: up to 128 letters, digits, '.', '_' and '-'", tag)
	}
	return nil
}

// String returns what Parse reads.
func (l Location) String() string {
	switch {
	case l.Dir != "":
		return schemeLayout + l.Dir
	case l.Archive != "":
		return schemeArchive + l.Archive
	}
	return schemeRegistry + join(l.Host, l.Prefix)
}

// Name returns the full name of a repository below the prefix, as docker would write it. In a layout
// or an archive it is the name itself.
func (l Location) Name(repository string) string {
	if l.Local() {
		return repository
	}
	return join(join(l.Host, l.Prefix), repository)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "/" + b
}
