package releases

// Outcome is what publishing did for one cluster type or the environment record.
type Outcome string

// The outcomes.
const (
	// OutcomePublished means that a release was pushed, or that one which an interrupted run had pushed got its tags.
	OutcomePublished Outcome = "published"
	// OutcomeUnchanged means that the newest release is this one already.
	OutcomeUnchanged Outcome = "unchanged"
	// OutcomePending means that all is there, and waits for the signatures of others: agents see nothing of it.
	OutcomePending Outcome = "pending"
	// OutcomeFailed means that the newest release stays as it was; Reason and Failures say why.
	OutcomeFailed Outcome = "failed"
	// OutcomeSkipped means that nothing was done because something else failed and Strict is set.
	OutcomeSkipped Outcome = "skipped"
)
