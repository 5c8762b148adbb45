package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// renew is what to do about a trust document that lets nothing new in, or soon will not.
const renew = `have the roots sign the next version and publish it; "wherry trust" has the commands`

// trust looks for the newest trust document, as the agent would before a new release, and keeps it for the
// check of the release.
func (e *examination) trust(ctx context.Context) {
	const check = "trust"
	if len(e.Trust) == 0 {
		e.pinned(check)
		return
	}
	if d := e.Trust.Current(); d.Platform != e.Cluster.Platform {
		e.failed(check, "compare --platform with the trust document that the agent was given", "the trust document is for platform %q, this agent belongs to %q", d.Platform, e.Cluster.Platform)
		return
	}
	newest := "no newer one was looked for"
	if e.source != nil {
		newest = "the registry has no newer one"
		if err := e.newest(ctx); errors.As(err, new(*bundle.Refusal)) {
			e.failed(check, "find out who has put it there, and publish the one that the roots have signed; until then no new release is accepted", "%v", err)
			return
		} else if err != nil {
			e.failed(check, registryRemedy(err), "%v", err)
			return
		}
	}
	d := e.Trust.Current()
	status := agent.Trust{Chain: e.Trust}.Status(e.Now())
	message := fmt.Sprintf("version %d, epoch %d, valid until %s; %s; releases need %d of %d keys",
		d.Version, d.Epoch, d.ExpiresAt.Format(time.RFC3339), newest, d.Release.Threshold, len(d.Release.Keys))
	if len(e.Pinned.Keys) > 0 {
		message += "; pinned keys count no more"
	}
	switch {
	case status.Expired:
		e.failed(check, renew, "%s; it has expired: no new release is accepted", message)
	case status.Soon():
		e.warned(check, renew, "%s; it expires in %s", message, cli.Days(status.DaysLeft))
	default:
		e.ok(check, "%s", message)
	}
}

// pinned says which keys count where there is no trust document.
func (e *examination) pinned(check string) {
	var ids []string
	for _, k := range e.Pinned.Keys {
		id, err := bundle.KeyID(k)
		if err != nil {
			e.failed(check, "name another file with --key", "%v", err)
			return
		}
		ids = append(ids, id[:shownKeyID])
	}
	if len(ids) == 0 {
		e.failed(check, "name a public key with --key, or a trust document with --trust", "no key is trusted: no release is accepted")
		return
	}
	e.ok(check, "%s pinned, and no trust document: %s", cli.Count(len(ids), "key"), strings.Join(ids, ", "))
}

// shownKeyID is how much of a key's id is shown, in hex digits.
const shownKeyID = 12

// newest walks the registry's versions.
func (e *examination) newest(ctx context.Context) error {
	src, err := e.TrustSource(nil)
	for more := err == nil; more; {
		e.Trust, more, err = e.Trust.Next(ctx, src)
	}
	return err
}
