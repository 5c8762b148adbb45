package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/copier"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

// copying holds the flags of bundle copy.
type copying struct {
	environment, format string
	trust               flags.Trust
	fromHTTP, toHTTP    bool
	registry            flags.Registry // but for PlainHTTP, which each side has of its own
	options             copier.Options
}

func newCopyCommand() *cobra.Command {
	var c copying
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy a bundle or an environment",
		Long: `Copy a bundle to another registry or folder, or with --environment an environment: its record, the releases of all rings,
decisions, signatures and trust documents. Digests stay the same.

FROM is a bundle, LOCATION/bundles/ENVIRONMENT/TYPE, or with --environment a LOCATION: oci://HOST/PREFIX, oci-layout:DIR or
oci-archive:FILE. TO is a registry or a folder. From a site package, the artifacts go along to TO/HOST/REPOSITORY;
--without-artifacts copies the bundles alone, --no-referrers leaves signatures, attestations and SBOMs of artifacts out.

It sends only what TO lacks, so repeat it to update or repair a mirror. Tags move forward only: a newer release at TO
stays, with exit code 1, unless you pass --force.

With --key or --trust, nothing is written unless those keys signed everything; else the exit code is 4.

More: wherry help air-gap, registries, release-names`,
		Example: `  wherry bundle copy oci://127.0.0.1:5000/edge oci://127.0.0.1:5001/edge --environment dev --key cosign.pub
  wherry bundle copy oci://127.0.0.1:5000/edge/bundles/dev/drone oci-layout:./out
  wherry bundle copy oci-archive:site.tar oci://site-registry/edge --environment dev --trust trust.v1.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0], args[1]) },
	}
	f := cmd.Flags()
	flags.EnvironmentFlag(cmd, &c.environment, "copy all of the environment `NAME`")
	c.trust.AddTo(cmd, "the `FILE` with the public key, or several, one of which must have signed")
	f.BoolVar(&c.options.Force, "force", false, "move tags to older releases, and replace other trust documents, too")
	f.BoolVar(&c.options.WithoutArtifacts, "without-artifacts", false, "leave out the images and other artifacts of a site package")
	f.BoolVar(&c.options.WithoutReferrers, "no-referrers", false, "leave out signatures, attestations and SBOMs of artifacts")
	f.BoolVar(&c.fromHTTP, "from-plain-http", false, "speak HTTP without TLS to FROM; with loopback addresses this is so anyway")
	f.BoolVar(&c.toHTTP, "to-plain-http", false, "speak HTTP without TLS to TO; with loopback addresses this is so anyway")
	c.registry.AddAuthHosts(cmd)
	cli.OutputFlag(cmd, &c.format)
	return cmd
}

func (c *copying) run(cmd *cobra.Command, from, to string) error {
	if err := c.readTrusted(); err != nil {
		return err
	}
	destination, err := oci.Parse(to)
	if err == nil && destination.Archive != "" {
		err = fmt.Errorf("%s: %w", destination, oci.ErrReadOnly)
	}
	if err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("TO: %w", err), toHint(destination))
	}
	done, err := c.copy(cmd, from, destination)
	if err != nil {
		return copyFailure(damaged(cmd.Context(), err, from), destination)
	}
	for _, w := range done.Warnings {
		cmd.PrintErrf("warning: %s\n", w)
	}
	if err := cli.Print(cmd.OutOrStdout(), c.format, done, func(w io.Writer) { copiedTable(w, done) }); err != nil {
		return err
	}
	return concludeCopy(cmd, done)
}

func toHint(to oci.Location) string {
	if to.Archive == "" {
		return ""
	}
	return `copy to a registry or a folder; "wherry airgap export" writes a package`
}

func (c *copying) copy(cmd *cobra.Command, from string, to oci.Location) (*copier.Copied, error) {
	if c.environment != "" {
		source, err := oci.Parse(from)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("FROM: %w", err), "with --environment, FROM is a LOCATION")
		}
		if err := c.reach(source, to); err != nil {
			return nil, err
		}
		return decisions.CopyEnvironment(cmd.Context(), source, c.environment, to, c.options)
	}
	ref, err := oci.ParseReference(from)
	if err == nil {
		ref, err = published.BundleReference(ref)
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("FROM: %w", err), "--environment NAME copies all of an environment from a LOCATION")
	}
	if to, err = above(to, ref.Repository); err != nil {
		return nil, err
	}
	if err := c.reach(ref.Location, to); err != nil {
		return nil, err
	}
	return copier.Bundle(cmd.Context(), ref, to, c.options)
}

// reach sets the options of the access to both registries.
func (c *copying) reach(from, to oci.Location) (err error) {
	source, target := c.registry, c.registry
	source.PlainHTTP, target.PlainHTTP = c.fromHTTP, c.toHTTP
	if c.options.From, err = source.Named(from); err == nil {
		c.options.To, err = target.Named(to)
	}
	return err
}

// above returns the location of a TO that names the repository as well, which means the same. One that names
// another bundle's is a slip.
func above(to oci.Location, repository string) (oci.Location, error) {
	if to.Dir != "" {
		to.Dir = strings.TrimSuffix(to.Dir, "/"+repository)
	} else {
		to.Prefix = strings.TrimPrefix(strings.TrimSuffix("/"+to.Prefix, "/"+repository), "/")
	}
	if other, err := published.BundleReference(oci.Reference{Location: oci.Location{Host: to.Host}, Repository: to.Prefix}); err == nil {
		return to, cli.Usagef("TO names %s, and what is copied keeps its name, %s", other.Repository, repository)
	}
	return to, nil
}

func (c *copying) readTrusted() (err error) {
	if c.trust.Key != "" {
		c.options.Keys, err = c.trust.ReadKeys()
	} else if c.trust.First != "" {
		c.options.Trust, err = flags.ReadTrust(c.trust.First) // CopyOptions has it followed where the rest is copied from
	}
	return err
}

// damaged names the parts that are not as they were exported, in place of the blobs in them, if content of FROM is wrong.
func damaged(ctx context.Context, err error, from string) error {
	var refusal *bundle.Refusal
	if !errors.Is(err, archive.ErrFormat) && (!errors.As(err, &refusal) || refusal.Reason != bundle.DigestMismatch) {
		return err
	}
	at, bad := oci.Parse(from)
	if ref, noReference := oci.ParseReference(from); noReference == nil {
		at, bad = ref.Location, nil
	}
	if bad != nil {
		return err
	}
	if parts := at.Damaged(ctx); parts != nil {
		return cli.Fail(cli.Denied, parts, "")
	}
	return err
}

// copyFailure is failure.At for the side of the copy that err is from.
func copyFailure(err error, to oci.Location) error {
	at, flag := to, "--to-plain-http"
	if e := (*copier.Error)(nil); errors.As(err, &e) && e.At != to {
		at, flag = e.At, "--from-plain-http"
	}
	rows := cli.Kinds{
		cli.As[*copier.SparseError](cli.Failed, "use a registry that takes such an index (distribution with validation.manifests.indexes.platforms: none, or \"wherry registry serve\"), or copy with --without-artifacts and serve the images from an agent that has imported the package"),
		cli.Is(http.ErrSchemeMismatch, cli.Failed, fmt.Sprintf("the registry has no TLS: pass %s if that is intended", flag)),
	}
	if at.Archive != "" {
		rows = append(rows, cli.Is(fs.ErrNotExist, cli.Failed, `"wherry airgap export" writes such a file`))
	}
	if at != to {
		rows = append(rows, cli.Is(oci.ErrNoLayout, cli.Failed, "is FROM the folder that was published to?"))
	}
	return failure.At(err, at, rows...)
}

func copiedTable(w io.Writer, done *copier.Copied) {
	fmt.Fprintln(w, "REPOSITORY\tTAG\tRESULT\tNAMED BY\tBYTES\tREFERRERS\tDIGEST")
	for _, i := range done.Items {
		referrers := ""
		if i.Referrers > 0 {
			referrers = fmt.Sprintf("%d, %d bytes", i.Referrers, i.ReferrerSent)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", i.Repository, i.Tag, i.Result, show.Cell(strings.Join(i.Moving, ",")), i.Sent, show.Cell(referrers), i.Digest)
	}
}

// concludeCopy prints how many manifests were copied, and the tags that were not moved, for which it returns an error.
func concludeCopy(cmd *cobra.Command, done *copier.Copied) error {
	count := map[releases.Outcome]int{}
	for _, i := range done.Items {
		count[i.Result]++
		for _, k := range i.Kept {
			cmd.PrintErrf("kept: %s:%s names %s at %s, which is newer than %s\n", i.Repository, k.Tag, k.Newer, done.To, i.Tag)
		}
	}
	cmd.PrintErrf("%d copied, %d updated, %d unchanged, at %s\n",
		count[copier.OutcomeCopied], count[copier.OutcomeUpdated], count[releases.OutcomeUnchanged], done.To)
	if n := done.Kept(); n > 0 {
		return cli.Fail(cli.No, fmt.Errorf("%s at %s stayed with something newer than is at %s", show.Count(n, "tag"), done.To, done.From),
			"was FROM restored from a backup, or something published to TO? --force moves tags back, and agents refuse what is older")
	}
	return nil
}
