package airgapcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// sitePackage is the package of one site. Its JSON is an interface.
type sitePackage struct {
	Site string `json:"site"`
	File string `json:"file"`
	printed
	// Error is why it was not written; empty if it was.
	Error string `json:"error,omitempty"`
}

// runEach writes a package for each site. One that fails leaves the others as they are.
func (x *exporting) runEach(cmd *cobra.Command, s *settings.Settings, r export.Request, split int64) error {
	fleet, name, err := x.sites(cmd, s, r)
	if err != nil {
		return err
	}
	sites, err := x.files(fleet)
	if err != nil {
		return err
	}
	if !x.dryRun {
		if err := os.MkdirAll(x.each, 0o777); err != nil {
			return cli.Fail(cli.Failed, fmt.Errorf("--each-site: %w", err), "")
		}
	}
	var all []sitePackage
	var failed []string
	var first error
	for _, one := range sites {
		p, err := x.writeSite(cmd, one, name, r, split)
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		if err != nil {
			p.Error = err.Error()
			failed, first = append(failed, one.Name), errors.Join(first, err)
			cmd.PrintErrf("%s: not written: %s\n", one.Name, cli.Indented(err.Error()))
		}
		all = append(all, p)
	}
	if x.format != "" || x.dryRun {
		err = cli.Print(cmd.OutOrStdout(), orTable(x.format), all, func(w io.Writer) { sitesTable(w, all) })
	}
	if len(failed) == 0 || err != nil {
		return err
	}
	code := cli.Failed
	if e := (*cli.Error)(nil); errors.As(first, &e) {
		code = e.Code
	}
	return cli.Fail(code, fmt.Errorf("%d of %s not written: %s", len(failed), show.Count(len(sites), "site"), show.List(failed, maxNamedSites)),
		"the others are whole; the same command writes all again")
}

// maxNamedSites is how many sites a message names.
const maxNamedSites = 10

func orTable(format string) string {
	if format == "" {
		return "table"
	}
	return format
}

// siteFile is a site with the file of its package.
type siteFile struct {
	impact.Site
	label string // that names it; empty for clusters without the label
	types []string
	path  string
}

// sites returns the clusters of the environment: those of --since, else of --roster, else of the hub. Name names the base; it is empty without --since.
func (x *exporting) sites(cmd *cobra.Command, s *settings.Settings, r export.Request) (fleet impact.Fleet, name string, err error) {
	switch {
	case x.since == sinceHub:
		fleet, err = x.fleetOfHub(cmd, s, r.Environment)
		return fleet, "the hub", err
	case x.since != "":
		_, packaged, err := x.open()
		if err == nil && packaged {
			err = cli.Usagef("--each-site: %s is the package of one site: give --since hub, or a file of reports", x.since)
		}
		if err == nil {
			fleet, err = x.fleetOfReports(cmd, r.Environment)
		}
		return fleet, x.since, err
	case x.roster != "":
		clusters, err := roster.Read(cmd.Context(), x.roster)
		if err != nil {
			return fleet, "", cli.Fail(cli.Usage, fmt.Errorf("--roster: %w", err), "give the folder of the environment with its Cluster objects")
		}
		return diff.Roster(clusters), "", nil
	}
	x.fleet.Default(s)
	if x.fleet.URL() == "" {
		return fleet, "", cli.Usagef("--each-site: no source of the sites: give --hub, --roster or --since")
	}
	fleet, err = x.fleetOfHub(cmd, s, r.Environment)
	return fleet, "", err
}

// files lists the sites that have one of the wanted cluster types, with their files.
func (x *exporting) files(fleet impact.Fleet) (all []siteFile, err error) {
	taken := map[string]string{}
	for _, site := range fleet.Sites(x.siteLabel) {
		one := siteFile{Site: site, label: site.Clusters[0].Labels[x.siteLabel]}
		one.types = slices.DeleteFunc(site.ClusterTypes(), func(ct string) bool { return len(x.types) > 0 && !slices.Contains(x.types, ct) })
		if len(one.types) == 0 {
			continue
		}
		file := cli.FileName(one.label) + ".tar"
		if one.label == "" {
			file = "type-" + cli.FileName(site.Clusters[0].ClusterType) + ".tar"
		}
		if other, is := taken[file]; is {
			return nil, cli.Fail(cli.Failed, fmt.Errorf("--each-site: %s and %s have the same file name, %s", other, site.Name, file), "give one of them another label, or export it by itself with --site")
		}
		taken[file] = site.Name
		one.path = filepath.Join(x.each, file)
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, cli.Fail(cli.Failed, errors.New("--each-site: there is no site"), "clusters with the label "+x.siteLabel+" make one")
	}
	return all, nil
}

// writeSite writes the package of one site.
func (x *exporting) writeSite(cmd *cobra.Command, site siteFile, base string, r export.Request, split int64) (p sitePackage, err error) {
	one := *x
	one.path, p = site.path, sitePackage{Site: site.Name, File: site.path}
	if r.ClusterTypes, r.Site = site.types, site.label; base != "" {
		r.Since = export.Releases(base, r.Environment, impact.Common(site.Clusters))
	}
	plan, err := export.Choose(cmd.Context(), r)
	if err != nil {
		return p, one.failure(cmd.Context(), err, r)
	}
	for _, text := range plan.Warnings {
		cmd.PrintErrf("warning: %s: %s\n", site.Name, cli.Indented(text))
	}
	p.printed = printedOf(plan, nil)
	if x.dryRun {
		return p, nil
	}
	p.Files, err = one.writeAndVerify(cmd, plan, split)
	return p, one.failure(cmd.Context(), err, r)
}

func sitesTable(w io.Writer, all []sitePackage) {
	cli.Row(w, "SITE", "CLUSTER TYPES", "SIZE", "LEFT OUT", "FILE")
	for _, p := range all {
		var types []string
		for _, r := range p.Releases {
			types = append(types, r.ClusterType)
		}
		cli.Row(w, p.Site, strings.Join(slices.Compact(types), ", "), show.Size(p.FileBytes), show.Size(p.LeftOutBytes), p.File)
	}
}
