package published

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
)

// StreamOf returns the stream, without a platform, whose releases a repository has.
func StreamOf(repository string) (bundle.Stream, bool) {
	part := strings.Split(repository, "/")
	if len(part) != 3 || part[0] != "bundles" {
		return bundle.Stream{}, false
	}
	return bundle.Stream{Environment: part[1], ClusterType: part[2]}, true
}

// EnvironmentOf returns the environment whose records a repository has.
func EnvironmentOf(repository string) (string, bool) {
	name, ok := strings.CutPrefix(repository, bundle.EnvironmentRepository(""))
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// StreamsOf returns the streams of an environment, or of all if that is empty, that have a repository, without their platform.
func StreamsOf(repositories []string, environment string) (all []bundle.Stream) {
	for _, name := range repositories {
		if s, ok := StreamOf(name); ok && (environment == "" || s.Environment == environment) {
			all = append(all, s)
		}
	}
	return all
}

// ours finds where a location's prefix ends.
var ours = lazyregexp.New(`^(?:(.+)/)?((?:bundles/[^/]+|environments)/[^/]+)$`)

// Split returns ref with its path split into the location's prefix and the repository of releases or records. It returns false if
// the path names no such repository.
func Split(ref oci.Reference) (oci.Reference, bool) {
	m := ours.FindStringSubmatch(ref.Repository)
	if i := strings.LastIndexByte(ref.Repository, '/'); m == nil && i >= 0 && ref.Location.Local() && ref.Tag == "" && ref.Digest == "" {
		m = ours.FindStringSubmatch(ref.Repository[:i]) // DIR/bundles/dev/drone/latest, as a layout's index has it
		ref.Tag = ref.Repository[i+1:]
	}
	if m == nil || m[1] != "" && ref.Location.Local() {
		return ref, false
	}
	if ref.Repository = m[2]; m[1] != "" {
		ref.Location.Prefix = m[1]
	}
	return ref, true
}

// BundleReference is Split for a bundle. The error says what a bundle's reference is like.
func BundleReference(ref oci.Reference) (oci.Reference, error) {
	split, ok := Split(ref)
	if _, bundle := StreamOf(split.Repository); !ok || !bundle {
		return ref, fmt.Errorf("%s names no bundle, which is LOCATION/bundles/ENVIRONMENT/TYPE", ref)
	}
	return split, nil
}

// NoEnvironmentError means that nothing was ever published in an environment, at a location that has others: its
// name is mistyped, most likely. Where there are no others yet, or the registry does not say, that is no error.
type NoEnvironmentError struct {
	Location    oci.Location
	Environment string
	// Others are those that are there, sorted; one at least.
	Others []string
}

// ErrNothingPublished is wrapped by the error of a location, without any environment, where something published is needed.
var ErrNothingPublished = errors.New("nothing was ever published there")

// maxNamed bounds how many the message names.
const maxNamed = 10

func (e *NoEnvironmentError) Error() string {
	others, more := e.Others, ""
	if n := len(others) - maxNamed; n > 0 {
		others, more = others[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("nothing was ever published in environment %s at %s: it has %s%s", e.Environment, e.Location, strings.Join(others, ", "), more)
}

// CheckEnvironment returns a NoEnvironmentError unless one of the repositories at loc is environment's, or there are none.
func CheckEnvironment(environment string, loc oci.Location, repositories []string) error {
	var others []string
	for _, name := range repositories {
		if e, ok := EnvironmentOf(name); ok {
			others = append(others, e)
		} else if s, ok := StreamOf(name); ok {
			others = append(others, s.Environment)
		}
	}
	if len(others) == 0 || slices.Contains(others, environment) {
		return nil
	}
	slices.Sort(others)
	return &NoEnvironmentError{Location: loc, Environment: environment, Others: slices.Compact(others)}
}

// NearestBundle returns the bundle at ref's location, LOCATION/bundles/ENVIRONMENT/TYPE, whose name ref most likely
// mistypes. It returns false where no name is near, and where the registry does not list its repositories.
func NearestBundle(ctx context.Context, ref oci.Reference, opts oci.Options) (oci.Reference, bool) {
	ref, err := BundleReference(ref)
	if err != nil {
		return ref, false
	}
	store, err := ref.Location.Open(opts)
	if err != nil {
		return ref, false
	}
	repositories, err := store.Repositories(ctx)
	if err != nil {
		return ref, false
	}
	bundles := slices.DeleteFunc(repositories, func(name string) bool {
		return !strings.HasPrefix(name, "bundles/") || name == ref.Repository
	})
	near := show.Nearest(ref.Repository, bundles)
	return oci.Reference{Location: ref.Location, Repository: near}, near != ""
}
