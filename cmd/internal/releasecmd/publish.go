// Package releasecmd holds the commands that make releases of a platform: wherry plan, publish, sign and rollout. Package
// publisher does the work. Begin with Publish.
package releasecmd

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher"
)

// publishing holds the flags of publish.
type publishing struct {
	env.Signing
	source   flags.Source
	registry flags.Registry
	fleet    flags.Fleet
	clean    bool
	paused   bool
	unproved Unproved
	validFor string
	renew    string
	format   string
	options  publisher.PublishOptions
	watch    flags.Watch
}

// Publish returns the command wherry publish.
func Publish() *cobra.Command {
	var p publishing
	cmd := &cobra.Command{
		Use:   "publish [PLATFORM] [--environment NAME] [--to LOCATION] [--key FILE | --signer cosign:URI]",
		Short: "Sign and push the bundles of an environment",
		Long: `Render an environment, sign one bundle for each cluster type and one record of the whole, and push them to
LOCATION: a registry, oci://HOST/PREFIX, or a folder, oci-layout:DIR. "wherry plan" shows beforehand what changes.

You can repeat and interrupt it: content that is there already is left alone, and no tag names an incomplete release.
A failed assignment keeps its previous content, and the rest is published; the exit code is then 1. Large removals
are refused with exit code 4 unless you pass --allow-removals, and a refusal of a check is exit code 4, too.
Exit code 5 means that signatures or proofs of the environment below are missing, or that the environment is paused.

If the environment has rings, new content goes to the first ring, or to --ring and all before it. Releases are renewed
in the last third of their validity, so run publish regularly: from a timer, or with --watch.

More: wherry help publishing, sources, signing-keys, watch, checks, rings`,
		Example: `  wherry publish ./dev --environment dev --base ./main --to oci://127.0.0.1:5000/edge --key cosign.key
  wherry publish ./dev --environment dev --to oci-layout:./out --key cosign.key -m "$(git log -1 --format=%s)"
  wherry publish https://github.com/example/platform --environment dev --to oci-layout:./out --key cosign.key
  wherry publish ./dev --environment dev --to oci://127.0.0.1:5000/edge --trust trust.v1.json --key anna.key --renew-before 72h
  wherry publish https://github.com/example/platform --environment dev --watch --webhook :8090 --webhook-secret-file webhook.secret`,
		Args: cobra.MaximumNArgs(1),
		RunE: p.run,
	}
	p.source.AddTo(cmd)
	p.source.AddAssignments(cmd)
	p.registry.AddTo(cmd)
	p.Signers.AddReleases(cmd)
	p.AddTo(cmd, "the `LOCATION` to publish to (default the registry of the settings)")
	cli.OutputFlag(cmd, &p.format)
	f := cmd.Flags()
	f.StringVarP(&p.options.Message, "message", "m", "", "keep this `TEXT` in the releases: what the publication is for, in one line")
	f.StringVar(&p.options.Platform, "platform-name", "", "the platform's `NAME` where it has no Platform object (default \"default\")")
	f.StringArrayVar(&p.options.Rings, "ring", nil, "release to the ring `NAME` of the platform, and to all before it")
	f.StringVar(&p.validFor, "valid-for", "", "the `TIME` for which agents accept a release, for cluster types without wherry.dev/valid-for (default 90d)")
	f.StringVar(&p.renew, "renew-before", "", "renew releases that expire within this `TIME`, such as 72h (default a third of their validity)")
	f.StringArrayVar(&p.options.Drop, "drop", nil, "`TYPE/TARGET`: leave this failed or waiting assignment out, which deletes it; may be repeated")
	f.BoolVar(&p.options.AllowEmpty, "allow-empty", false, "publish cluster types that had assignments and now have none, which deletes those")
	f.BoolVar(&p.options.AllowRemovals, "allow-removals", false, "remove more assignments at once than the platform's maxRemoved says")
	f.StringArrayVar(&p.options.Checks, "check", nil, "a `COMMAND` of the shell that has to agree before anything is published; may be repeated")
	f.StringArrayVar(&p.options.CheckEnv, "check-env", nil, "give --check commands this environment `VARIABLE` too, which holds a secret; may be repeated")
	f.BoolVar(&p.clean, "require-clean", false, "publish nothing where a folder that is read has changes that git has not committed")
	p.unproved.AddTo(cmd)
	f.BoolVar(&p.paused, "paused-too", false, "publish also while the environment is paused")
	p.fleet.AddSending(cmd, "tell the hub at this `URL` what was published; plan checks count its clusters in place of the platform's Cluster objects")
	p.watch.AddTo(cmd, "go on: publish again when what is read changes, and before releases expire")
	cli.NotEmpty(cmd, "message")
	cli.Rare(cmd, "platform-name", "valid-for", "renew-before", "drop", "allow-empty", "allow-removals", "require-clean", "paused-too")
	return cmd
}

func (p *publishing) run(cmd *cobra.Command, args []string) error {
	if err := p.watch.Check(cmd, p.format); err != nil {
		return err
	}
	place, err := p.source.Resolve(cmd, args)
	if err != nil {
		return err
	}
	if err := p.Take(p.source.Settings()); err != nil {
		return err
	}
	if p.validFor != "" {
		if p.options.ValidFor, err = flags.ParseValidity("valid-for", p.validFor); err != nil {
			return err
		}
	}
	if p.renew != "" {
		if p.options.RenewBefore, err = flags.ParseValidity("renew-before", p.renew); err != nil {
			return err
		}
	}
	if p.source.Assignments == "-" && p.Signers.PasswordFromStdin() {
		return cli.Usagef("--assignments and --password-file cannot both read stdin")
	}
	p.source.Dropped = p.options.Drop
	if p.Keys, err = p.Signers.Open(cmd); err != nil {
		return err
	}
	if p.watch.On {
		return p.goOn(cmd, args, place)
	}
	publication, err := p.publication(cmd, place)
	if err != nil {
		return err
	}
	publication.Print = func(done *publisher.Published) error {
		return cli.Print(cmd.OutOrStdout(), p.format, done, func(w io.Writer) { publishedTable(w, done) })
	}
	_, err = PublishEnvironment(cmd, publication)
	return err
}

// publication returns what is to be published, by the trust document that is there now.
func (p *publishing) publication(cmd *cobra.Command, place string) (Publication, error) {
	all := Publication{
		Source: &p.source, Place: place, To: p.Location, Keys: p.Keys, TrustFile: p.First, Registry: p.registry, Fleet: p.fleet,
		RequireClean: p.clean, PausedToo: p.paused, Unproved: p.unproved, Options: p.options,
	}
	err := p.ReadTrust(cmd, p.registry)
	if p.First != "" {
		all.Options.Trust = p.Trusted
	}
	return all, err
}
