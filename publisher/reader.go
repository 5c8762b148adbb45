package publisher

import (
	"fmt"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// reader finds what stands of an environment at a location, and what waits for signatures there. It judges all of it by
// the trust in force and writes nothing.
type reader struct {
	to    oci.Location
	store oci.Store
	trust trust.Signers
	// issuedAt is the time of the run, to the second: what is read is judged then, and what is made is issued then.
	issuedAt              time.Time
	platform, environment string
	warn                  func(format string, args ...any)
}

// newReader returns a reader of done's environment that adds its warnings to done, each once.
func newReader(to oci.Location, store oci.Store, signers trust.Signers, now time.Time, done *Published) reader {
	return reader{
		to: to, store: store, trust: signers, issuedAt: now.UTC().Truncate(time.Second),
		platform: done.Platform, environment: done.Environment,
		warn: func(format string, args ...any) {
			if w := fmt.Sprintf(format, args...); !slices.Contains(done.Warnings, w) {
				done.Warnings = append(done.Warnings, w)
			}
		},
	}
}
