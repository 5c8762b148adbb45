package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/show"
)

// formats lists what Print can write.
var formats = [...]string{"table", "json", "yaml"}

// OutputFlag adds -o, --output with the formats table, json and yaml, and sets format to table.
func OutputFlag(cmd *cobra.Command, format *string) {
	*format = formats[0]
	cmd.Flags().VarP((*formatFlag)(format), "output", "o", "print as `FORMAT`, table, json or yaml; see \"wherry help json\"")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats[:], cobra.ShellCompDirectiveNoFileComp))
}

// FormatFlag is OutputFlag for a command whose -o is a file: the flag is --format.
func FormatFlag(cmd *cobra.Command, format *string) {
	*format = formats[0]
	cmd.Flags().Var((*formatFlag)(format), "format", "print as `FORMAT`, table, json or yaml; see \"wherry help json\"")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats[:], cobra.ShellCompDirectiveNoFileComp))
}

// formatFlag refuses unknown formats before a command does any work.
type formatFlag string

func (f *formatFlag) String() string { return string(*f) }
func (f *formatFlag) Type() string   { return "format" }
func (f *formatFlag) Set(s string) error {
	if !slices.Contains(formats[:], s) {
		return fmt.Errorf("must be table, json or yaml")
	}
	*f = formatFlag(s)
	return nil
}

// Print writes value as json or yaml, or has table write columns separated by tabs.
func Print(w io.Writer, format string, value any, table func(w io.Writer)) error {
	switch format {
	case "table":
		tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		table(tw)
		return tw.Flush()
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(value)
	case "yaml":
		data, err := yaml.Marshal(value)
		if err != nil || !show.IsSafe(data) { // it cannot write all characters, nor escape them wherever they stand
			return Print(w, "json", value, table) // which is YAML, too
		}
		_, err = w.Write(data)
		return err
	}
	return fmt.Errorf("unknown output format %q", format)
}

// Row writes a row of Print's table. What others have written stays in its cell, and an empty cell is a dash.
func Row(w io.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(show.Line(c), "-")
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}
