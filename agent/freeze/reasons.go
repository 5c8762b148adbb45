package freeze

// Reasons for which the cluster must not be changed. docs/operations.md says of each what to do.
const (
	ReasonPaused               = "Paused"               // a person has paused the agent
	ReasonOutsideMaintenance   = "OutsideMaintenance"   // changes wait for a maintenance window
	ReasonVetoed               = "Vetoed"               // changes wait for the site's veto
	ReasonAnotherAgent         = "AnotherAgent"         // which holds the Lease
	ReasonMemoryUnread         = "MemoryUnread"         // and the machine is new, so that the agent's past is unknown
	ReasonMemoryUnreadable     = "MemoryUnreadable"     // damaged, or of a later version
	ReasonOtherStream          = "OtherStream"          // the cluster followed another stream than the agent is set to
	ReasonBehindMemory         = "BehindMemory"         // the cluster had a newer release than this machine
	ReasonAPIServerUnreachable = "APIServerUnreachable" // so that neither Lease nor memory can be written
)
