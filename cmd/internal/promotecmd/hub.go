package promotecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

// byHub has the hub sign the decision for the name of the access token, and puts it into the registry as well if that is allowed.
func (d *deciding) byHub(cmd *cobra.Command, said bundle.Decision, found []decisions.Found) (*Decided, error) {
	hub, err := d.fleet.Client(cmd)
	if err != nil {
		return nil, err
	}
	who, err := hub.WhoAmI(cmd.Context())
	if err != nil {
		return nil, d.hubFailure(err)
	}
	if same := d.sameAsBefore(found, said, who.Name); same != nil {
		return d.summary(&decisions.Written{Decision: same.Decision, KeyID: same.KeyID, Result: releases.OutcomeUnchanged, Reference: d.reference(same)}, who.Name, said, found), nil
	}
	envelope, err := hub.Decide(cmd.Context(), said)
	if err != nil {
		return nil, d.hubFailure(err)
	}
	signed := decisions.Found{Envelope: envelope, Source: d.fleet.URL()}
	list := decisions.List([]decisions.Found{signed}, d.trust)
	if l := list[0]; !l.Valid || l.Member != who.Name {
		return nil, cli.Fail(cli.Denied, errNotCounted(l), "the group of the policy has to list the hub's key in hubs, and the name of your access token among its members")
	}
	written, err := decisions.Put(cmd.Context(), d.loc, d.registry.Options(), envelope)
	if err != nil {
		cmd.PrintErrf("note: the hub has the decision; it was not put into the registry: %s\n", cli.Indented(err.Error()))
		written = &decisions.Written{Reference: d.fleet.URL(), Decision: list[0].Decision, KeyID: list[0].KeyID, Result: releases.OutcomePublished, Envelope: envelope}
	}
	return d.summary(written, who.Name, said, append(found, signed)), nil
}

// atHub returns the decisions about the environment that the hub has.
func (f *subject) atHub(cmd *cobra.Command) ([]decisions.Found, error) {
	hub, err := f.fleet.Client(cmd)
	if err != nil {
		return nil, err
	}
	all, err := env.HubDecisions(hub, f.fleet.URL())(cmd.Context(), f.policy.Environment)
	return all, f.hubFailure(err)
}

func (f *subject) hubFailure(err error) error { return failure.HubRequest(err, f.fleet.URL()) }

func errNotCounted(l decisions.Listed) error {
	return fmt.Errorf("the hub signed it, but it does not count: %s", l.Why)
}
