package bundle

import (
	"errors"
	"fmt"
)

// ErrTooLarge is wrapped by errors about content that exceeds a bound.
var ErrTooLarge = errors.New("too large")

// Reason is the code of a refusal; it appears in reports, status and tables.
type Reason string

// The reasons for which an agent refuses a release.
const (
	Unsigned              Reason = "Unsigned"
	UntrustedKey          Reason = "UntrustedKey"
	BelowThreshold        Reason = "BelowThreshold"
	DigestMismatch        Reason = "DigestMismatch"
	WrongPlatform         Reason = "WrongPlatform"
	WrongEnvironment      Reason = "WrongEnvironment"
	WrongClusterType      Reason = "WrongClusterType"
	WrongRing             Reason = "WrongRing"
	OlderRelease          Reason = "OlderRelease"
	OldEpoch              Reason = "OldEpoch"
	Expired               Reason = "Expired"
	TooLarge              Reason = "TooLarge"
	BadContent            Reason = "BadContent"
	TrustDocumentRejected Reason = "TrustDocumentRejected"
	// UnsupportedSchema means a format that only a newer version of wherry reads.
	UnsupportedSchema Reason = "UnsupportedSchema"
)

// tooNew ends the message about a document in a format of a later version.
const tooNew = "it needs a newer version of wherry"

// Refusal is the error for content that was read and is not trusted. Other errors of this package's
// functions mean that content could not be read; trying again can help. This package keeps each Message short enough for
// a report, whatever name or value it quotes.
type Refusal struct {
	Reason  Reason
	Message string
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// Is makes errors.Is(err, ErrTooLarge) true for refusals with the reason TooLarge.
func (r *Refusal) Is(target error) bool { return target == ErrTooLarge && r.Reason == TooLarge }

// Refuse returns a refusal with a message that is short enough for a report.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: Clip(fmt.Sprintf(format, args...))}
}
