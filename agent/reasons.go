package agent

// The reasons that the agent itself gives for a state, beside those of refusals (bundle.Reason) and of its engines,
// which each reconciler's package has. Those of assignments are in agent/assignments, and those for
// which the cluster must not be changed in agent/freeze. docs/operations.md says of each
// what to do.

// Reasons of the agent as a whole.
const (
	ReasonNoRelease      = "NoRelease"      // there has been nothing to run yet
	ReasonNotFound       = "NotFound"       // the registry answers, and has no such release
	ReasonUnreachable    = "Unreachable"    // the registry does not answer, or not correctly
	ReasonOutsideWindow  = "OutsideWindow"  // a newer release waits for Options.Window
	ReasonLocalFailure   = "LocalFailure"   // this machine has failed
	ReasonRebinding      = "Rebinding"      // no release of the new stream is here yet
	ReasonHeldByOperator = "HeldByOperator" // a person has rolled back
	ReasonQuarantined    = "Quarantined"    // the newest release was given up
	ReasonOnFailureHold  = "OnFailureHold"  // a failing release stays: a failing assignment has on-failure hold
	ReasonNoGoodRelease  = "NoGoodRelease"  // a failing release stays: none has proved good yet, in this stream and epoch

	// The registry names a host as its token service that its credentials may not be sent to.
	ReasonCredentialsWithheld = "CredentialsWithheld"
)

// Reasons for which a release is given up. CrashLoop is also the agent's where it rests after one.
const (
	ReasonAssignmentsFailed = "AssignmentsFailed" // assignments that it has changed fail again and again
	ReasonCrashLoop         = "CrashLoop"         // the agent dies whenever it applies it
)

// Reasons of what needs a person and stops nothing.
const (
	ReasonMemoryDenied   = "MemoryDenied"   // permissions are missing
	ReasonLeaseDenied    = "LeaseDenied"    // permissions are missing
	ReasonMemoryTooLarge = "MemoryTooLarge" // the inventory has no room
	ReasonClockBehind    = "ClockBehind"    // this machine's clock is behind the newest verified time of issue

	// A hub gives these, for problems with the agent's identity.
	ReasonSharedIdentity = "SharedIdentity" // a second agent has its key
	ReasonRetired        = "Retired"        // its cluster was retired
	ReasonKeyReplaced    = "KeyReplaced"    // the cluster has another key
)
