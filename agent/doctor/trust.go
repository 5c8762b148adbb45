package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/show"
)

// renew is the remedy for a trust document that has expired, or soon will.
const renew = `have the roots sign the next version and publish it; "wherry trust" has the commands`

// checkTrust looks for the newest trust document, as the agent would before a new release, and keeps it for the
// check of the release.
func checkTrust(ctx context.Context, e *examination) diagnosis.Finding {
	if len(e.Trust) == 0 {
		return checkPinned(e)
	}
	if d := e.Trust.Current(); d.Platform != e.Cluster.Platform {
		return diagnosis.Failf("compare --platform with the trust document that the agent was given", "the trust document is for platform %q, this agent belongs to %q", d.Platform, e.Cluster.Platform)
	}
	newest := "no newer one was looked for"
	if e.source != nil {
		newest = "the registry has no newer one"
		if err := e.newest(ctx); errors.As(err, new(*bundle.Refusal)) {
			return diagnosis.Failf("find out who has put it there, and publish the one that the roots have signed; until then no new release is accepted", "%v", err)
		} else if err != nil {
			return diagnosis.Failf(registryRemedy(err), "%v", err)
		}
	}
	d := e.Trust.Current()
	status := trust.Known{Chain: e.Trust}.Status(e.Now())
	message := fmt.Sprintf("version %d, epoch %d, valid until %s; %s; releases need %d of %d keys",
		d.Version, d.Epoch, d.ExpiresAt.Format(time.RFC3339), newest, d.Release.Threshold, len(d.Release.Keys))
	if len(e.Pinned.Keys) > 0 {
		message += "; pinned keys no longer count"
	}
	switch {
	case status.Expired:
		return diagnosis.Failf(renew, "%s; it has expired: no new release is accepted", message)
	case status.Soon():
		return diagnosis.Warnf(renew, "%s; it expires in %s", message, show.Days(status.DaysLeft))
	default:
		return diagnosis.Okf("%s", message)
	}
}

// checkPinned lists the keys that count if there is no trust document.
func checkPinned(e *examination) diagnosis.Finding {
	var ids []string
	for _, k := range e.Pinned.Keys {
		id, err := bundle.KeyID(k)
		if err != nil {
			return diagnosis.Failf("name another file with --key", "%v", err)
		}
		ids = append(ids, id[:shownKeyID])
	}
	if len(ids) == 0 {
		return diagnosis.Failf("name a public key with --key, or a trust document with --trust", "no key is trusted: no release is accepted")
	}
	return diagnosis.Okf("%s pinned, and no trust document: %s", show.Count(len(ids), "key"), strings.Join(ids, ", "))
}

// shownKeyID is how much of a key's id is shown, in hex digits.
const shownKeyID = 12

// newest walks the registry's versions.
func (e *examination) newest(ctx context.Context) error {
	src, err := e.documents(nil)
	for more := err == nil; more; {
		e.Trust, more, err = e.Trust.Next(ctx, src)
	}
	return err
}
