package carry

// The reasons for which assignments wait for their artifacts. docs/operations.md says of each what to do.
const (
	ReasonCarrying            = "Carrying"            // artifacts are being brought to the store
	ReasonNoRoom              = "NoRoom"              // the budget, or the disk, has no room for them
	ReasonCarriedLater        = "CarriedLater"        // the transfer window is closed
	ReasonArtifactNotFound    = "ArtifactNotFound"    // no registry has one of them
	ReasonArtifactForbidden   = "ArtifactForbidden"   // the registry wants a login, or another one
	ReasonArtifactUnreachable = "ArtifactUnreachable" // the registry does not answer, or not correctly
	ReasonArtifactMismatch    = "ArtifactMismatch"    // the registry serves something else
	ReasonInvalidArtifact     = "InvalidArtifact"     // it is no artifact, has no digest, or is for no platform of the cluster
	ReasonStoreFailed         = "StoreFailed"         // the disk has failed
)
