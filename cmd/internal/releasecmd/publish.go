// Package releasecmd holds the commands that make releases of a platform: wherry plan, publish, sign and rollout. Package
// publisher does the work. Begin with Publish.
package releasecmd

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// publishing holds the flags of publish.
type publishing struct {
	source   flags.Source
	registry flags.Registry
	signers  flags.Signers
	fleet    flags.Fleet
	to       string
	trust    string
	clean    bool
	paused   bool
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
		Short: "Sign an environment's bundles and push them",
		Long: `Render an environment, sign one bundle per cluster type and one record of the whole, and push them to a
registry, LOCATION as oci://HOST/PREFIX, or to a folder in the OCI image layout, as oci-layout:DIR.

What is there already in equal form is left alone: publishing twice changes nothing. A killed or cut off
publish leaves no tag on anything incomplete; run it again. "wherry plan" shows beforehand what would change.

A failed assignment fails alone: it keeps the content that the last release has, and the rest is published. So
do all assignments of a WorkloadRegistration whose source cannot be read. Where the last release cannot be
fetched and verified, the cluster type is not published, since leaving an assignment out would delete it; --drop
does so on purpose. Nor is one, without --allow-empty, that had assignments and now has none. The exit code is
1 in each of these cases.

What removes more than a third of a cluster type's assignments, and more than one, or than the platform's maxRemoved
says, is refused with exit code 4 unless --allow-removals is given. A registration that drops as much of its own
targets keeps what it has, alone.

Where the platform names rings, new content is released to the first of them, or to --ring and all before it;
the others keep what they have, which is renewed in time. The release that reaches the last ring is for all.

A rule of the platform about publications, a PlatformCheck, may refuse the whole: then nothing is published,
and the exit code is 4. One about objects fails the assignments that it refuses. Clusters are counted in the
Cluster objects of the platform, or with --hub in a hub.

The hub of --hub or the settings also gets what was published, signatures and all, so that it knows what clusters
are meant to run even if it does not reach the registry; it needs an access token of role publisher. If it cannot be
reached or refuses it, a warning says so, and the exit code stays that of the publication: publish again to
repeat it.

Before anything is pushed, each --check runs with sh in a folder with what would be released: the files as
tree/TYPE/TARGET/…, and in artifacts.ndjson the images, charts and other artifacts that they need. One that
does not exit with 0 has nothing published, and the exit code is 4.

--trust is needed where there is a trust document. Where it asks for more signatures than there are keys here,
all is pushed and nothing released: "wherry sign" adds the others, and the exit code is 5 until then.

While the environment is paused ("wherry rollout pause", or after an undo), what is there is renewed, and new content is
refused with exit code 5, unless --paused-too says otherwise. What was undone is refused with exit code 1, until
"wherry rollout resume --again".

-m keeps a message in the releases that are made, in one line: "wherry releases" shows it, and so do many registries.

A release is made anew in the last third of its validity, or --renew-before it ends: run publish as often as
that asks for, from a timer, or with --watch, so that releases never expire.

` + flags.WatchHelp + `

` + flags.SignerHelp + `

` + flags.PlatformHelp,
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
	p.signers.AddReleases(cmd)
	cli.OutputFlag(cmd, &p.format)
	f := cmd.Flags()
	f.StringVar(&p.to, "to", "", "the `LOCATION` to publish to (default the registry of the settings)")
	f.StringVar(&p.trust, "trust", "", flags.TrustUsage)
	f.StringVarP(&p.options.Message, "message", "m", "", "keep this `TEXT` in the releases: what the publication is for, in one line")
	f.StringVar(&p.options.Platform, "platform-name", "", "the platform's `NAME` where it has no Platform object (default \"default\")")
	f.StringArrayVar(&p.options.Rings, "ring", nil, "release to the ring `NAME` of the platform, and to all before it")
	f.StringVar(&p.validFor, "valid-for", "", "the `TIME` for which agents accept a release, for cluster types without wherry.dev/valid-for (default 90d)")
	f.StringVar(&p.renew, "renew-before", "", "renew releases that expire within this `TIME`, such as 72h (default a third of their validity)")
	f.StringArrayVar(&p.options.Drop, "drop", nil, "`TYPE/TARGET`: leave this failed assignment out, which deletes it; may be repeated")
	f.BoolVar(&p.options.AllowEmpty, "allow-empty", false, "publish cluster types that had assignments and now have none, which deletes those")
	f.BoolVar(&p.options.AllowRemovals, "allow-removals", false, "remove more assignments at once than the platform's maxRemoved says")
	f.StringArrayVar(&p.options.Checks, "check", nil, "a `COMMAND` of the shell that has to agree before anything is published; may be repeated")
	f.StringArrayVar(&p.options.CheckEnv, "check-env", nil, "give --check commands this environment `VARIABLE` too, which holds a secret; may be repeated")
	f.BoolVar(&p.clean, "require-clean", false, "publish nothing where a folder that is read has changes that git has not committed")
	f.BoolVar(&p.paused, "paused-too", false, "publish also while the environment is paused")
	p.fleet.AddSending(cmd, "tell the hub at this `URL` what was published; plan checks count its clusters in place of the platform's Cluster objects")
	p.watch.AddTo(cmd, "go on: publish again when what is read changes, and before releases expire")
	cli.NotEmpty(cmd, "trust", "message")
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
	to, err := flags.Location(p.source.Settings(), "to", p.to)
	if err == nil {
		err = p.signers.Default(p.source.Settings())
	}
	if err != nil {
		return err
	}
	if p.trust == "" {
		p.trust = p.source.Settings().Trust.Text
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
	if p.source.Assignments == "-" && p.signers.PasswordFromStdin() {
		return cli.Usagef("--assignments and --password-file cannot both read stdin")
	}
	p.source.Dropped = p.options.Drop
	keys, err := p.signers.Open(cmd)
	if err != nil {
		return err
	}
	if p.watch.On {
		return p.goOn(cmd, args, place, to, keys)
	}
	publication, err := p.publication(cmd, place, to, keys)
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
func (p *publishing) publication(cmd *cobra.Command, place string, to oci.Location, keys []*keys.Key) (Publication, error) {
	all := Publication{
		Source: &p.source, Place: place, To: to, Keys: keys, TrustFile: p.trust, Registry: p.registry, Fleet: p.fleet,
		RequireClean: p.clean, PausedToo: p.paused, Options: p.options,
	}
	var err error
	if p.trust != "" {
		all.Options.Trust, err = flags.OpenTrust(cmd.Context(), p.trust, to, p.registry.Options())
	}
	return all, err
}
