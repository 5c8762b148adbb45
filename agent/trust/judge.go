package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// Judge is what a release is judged by.
type Judge struct {
	bundle.Trust
	// Document is the one in force, nil where keys are pinned.
	Document *bundle.TrustDocument
}

// Judge returns the trust in force at this moment: the newest trust document, or the pinned keys of an agent
// that has none.
func (s *Store) Judge(pinned bundle.Trust) Judge {
	if d := s.InForce(); d != nil {
		return Judge{d.Trust(), d}
	}
	return Judge{pinned, nil}
}

// Version returns the version of the document in force, 0 without one.
func (j Judge) Version() int64 {
	if j.Document == nil {
		return 0
	}
	return j.Document.Version
}

// Admits returns nil if the document may admit a new release at the time now; see bundle.TrustDocument.Admits.
func (j Judge) Admits(platform string, now time.Time) error {
	if j.Document == nil {
		return nil
	}
	return j.Document.Admits(platform, now)
}

// Sum identifies all inputs of judging a release, so that a refused release is judged again after a change: j, the
// agent's stream and ring, and the version of this program, which may read formats that the one before could not.
func (j Judge) Sum(program string, stream bundle.Stream, ring string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %d %d %s", program, stream, ring, j.Version(), j.Epoch, j.Threshold, strings.Join(KeyIDs(j.Keys), " ")))
	return hex.EncodeToString(sum[:8])
}

// KeyIDs returns the ids of keys, sorted.
func KeyIDs(keys bundle.Keys) (ids []string) {
	for _, k := range keys {
		if id, err := bundle.KeyID(k); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
