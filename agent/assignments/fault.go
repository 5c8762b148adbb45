package assignments

import (
	"cmp"
	"slices"

	"github.com/wherry-dev/wherry/reconcilers"
)

// fault returns whose fault the failure of an assignment is.
func (r Record) fault() reconcilers.Fault {
	return cmp.Or(r.Fault, faultBefore(r.Item.Adapter, r.Item.Reason))
}

// siteReasons are the reasons of failures that no other release would mend, as the versions of the agent had them
// that did not keep the fault. Reasons that are new since are not added.
var siteReasons = []string{
	ReasonAdapterUnavailable, "ArtifactForbidden", "EngineMissing", "LedgerUnreadable", "NoCluster", "NotInitialized",
	"NotOurs", "NotWritable", "Unreachable", "ZarfNotFound", "ZarfTooOld",
}

// faultBefore returns the fault of a failure that such a version has recorded. It counts until the assignment is
// observed again.
func faultBefore(adapter, reason string) reconcilers.Fault {
	engineMissing := reason == "KindNotServed" && (adapter == "flux" || adapter == "argo") // the engine's own kinds
	if engineMissing || slices.Contains(siteReasons, reason) {
		return reconcilers.FaultSite
	}
	return reconcilers.FaultRelease
}
