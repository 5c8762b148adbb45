package assignments

// The reasons that the agent itself gives for how an assignment stands. Its engines have theirs. docs/operations.md
// says of each what to do.
const (
	ReasonAdapterUnavailable = "AdapterUnavailable" // its engine is not configured on this agent
	ReasonDependencyNotReady = "DependencyNotReady" // it waits for what it depends on
	ReasonWaveNotReady       = "WaveNotReady"       // it waits for an earlier wave
	ReasonSettling           = "Settling"           // compliant, and not for long enough to count
	ReasonDeadlineExceeded   = "DeadlineExceeded"   // progressing for longer than the agent's deadline
	ReasonDriftCorrected     = "DriftCorrected"     // somebody else had changed it
	ReasonRemoving           = "Removing"           // no longer released, and not gone yet
	ReasonOrphaned           = "Orphaned"           // it was removed from the agent's care only
)
