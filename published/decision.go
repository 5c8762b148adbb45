package published

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
)

// UnverifiedDecision is a decision about promotion as it lies in the repository of an environment.
type UnverifiedDecision struct {
	bundle.Decision
	// KeyID is that of the key that is said to have signed the envelope.
	KeyID    string
	Envelope []byte
}

// Decision returns the decision under a tag.
func (e Environment) Decision(ctx context.Context, tag string) (UnverifiedDecision, error) {
	envelope, err := bundle.FetchDecision(ctx, e.Repo, tag)
	if err != nil {
		return UnverifiedDecision{}, err
	}
	d, id, err := bundle.ReadDecision(envelope)
	return UnverifiedDecision{d, id, envelope}, err
}

// BelongsTo reports whether d is about the environment e and belongs under the tag.
func (d UnverifiedDecision) BelongsTo(e Environment, tag string) bool {
	return d.Environment == e.Environment && d.HasTag(tag, d.KeyID, d.Envelope)
}
