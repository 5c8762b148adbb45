package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/similar"
)

// NoEnvironmentError means that nothing was ever published in an environment, at a location that has others: its
// name is mistyped, most likely. Where there are no others yet, or the registry does not say, that is no error.
type NoEnvironmentError struct {
	Location    oci.Location
	Environment string
	// Others are those that are there, sorted; one at least.
	Others []string
}

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
		if part := strings.Split(name, "/"); len(part) == 2 && part[0] == "environments" || len(part) == 3 && part[0] == "bundles" {
			others = append(others, part[1])
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
	near := similar.To(ref.Repository, bundles)
	return oci.Reference{Location: ref.Location, Repository: near}, near != ""
}
