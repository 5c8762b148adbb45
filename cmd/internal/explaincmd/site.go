package explaincmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/scheduler"
)

// addCluster adds the flag --cluster.
func (x *question) addCluster(cmd *cobra.Command) {
	cmd.Flags().StringVar(&x.cluster, "cluster", "", "explain the site values of the cluster with this `NAME`; KEY is one of them")
	_ = cmd.RegisterFlagCompletionFunc("cluster", x.source.CompleteClusters)
}

// key returns the argument KEY; empty if there is none.
func (x *question) key() string {
	if len(x.rest) == 0 {
		return ""
	}
	return x.rest[0]
}

// site explains the site values of one cluster from the sources.
func (x *question) site(cmd *cobra.Command, e *scheduler.Explainer) error {
	why, known, err := e.Site(x.clusterType, x.target, x.cluster, x.key())
	if err != nil {
		return failure.Input(err)
	}
	if !known {
		cmd.PrintErrf("note: %s is no site value of %s, so it is the same on all its clusters\n", show.Line(x.key()), x.clusterType)
		return x.config(cmd, e)
	}
	var rows []siteRow
	for _, v := range why.Values {
		rows = append(rows, siteRow{
			Key: v.Key, Set: v.Set, Value: v.Value, Source: v.Source, From: v.From, SiteMaySet: v.SiteMaySet, Used: v.Used, Problem: v.Problem, place: v.Position.String(),
		})
	}
	err = cli.Print(cmd.OutOrStdout(), x.format, why, func(w io.Writer) {
		if why.Declaration != nil {
			fmt.Fprintf(w, "The site values of cluster %s of %s, as %s (%s) declares them:\n\n", show.Line(x.cluster), x.clusterType, show.Line(why.Declaration.Name), show.Line(why.Declaration.Position.String()))
		} else {
			fmt.Fprintf(w, "%s declares no site values. Of cluster %s this is known:\n\n", x.clusterType, show.Line(x.cluster))
		}
		siteTable(w, rows, true)
	})
	if err != nil {
		return err
	}
	for _, text := range why.Errors {
		cmd.PrintErrf("failed: %s\n", show.Line(text))
	}
	if len(why.Errors) > 0 {
		cmd.PrintErrf("note: until that is corrected, the cluster keeps its values of the last release\n")
	}
	return x.concludeSite(why.Values[0].Set)
}

// concludeSite returns the exit code: 1 for a key without a value.
func (x *question) concludeSite(set bool) error {
	if x.key() != "" && !set {
		return cli.Exit(cli.No)
	}
	return nil
}

// releasedSite explains the site values of one cluster from a bundle.
func (x *question) releasedSite(cmd *cobra.Command, r *catalog.Released) error {
	a := r.Assignment(x.target)
	if a == nil {
		return cli.Fail(cli.No, fmt.Errorf("%s/%s is not in release %s", r.Release.ClusterType, x.target, r.Name()), `"wherry bundle inspect" lists what is`)
	}
	answer, known := r.ExplainSite(a, x.cluster, x.key())
	if !known {
		cmd.PrintErrf("note: %s is no site value of %s, so it is the same on all its clusters\n", show.Line(x.key()), x.clusterType)
		return x.releasedConfig(cmd, r)
	}
	if answer.UID == "" {
		cmd.PrintErrf("note: release %s has no values for a cluster %s, so it has the defaults\n", r.Name(), show.Line(x.cluster))
	}
	var rows []siteRow
	for _, v := range answer.Values {
		rows = append(rows, siteRow{Key: v.Key, Set: v.Set, Value: v.Value, Source: v.Source, From: v.From, SiteMaySet: v.SiteMaySet, Used: v.Used, Problem: v.Problem})
	}
	err := cli.Print(cmd.OutOrStdout(), x.format, answer, func(w io.Writer) {
		fmt.Fprintf(w, "The site values of cluster %s of %s in release %s:\n\n", show.Line(x.cluster), x.clusterType, r.Name())
		if h := answer.HeldFrom; h != nil {
			fmt.Fprintf(w, "They are those of sequence %d, since newer ones had a mistake (%s).\n\n", h.Sequence, show.Line(h.Reason))
		}
		siteTable(w, rows, false)
	})
	if err != nil {
		return err
	}
	return x.concludeSite(answer.Values[0].Set)
}

// siteRow is a line of the table.
type siteRow struct {
	Key, Value       string
	Set              bool
	Source           sitevalues.Source
	From             string
	SiteMaySet, Used bool
	Problem          string
	place            string
}

func siteTable(w io.Writer, rows []siteRow, places bool) {
	head := "KEY\tVALUE\tSOURCE\tUSED"
	if places {
		head += "\tPLACE"
	}
	fmt.Fprintln(w, head+"\tNOTE")
	mayBeSet := false
	for _, r := range rows {
		value, source, used, note := "-", "-", "-", ""
		if r.Set {
			value = show.Value(&r.Value)
		}
		if r.Source != "" {
			source = string(r.Source)
		}
		if r.Used {
			used = "yes"
		}
		switch {
		case r.Problem != "":
			note = r.Problem
		case r.From != "":
			note = "composed of " + r.From
		}
		if r.SiteMaySet {
			if mayBeSet = true; note != "" {
				note += "; "
			}
			note += "the site may set it"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s", show.Cell(r.Key), value, source, used)
		if places {
			fmt.Fprintf(w, "\t%s", show.Line(r.place))
		}
		fmt.Fprintf(w, "\t%s\n", show.Line(note))
	}
	if mayBeSet {
		fmt.Fprintln(w, "\nWhat the site has set is known on the site alone: \"wherry-agent values\" shows it there.")
	}
}
