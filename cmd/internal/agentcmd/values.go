package agentcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newValuesCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "values",
		Short: "Show site values and their users",
		Long: `Show the values of this site: each with its source, which is the site's own file, the platform, the default of
the cluster type or the cluster itself, and with the assignments that use it. A key without a valid value shows
what is wrong and where to mend it. The values stay on this machine: reports have their digests only.

Exit code 1 means that an assignment uses a value that is missing.`,
		Example: example("values", "values -o json", "values check ./site.yaml"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			s, err := config.Look(cmd.Context(), c, func(ctx context.Context, a agent.Client) (sitevalues.Status, error) { return a.SiteValues(ctx) },
				func(s *agent.State) (sitevalues.Status, error) { return s.SiteValues() })
			if err != nil {
				return err
			}
			if err := cli.Print(cmd.OutOrStdout(), output, s, func(w io.Writer) { valuesTable(w, s) }); err != nil {
				return err
			}
			return missingValues(s)
		}),
	}
	cli.OutputFlag(cmd, &output)
	cmd.AddCommand(newValuesCheckCommand())
	return cmd
}

func valuesTable(w io.Writer, s sitevalues.Status) {
	fmt.Fprintln(w, "KEY\tVALUE\tSOURCE\tUSED BY")
	for _, v := range s.Values {
		value, source := "-", "-"
		if v.Source != "" {
			value, source = shown(v.Value), string(v.Source)
		}
		cli.Row(w, v.Key, value, source, dash(strings.Join(v.UsedBy, ", ")))
	}
	for _, v := range s.Values {
		if v.Problem != "" {
			fmt.Fprintln(w, v.Problem)
		}
	}
	for _, text := range []string{s.Broken, s.Unreadable} {
		if text != "" {
			fmt.Fprintln(w, text)
		}
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shown returns a value on one line: texts as they are, unless a line break or something else would be in the way.
func shown(value any) string {
	text, ok := value.(string)
	data, err := json.Marshal(value)
	if err != nil || ok && string(data) == `"`+text+`"` && text != "" {
		return text
	}
	return string(data)
}

func missingValues(s sitevalues.Status) error {
	var missing []string
	for _, v := range s.Values {
		if v.Problem != "" && len(v.UsedBy) > 0 {
			missing = append(missing, v.Key)
		}
	}
	switch {
	case len(missing) > 0:
		return cli.Fail(cli.No, fmt.Errorf("assignments wait for %s", strings.Join(missing, ", ")), "set what is missing, and have it read at once with sync")
	case s.Broken != "":
		return cli.Fail(cli.No, errors.New("the site's own values cannot be read, and the last valid ones count"), "judge the file with values check")
	}
	return nil
}

func newValuesCheckCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file of site values",
		Long: `Judge a file of values before it is put in place of the site's own: whether it can be read, whether the release that
runs permits each value, and whether an assignment would lack one. It lists the keys whose values would change, and
the assignments that would get them, and changes nothing. "-" is stdin.

Exit code 0 means that the file is fine, 1 that it has problems, 2 that it cannot be parsed, and 5 that no release
runs yet which could tell what the site may set.`,
		Example: example("values check ./site.yaml", "values check ./site.yaml -o json"),
		Args:    cobra.ExactArgs(1),
		RunE: configured(func(cmd *cobra.Command, c *config.Config, args []string) error {
			own, place, err := readValues(cmd, args[0])
			if err != nil {
				return err
			}
			check, err := config.Look(cmd.Context(), c, func(ctx context.Context, a agent.Client) (sitevalues.Check, error) {
				return a.CheckSiteValues(ctx, own, place)
			},
				func(s *agent.State) (sitevalues.Check, error) { return s.CheckSiteValues(own, place) })
			if errors.Is(err, agent.ErrNoRelease) {
				return cli.Fail(cli.NotYet, fmt.Errorf("%s can be read, and %w", place, err), "judge it again once a release runs")
			}
			if err != nil {
				return err
			}
			if err := cli.Print(cmd.OutOrStdout(), output, check, func(w io.Writer) { checkTable(w, place, check) }); err != nil {
				return err
			}
			if n := len(check.Problems); n > 0 {
				return cli.Fail(cli.No, fmt.Errorf("%s has %s", place, show.Count(n, "problem")), "")
			}
			return nil
		}),
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

// readValues reads a file of values.
func readValues(cmd *cobra.Command, file string) (own sitevalues.Own, place string, err error) {
	data, err := cli.ReadInput(cmd, file, sitevalues.MaxFileBytes)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return own, "", cli.Fail(cli.Usage, err, "name the file that is to be judged")
		}
		return own, "", err
	}
	place = "stdin"
	if file != "-" {
		if place, err = filepath.Abs(file); err != nil {
			return own, "", err
		}
	}
	own, err = sitevalues.Parse(data)
	var m *sitevalues.Mistake
	if errors.As(err, &m) {
		at := place
		if m.Line > 0 {
			at = fmt.Sprintf("%s:%d", place, m.Line)
		}
		return own, "", cli.Fail(cli.Usage, fmt.Errorf("%s: %s", at, m.Text), "a file of values has lines such as dns: plant-7.example.com")
	}
	return own, place, err
}

func checkTable(w io.Writer, place string, c sitevalues.Check) {
	for _, p := range c.Problems {
		fmt.Fprintln(w, p)
	}
	fmt.Fprintf(w, "%s: %s\n", place, show.Count(c.Values, "value"))
	if len(c.Changes) == 0 {
		fmt.Fprintln(w, "nothing that is used would change")
		return
	}
	fmt.Fprintf(w, "would change: %s\nassignments: %s\n", strings.Join(c.Changes, ", "), strings.Join(c.Assignments, ", "))
}
