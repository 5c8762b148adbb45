package assignments

// The agent's own reasons for the state of an assignment. Its engines have theirs. docs/operations.md has advice for
// each.
const (
	ReasonAdapterUnavailable = "AdapterUnavailable" // its engine is not configured on this agent
	ReasonDependencyNotReady = "DependencyNotReady" // it waits for an assignment that it depends on
	ReasonWaveNotReady       = "WaveNotReady"       // it waits for an earlier wave
	ReasonSettling           = "Settling"           // compliant, and not for long enough to count
	ReasonDeadlineExceeded   = "DeadlineExceeded"   // progressing for longer than the agent's deadline
	ReasonDriftCorrected     = "DriftCorrected"     // somebody else had changed it
	ReasonRemoving           = "Removing"           // no longer released, and not gone yet
	ReasonOrphaned           = "Orphaned"           // it was removed from the agent's care only
	ReasonSiteValueMissing   = "SiteValueMissing"   // a site value that it uses is missing, or not valid
	ReasonSiteValuesInvalid  = "SiteValuesInvalid"  // the site's own values cannot be read
	ReasonAgentDied          = "AgentDied"          // the agent has died twice in a row while it was applied
	ReasonTooLarge           = "TooLarge"           // its manifests are more than the agent decodes
	ReasonSiteFolderNotMade  = "SiteFolderNotMade"  // this machine cannot write its files with the site's values
)
