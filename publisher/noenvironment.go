package publisher

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/scheduler"
)

// NoEnvironmentError means that nothing was ever published in an environment, at a location that has others: its
// name is mistyped, most likely. Where there are no others yet, or the registry does not say, that is no error.
type NoEnvironmentError struct {
	Location    oci.Location
	Environment string
	// Others are those that are there, sorted; one at least.
	Others []string
}

// maxNamedEnvironments bounds how many the message names.
const maxNamedEnvironments = 10

func (e *NoEnvironmentError) Error() string {
	others, more := e.Others, ""
	if n := len(others) - maxNamedEnvironments; n > 0 {
		others, more = others[:maxNamedEnvironments], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("nothing was ever published in environment %s at %s: it has %s%s", e.Environment, e.Location, strings.Join(others, ", "), more)
}

// lackOf returns a NoEnvironmentError unless one of the repositories at loc is environment's, or there are none.
func lackOf(environment string, loc oci.Location, repositories []string) error {
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

// CodeNoEnvironment is of the [scheduler.InputError] for an environment that is none of those that Environment objects name.
const CodeNoEnvironment = "E1306"

// checkEnvironment refuses what is most probably a mistyped name: no workload has targets for it, so all that would
// be published are empty releases. Where there is no Environment object at all, nothing says which names are right.
func (l *loader) checkEnvironment(ctx context.Context) error {
	if err := l.inferFromAll(ctx); err != nil {
		return err
	}
	var known []string
	for _, e := range l.loaded.Model.Environments() {
		known = append(known, e.Name)
	}
	if l.named {
		return nil
	}
	if len(known) == 0 || slices.Contains(known, l.Environment) {
		return l.checkPlace()
	}
	return l.noEnvironment(known)
}

func (l *loader) noEnvironment(known []string) error {
	return &scheduler.InputError{
		Code: CodeNoEnvironment, Message: fmt.Sprintf("no Environment object is called %q", l.Environment), Hint: "there are: " + strings.Join(known, ", "),
	}
}
