package flags

import (
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/scheduler"
)

// ParseLocation reads the location that is an argument, or the value of a flag with that name.
func ParseLocation(flag, text string) (oci.Location, error) {
	loc, err := oci.Parse(text)
	return loc, wrong(flag, err)
}

// ParseReference reads the reference that is an argument.
func ParseReference(text string) (oci.Reference, error) {
	ref, err := oci.ParseReference(text)
	return ref, wrong("", err)
}

// CheckName checks the value of a flag that names an environment or a cluster type.
func CheckName(flag, name string) error { return wrong(flag, oci.CheckName(name)) }

// ParseValidity reads the value of a flag that says how long a document or a release is valid.
func ParseValidity(flag, text string) (time.Duration, error) {
	d, err := scheduler.ParseValidity(text)
	return d, wrong(flag, err)
}

// wrong is the error of an argument, or of a flag's value.
func wrong(flag string, err error) error {
	if err == nil {
		return nil
	}
	if flag != "" {
		err = fmt.Errorf("--%s: %w", flag, err)
	}
	return cli.Fail(cli.Usage, err, "")
}
