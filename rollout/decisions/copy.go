package decisions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/copier"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// CopyEnvironment copies an environment as [copier.Environment] does, and then the decisions about it. A later one of the same person
// stays. Too many decisions, and those that may not be read, are left out with a warning. A site package carries none.
func CopyEnvironment(ctx context.Context, from oci.Location, environment string, to oci.Location, opts copier.Options) (*copier.Copied, error) {
	done, err := copier.Environment(ctx, from, environment, to, opts)
	if err != nil || from.Archive != "" {
		return done, err
	}
	warn := func(format string, args ...any) { done.Warnings = append(done.Warnings, fmt.Sprintf(format, args...)) }
	defer func() { slices.Sort(done.Warnings) }()
	found, err := NewReader(from, opts.From, environment, warn).read(ctx, false, everything)
	if errors.Is(err, ErrTooMany) || oci.Refused(err) {
		warn("decisions are not copied: %v", err)
		return done, nil
	}
	if err != nil {
		return done, &copier.Error{At: from, Err: err}
	}
	for _, f := range found {
		d, id, err := bundle.ReadDecision(f.Envelope)
		if err != nil || d.Environment != environment || d.Tag(id) != f.Tag {
			continue
		}
		written, err := Put(ctx, to, opts.To, f.Envelope)
		switch {
		case errors.Is(err, ErrNewer):
		case err != nil:
			return done, &copier.Error{At: to, Err: err}
		case written.Result == releases.OutcomePublished:
			done.Decisions++
		}
	}
	return done, nil
}
