package desired

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/hub/store"
)

// ErrNoTrust means that a follower trusts nobody.
var ErrNoTrust = errors.New("this hub trusts no signatures on releases")

// Receive learns from an OCI layout in a tar, of this size in bytes, what a publisher has sent: an environment record, the
// releases that it names, trust documents and all their signatures, under the names that they have below a location. May is
// asked before anything is stored, and its error is returned. If content of releases is missing, the result names it and
// the record is not stored; who sends everything again together with that succeeds.
//
// The error wraps store.ErrInvalid if the archive is not of that kind, ErrNoTrust, or is a *bundle.Refusal.
func (f *Follower) Receive(ctx context.Context, from io.ReaderAt, size int64, may func(platform, environment string) error) (Learned, error) {
	if !f.known.trusts() {
		return Learned{}, ErrNoTrust
	}
	at, err := openArchive(from, size)
	if errors.Is(err, archive.ErrFormat) {
		return Learned{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	if err != nil {
		return Learned{}, err
	}
	names := at.environments()
	if len(names) != 1 {
		return Learned{}, fmt.Errorf("%w: the archive has %d environment records, and has to have one", store.ErrInvalid, len(names))
	}
	done, err := f.learn(ctx, at, names[0], at.named[bundle.EnvironmentRepository(names[0])+"/"+bundle.LatestTag], may)
	if errors.Is(err, archive.ErrFormat) {
		err = fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return done, err
}
