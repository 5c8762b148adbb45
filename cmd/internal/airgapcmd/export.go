package airgapcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// exporting holds the flags of the command.
type exporting struct {
	environment, from, path, release  string
	types, rings, platforms, mirrors  []string
	allowPrivate                      []string
	artifacts                         string
	skipUnpinned, dryRun, noReferrers bool
	since, site, siteLabel, roster    string
	each                              string
	split, check, nextTrip, allowPast string
	verify                            bool
	checkEnv                          []string
	format                            string
	fleet                             flags.Fleet
	registry                          flags.Registry
}

func newExport() *cobra.Command {
	var x exporting
	cmd := &cobra.Command{
		Use:   "export [--environment E] [--cluster-type T]… [--from LOCATION] -o FILE",
		Short: "Export releases as a site package",
		Long: `Export a site package for "wherry-agent import": the newest release of each cluster type of an environment with its signatures,
the trust documents, the environment's record, and all artifacts that the releases list (images, charts, manifests,
Zarf packages) with their signatures, attestations and SBOMs. The file is an OCI layout in a tar.

Artifacts come from their registries by digest, or first from --artifact-from. An artifact without a digest is refused;
--skip-unpinned leaves it out. --since leaves out blobs that the site has already: those of an earlier package,
of a file of reports, or of the releases that the hub knows ("--since hub").

An interrupted export goes on where it stopped. --each-site DIR writes a package for each site. --check runs a command
on the finished file. --allow-expired REASON exports a release that has expired.

Exit codes: 0 written, 2 wrong usage, 3 failed, 4 refused or without a login, 130 interrupted.

More: wherry help air-gap`,
		Example: `  wherry airgap export --environment prod --from oci://registry.example.com/edge -o site.tar
  wherry airgap export --environment prod --from oci://registry.example.com/edge -o site.tar --since hub --site plant-7 --split fat32
  wherry airgap export --environment prod --from oci://registry.example.com/edge --each-site sticks --since hub
  wherry airgap export --environment dev --cluster-type drone --from oci://127.0.0.1:5000/edge -o site.tar --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return x.run(cmd) },
	}
	x.addFlags(cmd)
	return cmd
}

func (x *exporting) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	flags.EnvironmentFlag(cmd, &x.environment, "the environment's `NAME`")
	f.StringSliceVar(&x.types, "cluster-type", nil, "carry this cluster type, `NAME`; may be given several times (default all of the environment)")
	f.StringSliceVar(&x.rings, "ring", nil, "carry the release for the ring `NAME`, \"latest\" being agents without a ring; may be given several times (default latest)")
	f.StringVar(&x.release, "release", "", "carry this release of the one cluster type, `NAME` as its number, tag or digest (default the newest)")
	f.StringVar(&x.from, "from", "", "where the bundles are, `LOCATION` as oci://HOST/PREFIX or oci-layout:DIR")
	f.StringVarP(&x.path, "output", "o", "", "write to `FILE`, which is replaced")
	f.StringSliceVar(&x.platforms, "image-platform", nil, "take artifacts for this `OS/ARCHITECTURE`; may be given several times (default those that wherry.dev/platforms gives the cluster types, else "+strings.Join(export.DefaultPlatforms(), " and ")+")")
	f.StringVar(&x.artifacts, "artifacts", string(export.All), "which artifacts travel, `MODE`: all, carried (those of assignments with wherry.dev/carry) or none")
	f.StringSliceVar(&x.mirrors, "artifact-from", nil, "ask here for artifacts first, `[HOST=]LOCATION`; may be given several times")
	f.StringSliceVar(&x.allowPrivate, "allow-private", nil, "ask registries of artifacts at this private `HOST`, HOST:PORT or network, too; may be given several times (default spec.sources.allowPrivate of the Platform)")
	f.BoolVar(&x.noReferrers, "no-referrers", false, "leave out signatures, attestations and SBOMs of artifacts")
	f.BoolVar(&x.skipUnpinned, "skip-unpinned", false, "leave out artifacts without a digest, with a warning")
	f.StringVar(&x.since, "since", "", "leave out what the site has by `BASE`: an earlier package, a file of reports, or hub")
	f.StringVar(&x.site, "site", "", "with --since reports or hub: count the clusters of the site `NAME` alone, and carry their cluster types unless --cluster-type names some")
	f.StringVar(&x.each, "each-site", "", "write a package for each site to `DIR`/SITE.tar: the sites of --since, or else of --roster or the hub")
	f.StringVar(&x.siteLabel, "site-label", impact.SiteLabel, "with --site or --each-site: the `LABEL` of clusters that names their site")
	f.StringVar(&x.roster, "roster", "", "with --since: verify reports by the Cluster objects in `DIR`; with --each-site alone, these are the clusters")
	x.fleet.AddTo(cmd)
	f.Lookup("hub").Usage = "with --since hub or --each-site: the hub's `URL` (default that of the settings)"
	f.StringVar(&x.split, "split", "", "write parts of at most `SIZE`, such as 2GiB, or fat32 for 4 GiB less one byte")
	f.BoolVar(&x.dryRun, "dry-run", false, "print what would travel, and write nothing")
	f.BoolVar(&x.verify, "verify", false, "read the written package again, as \"airgap verify\" does")
	f.StringVar(&x.check, "check", "", "write the file only if this shell `COMMAND` accepts it")
	f.StringArrayVar(&x.checkEnv, "check-env", nil, "give --check this environment `VARIABLE` too, which holds a secret; may be repeated")
	f.StringVar(&x.nextTrip, "next-trip", "", "warn of releases that expire within this `TIME`, such as 30d")
	f.StringVar(&x.allowPast, "allow-expired", "", "write releases that have expired, and `REASON` with them")
	f.StringVar(&x.format, "format", "", "print the list of contents to standard output as `FORMAT`: table, json or yaml (default table with --dry-run)")
	for _, other := range []string{"output", "site", "release"} {
		cmd.MarkFlagsMutuallyExclusive("each-site", other)
	}
	_ = cmd.MarkFlagDirname("each-site")
	cli.NotEmpty(cmd, "each-site", "output", "allow-expired", "since", "site", "site-label", "roster", "split", "check", "next-trip", "release", "format")
	x.registry.AddTo(cmd)
	for flag, values := range map[string][]string{"artifacts": {"all", "carried", "none"}, "format": {"table", "json", "yaml"}, "split": {"fat32"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("cluster-type", flags.CompleteClusterTypes)
}

func (x *exporting) run(cmd *cobra.Command) error {
	s, err := flags.Settings()
	if err != nil {
		return err
	}
	r, err := x.request(cmd, s)
	if err != nil {
		return err
	}
	split, err := parseSplit(x.split)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if r.Since, err = x.base(cmd, s, &r); err != nil {
		return err
	}
	if x.each != "" {
		return x.runEach(cmd, s, r, split)
	}
	plan, err := export.Choose(ctx, r)
	if err != nil {
		return x.failure(ctx, err, r)
	}
	for _, text := range plan.Warnings {
		cmd.PrintErrf("warning: %s\n", cli.Indented(text))
	}
	if x.dryRun {
		return x.print(cmd, plan, nil)
	}
	files, err := x.writeAndVerify(cmd, plan, split)
	if err != nil {
		return x.failure(ctx, err, r)
	}
	if x.format == "" {
		return nil
	}
	return x.print(cmd, plan, files)
}

// writeAndVerify writes the package and says so, and reads it again with --verify. It returns the paths of its files.
func (x *exporting) writeAndVerify(cmd *cobra.Command, plan *export.Plan, split int64) ([]string, error) {
	files, err := x.write(cmd, plan, split)
	if err != nil {
		return nil, err
	}
	summary(cmd, plan, x.path, files)
	if x.verify {
		v, err := readWhole(cmd, x.path)
		if err != nil {
			return nil, err
		}
		cmd.PrintErrf("read again: all %s are as they were written\n", show.Count(v.Blobs, "blob"))
	}
	return files, nil
}

// request reads the flags.
func (x *exporting) request(cmd *cobra.Command, s *settings.Settings) (r export.Request, err error) {
	if x.path == "" && x.each == "" && !x.dryRun {
		return r, cli.Fail(cli.Usage, errors.New("missing --output"), "-o site.tar writes the package, --each-site DIR one for each site; --dry-run only prints what it would hold")
	}
	if x.path == "-" {
		return r, cli.Fail(cli.Usage, errors.New("--output: a package is written to a file, not to standard output"), "-o site.tar writes the package; -o ./- a file of that name")
	}
	if info, err := os.Stat(x.path); err == nil && info.IsDir() {
		return r, cli.Fail(cli.Usage, fmt.Errorf("--output: %s is a folder", x.path), fmt.Sprintf("-o %s writes the package into it", filepath.Join(x.path, "site.tar")))
	}
	if err := checks.CheckNames(x.checkEnv); err != nil {
		return r, cli.Usagef("--check-env: %w", err)
	}
	if x.format != "" && x.format != "table" && x.format != "json" && x.format != "yaml" {
		return r, cli.Usagef("--format: must be table, json or yaml")
	}
	r = export.Request{
		ClusterTypes: x.types, Artifacts: export.Mode(x.artifacts), SkipUnpinned: x.skipUnpinned, WithoutReferrers: x.noReferrers, ImagePlatforms: x.platforms,
		Now: cli.Now(), AllowExpired: x.allowPast,
	}
	if r.From, err = flags.Location(s, "from", x.from); err != nil {
		return r, err
	}
	if r.Environment, err = flags.Environment(cmd, s, x.environment); err != nil {
		return r, err
	}
	if err := flags.CheckName("environment", r.Environment); err != nil {
		return r, err
	}
	for _, ct := range x.types {
		if err := flags.CheckName("cluster-type", ct); err != nil {
			return r, err
		}
	}
	for _, ring := range x.rings {
		if err := flags.CheckName("ring", ring); err != nil {
			return r, err
		}
		if ring == bundle.LatestTag {
			ring = ""
		}
		r.Rings = append(r.Rings, ring)
	}
	err = x.complete(cmd.Context(), s, &r)
	return r, err
}

// complete reads the flags that need more than a look.
func (x *exporting) complete(ctx context.Context, s *settings.Settings, r *export.Request) (err error) {
	switch r.Artifacts {
	case export.All, export.Carried, export.None:
	default:
		return cli.Usagef("--artifacts: %q must be all, carried or none", x.artifacts)
	}
	for _, p := range x.platforms {
		if err := bundle.CheckPlatform(p); err != nil {
			return cli.Usagef("--image-platform: %w", err)
		}
	}
	for _, text := range x.mirrors {
		m, err := export.ParseMirror(text)
		if err != nil {
			return cli.Usagef("--artifact-from: %w", err)
		}
		r.Mirrors = append(r.Mirrors, m)
	}
	named := []oci.Location{r.From}
	for _, m := range r.Mirrors {
		named = append(named, m.At)
	}
	if r.Registry, err = x.registry.Named(named...); err != nil {
		return err
	}
	if r.Artifact, err = x.registry.Artifacts(s, x.allowPrivate, named...); err != nil {
		return err
	}
	if x.nextTrip != "" {
		if r.NextTrip, err = duration.Parse(x.nextTrip); err != nil {
			return cli.Usagef("--next-trip: %w", err)
		}
	}
	if x.release == "" {
		return nil
	}
	if len(r.ClusterTypes) != 1 || len(r.Rings) > 1 {
		return cli.Usagef("--release names a release of one cluster type: give one --cluster-type, and at most one --ring")
	}
	r.Release, err = x.findRelease(ctx, *r)
	return err
}

// findRelease finds the release that --release names.
func (x *exporting) findRelease(ctx context.Context, r export.Request) (digest.Digest, error) {
	if d := digest.Digest(x.release); d.Validate() == nil {
		return d, nil
	}
	if err := oci.CheckTag(x.release); err != nil {
		return "", cli.Usagef("--release: %w", err)
	}
	stream := bundle.Stream{Environment: r.Environment, ClusterType: r.ClusterTypes[0]}
	ref := oci.Reference{Location: r.From, Repository: stream.Repository(), Tag: x.release}
	_, d, err := published.Resolve(ctx, ref, r.Registry, published.AsItLies())
	if err != nil {
		return "", failure.Reference(ctx, err, ref, r.Registry)
	}
	return d.Digest, nil
}

// units are those of --split.
var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"", 1}}

// parseSplit reads the value of --split, in bytes; zero for none.
func parseSplit(text string) (int64, error) {
	switch text {
	case "":
		return 0, nil
	case "fat32":
		return medium.FAT32, nil
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		const least = 1 << 20
		switch {
		case err != nil || n <= 0 || n > math.MaxInt64/u.bytes:
		case n*u.bytes < least:
			return 0, cli.Usagef("--split: %q is less than 1MiB", text)
		default:
			return n * u.bytes, nil
		}
		break
	}
	return 0, cli.Usagef("--split %q: expected fat32 or a size such as 700MB or 2GiB", text)
}

// write writes the package, and returns the paths of its files.
func (x *exporting) write(cmd *cobra.Command, plan *export.Plan, split int64) ([]string, error) {
	progress := cli.NewProgress("writing " + x.path)
	defer progress.End()
	opts := export.FileOptions{
		Split:    split,
		Progress: func(written int64) { progress.Update(written, plan.Bytes) },
		Resumed: func(r export.Resumed) {
			if r.Kept > 0 {
				cmd.PrintErrf("note: goes on after %d bytes that an interrupted export has written\n", r.Kept)
			} else {
				cmd.PrintErrln("note: starts over: an interrupted export left the beginning of another package")
			}
		},
	}
	if x.check != "" {
		contents, err := plan.Contents.Marshal()
		if err != nil {
			return nil, err
		}
		opts.Check = func(ctx context.Context, files []string) error {
			progress.End()
			for i, file := range files {
				if files[i], err = filepath.Abs(file); err != nil {
					return err
				}
			}
			if err := checks.Files(ctx, x.check, files, contents, x.checkEnv, cmd.ErrOrStderr()); err != nil && ctx.Err() == nil {
				return cli.Fail(cli.Denied, err, "nothing was written; the lines above are what the check says")
			} else if err != nil {
				return err
			}
			return nil
		}
	}
	files, err := plan.WriteFile(cmd.Context(), x.path, opts)
	progress.End()
	if left := unfinished(x.path); err != nil && len(left) > 0 && !errors.Is(err, medium.ErrBusy) {
		cmd.PrintErrf("note: the same command goes on with what is written; to give up, delete %s\n", show.List(left, 1))
	}
	return files, err
}

// unfinished lists what an interrupted export to path has left.
func unfinished(path string) []string {
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
	whole, _ := filepath.Glob(literal + ".partial") // the patterns are valid
	parts, _ := filepath.Glob(literal + ".[0-9]*.partial")
	return append(whole, parts...)
}

// failure gives err its exit code and a hint.
func (x *exporting) failure(ctx context.Context, err error, r export.Request) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var none *export.NoReleaseError
	var nothing *export.NoEnvironmentError
	var artifact *export.ArtifactError
	switch {
	case cli.HasCode(err):
		return err
	case errors.As(err, &none) && none.Ring == "":
		return failure.Reference(ctx, err, oci.Reference{Location: r.From, Repository: none.Stream.Repository()}, r.Registry)
	case none != nil:
		ref := oci.Reference{Location: r.From, Repository: none.Stream.Repository()}
		return cli.Fail(cli.Failed, err, fmt.Sprintf("%q lists its releases and their rings", "wherry bundle ls "+ref.String()))
	case errors.As(err, &nothing) && nothing.Err != nil:
		return cli.Fail(cli.Failed, err, "name them with --cluster-type")
	case nothing != nil:
		if other := published.CheckEnvironment(r.Environment, r.From, nothing.Repositories); other != nil {
			return failure.At(other, r.From)
		}
		return cli.Fail(cli.Failed, fmt.Errorf("%w at %s", err, r.From), `"wherry bundle ls LOCATION" lists what is there`)
	case errors.As(err, &artifact):
		return artifactFailure(err, artifact)
	}
	return failure.At(err, r.From, absentFolder(x.path),
		cli.Is(syscall.EROFS, cli.Failed, "mount the medium so that it can be written, or write to another place"),
		cli.AsBy(func(e *bundle.Refusal) (int, string) {
			if e.Reason != bundle.Expired {
				return cli.OK, ""
			}
			return cli.Denied, "publish the environment again, which renews the release; --allow-expired REASON writes this one all the same"
		}))
}

// absentFolder is the row of a file whose folder is missing.
func absentFolder(path string) cli.Kind {
	return func(err error) *cli.Error {
		if !errors.Is(err, fs.ErrNotExist) || !missingFolder(path) {
			return nil
		}
		return &cli.Error{Code: cli.Failed, Err: err, Hint: fmt.Sprintf("the folder %s is missing: is the medium mounted?", filepath.Dir(path))}
	}
}

// missingFolder reports whether the folder of a file is not there.
func missingFolder(path string) bool {
	_, err := os.Stat(filepath.Dir(path))
	return errors.Is(err, fs.ErrNotExist)
}

func artifactFailure(err error, artifact *export.ArtifactError) error {
	host, _, _ := strings.Cut(artifact.Repository, "/")
	return failure.At(err, oci.Location{Host: host},
		cli.AsBy(func(e *egress.RefusedError) (int, string) {
			return cli.Denied, fmt.Sprintf("--allow-private %s allows it for this command; --artifact-from %s=LOCATION names another place", e.Host, host)
		}),
		cli.Is(errdef.ErrNotFound, cli.Failed, fmt.Sprintf("it is gone from %s: publish again, or name a place that has it with --artifact-from %s=LOCATION", host, host)),
		cli.Is(oci.ErrUnreachable, cli.Failed, fmt.Sprintf("repeat the command when %s answers; --artifact-from %s=LOCATION names another place that has it", host, host)),
		cli.As[*graph.InvalidError](cli.Failed, "--image-platform names the platforms that the site has"))
}
