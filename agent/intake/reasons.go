package intake

import "github.com/wherry-dev/wherry/bundle"

// Reasons for which a stream of a package is not taken, beside those of refusals. docs/sites/air-gap.md says of each what
// to do.
const (
	ReasonLacksBase  bundle.Reason = "LacksBase"         // it leaves out what the site should have, and has not
	ReasonIncomplete bundle.Reason = "PackageIncomplete" // it lacks content without saying so
	// ReasonLacksPlatform means that the package has an image for other platforms than the site's.
	ReasonLacksPlatform bundle.Reason = "LacksPlatform"
	ReasonNoRoom        bundle.Reason = "NoRoom" // it does not fit on the disk or into its budget
)
