package agent

// The reasons that the agent itself gives for a state, beside those of refusals (bundle.Reason) and of its engines,
// which each reconciler's package has. Those of assignments are in agent/assignments. docs/operations.md says of each
// what to do.

// Reasons of the agent as a whole.
const (
	ReasonNoRelease      = "NoRelease"      // there has been nothing to run yet
	ReasonNotFound       = "NotFound"       // the registry answers, and has no such release
	ReasonUnreachable    = "Unreachable"    // the registry does not answer, or not as it should
	ReasonOutsideWindow  = "OutsideWindow"  // a newer release waits for Options.Window
	ReasonLocalFailure   = "LocalFailure"   // this machine did not do its part
	ReasonRebinding      = "Rebinding"      // nothing is here yet of what it is to follow
	ReasonHeldByOperator = "HeldByOperator" // a person has decided what runs
	ReasonQuarantined    = "Quarantined"    // the newest release was given up
	ReasonOnFailureHold  = "OnFailureHold"  // a release that fails stays: what fails asks for it
	ReasonNoGoodRelease  = "NoGoodRelease"  // a release that fails stays: none has proved good yet, in this stream and epoch

	// The registry names a host as its token service that its credentials may not be sent to.
	ReasonCredentialsWithheld = "CredentialsWithheld"
)

// Reasons for which a release is given up. CrashLoop is also the agent's where it rests after one.
const (
	ReasonAssignmentsFailed = "AssignmentsFailed" // what it has changed fails, again and again
	ReasonCrashLoop         = "CrashLoop"         // the agent dies whenever it applies it
)

// Reasons for which the cluster must not be changed.
const (
	ReasonPaused               = "Paused"               // a person wants it so
	ReasonOutsideMaintenance   = "OutsideMaintenance"   // what is to be changed waits for Options.Maintenance
	ReasonVetoed               = "Vetoed"               // what is to be changed waits for Options.Veto
	ReasonAnotherAgent         = "AnotherAgent"         // which holds the Lease
	ReasonMemoryUnread         = "MemoryUnread"         // and the machine is new, so that nobody knows what it did before
	ReasonMemoryUnreadable     = "MemoryUnreadable"     // damaged, or of a later version
	ReasonOtherStream          = "OtherStream"          // the cluster followed another stream than the agent is set to
	ReasonBehindMemory         = "BehindMemory"         // the cluster had a newer release than what is here
	ReasonAPIServerUnreachable = "APIServerUnreachable" // so that neither Lease nor memory can be written
)

// Reasons of what needs a person and stops nothing.
const (
	ReasonMemoryDenied   = "MemoryDenied"   // permissions are missing
	ReasonLeaseDenied    = "LeaseDenied"    // permissions are missing
	ReasonMemoryTooLarge = "MemoryTooLarge" // the inventory has no room
	ReasonClockBehind    = "ClockBehind"    // this machine's clock is earlier than what was verified

	// A hub gives these, for what is wrong with who the agent is.
	ReasonSharedIdentity = "SharedIdentity" // a second agent has its key
	ReasonRetired        = "Retired"        // its cluster is expected no more
	ReasonKeyReplaced    = "KeyReplaced"    // the cluster has another key
)
