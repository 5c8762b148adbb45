package fleet

import (
	"context"
	"errors"
)

// The answers that are not there yet.

// Releases implements Answers.
func (v *View) Releases(context.Context, Query) (Releases, error) {
	return Releases{}, errors.ErrUnsupported
}

// Release implements Answers.
func (v *View) Release(context.Context, string, Query) (ReleaseDetail, error) {
	return ReleaseDetail{}, errors.ErrUnsupported
}

// Environments implements Answers.
func (v *View) Environments(context.Context, Query) (Environments, error) {
	return Environments{}, errors.ErrUnsupported
}

// Drift implements Answers.
func (v *View) Drift(context.Context, Query) (Drifts, error) { return Drifts{}, errors.ErrUnsupported }
