package trustcmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// shown is what show prints. Its JSON form is an interface.
type shown struct {
	Reference string          `json:"reference"`
	Versions  []*trust.Status `json:"versions"`
}

func newShowCommand() *cobra.Command {
	var previous, first, format string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "show [FILE|LOCATION]",
		Short: "Show keys, thresholds and signatures",
		Long: `Show the document in FILE, or all versions at LOCATION, oci://HOST/PREFIX or oci-layout:DIR, else at the registry of
the settings: who may sign, who
has signed, and who is missing. A later version than the first needs signatures by root keys of the version
before as well; --previous names that one, as a file or the location where it is.

The versions at a location are checked against each other, and with --trust against version 1 as you have
it: without it, all of them may be anybody's.`,
		Example: `  wherry trust show trust.v2.json --previous trust.v1.json
  wherry trust show oci://127.0.0.1:5000/edge --trust trust.v1.json -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				loc, s, err := flags.LocationArgument(nil)
				if err != nil {
					return err
				}
				if first == "" {
					first = s.Trust.Text
				}
				args = []string{loc.String()}
			}
			if isLocation(args[0]) {
				if previous != "" {
					return cli.Usagef("--previous is for a file: a location has all versions")
				}
				return showLocation(cmd, args[0], first, format, registry)
			}
			if first != "" {
				return cli.Usagef("--trust is for a location: for a file give --previous")
			}
			envelope, err := flags.ReadTrust(args[0])
			if err != nil {
				return err
			}
			before, err := readPrevious(cmd, previous, envelope, registry)
			if err != nil {
				return err
			}
			s, err := trust.StatusOf(envelope, before)
			if err != nil {
				return wrongFile(err, args[0])
			}
			shown := shown{args[0], []*trust.Status{s}}
			warnOfExpiry(cmd, s)
			return cli.Print(cmd.OutOrStdout(), format, shown, func(w io.Writer) { documentTable(w, s) })
		},
	}
	addPrevious(cmd, &previous)
	cmd.Flags().StringVar(&first, "trust", "", "version 1 of the document, a `FILE`, that those at LOCATION have to follow from")
	registry.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

// showLocation shows the versions at a location that can be trusted, also if a later one cannot.
func showLocation(cmd *cobra.Command, location, first, format string, registry flags.Registry) error {
	loc, err := flags.ParseLocation("", location)
	if err != nil {
		return err
	}
	var chain bundle.TrustChain
	if first != "" {
		if chain, err = flags.BeginTrust(first); err != nil {
			return err
		}
	} else {
		cmd.PrintErrln("note: nobody has asked whether version 1 is the right one: --trust FILE asks")
	}
	chain, refused := published.FollowTrust(cmd.Context(), loc, chain, registry.Options())
	statuses, err := trust.Statuses(chain)
	if err != nil {
		return err
	}
	shown := shown{loc.String(), statuses}
	if n := len(shown.Versions); n > 0 {
		warnOfExpiry(cmd, shown.Versions[n-1])
	}
	if len(chain) == 0 && refused == nil {
		cmd.PrintErrf("no trust documents at %s\n", loc)
	}
	if len(chain) > 0 || refused == nil {
		if err := cli.Print(cmd.OutOrStdout(), format, shown, func(w io.Writer) { versionsTable(w, shown.Versions) }); err != nil {
			return err
		}
	}
	return failure.At(refused, loc)
}

// warnOfExpiry warns if the newest version has expired.
func warnOfExpiry(cmd *cobra.Command, s *trust.Status) {
	if !time.Now().Before(s.ExpiresAt) {
		cmd.PrintErrf("warning: version %d has expired, and nothing new is taken under it: \"wherry trust rotate\" begins the next one\n", s.Version)
	}
}

// versionsTable lists the versions, and the keys of the one in force.
func versionsTable(w io.Writer, versions []*trust.Status) {
	fmt.Fprintln(w, "VERSION\tEPOCH\tISSUED\tEXPIRES\tROOT\tRELEASE\tSIGNED BY")
	for _, s := range versions {
		var by []string
		for _, k := range s.Own.Signed {
			by = append(by, k.Cell())
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%d of %d\t%d of %d\t%s\n", s.Version, s.Epoch, show.Time(s.IssuedAt), show.Time(s.ExpiresAt),
			s.Root.Threshold, len(s.Root.Keys), s.Release.Threshold, len(s.Release.Keys), strings.Join(by, ", "))
	}
	if len(versions) > 0 {
		fmt.Fprintln(w)
		keyRows(w, versions[len(versions)-1])
	}
}

func documentTable(w io.Writer, s *trust.Status) {
	fmt.Fprintf(w, "PLATFORM\t%s\n", show.Cell(s.Platform))
	fmt.Fprintf(w, "VERSION\t%d\n", s.Version)
	fmt.Fprintf(w, "EPOCH\t%d\n", s.Epoch)
	fmt.Fprintf(w, "ISSUED\t%s\n", show.Time(s.IssuedAt))
	fmt.Fprintf(w, "EXPIRES\t%s\n", show.Time(s.ExpiresAt))
	fmt.Fprintf(w, "SIGNED BY\t%s\n\n", signedText(s))
	keyRows(w, s)
}

// keyRows lists all keys of a document, and those before it that have to sign it.
func keyRows(w io.Writer, s *trust.Status) {
	fmt.Fprintln(w, "ROLE\tTHRESHOLD\tKEY\tNAME\tSIGNED")
	rows := func(role string, threshold int, keys []trust.KeyName, signed string) {
		for _, k := range keys {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", role, threshold, k.ID, show.Cell(k.Name), signed)
		}
	}
	rows("root", s.Root.Threshold, s.Own.Signed, "yes")
	rows("root", s.Root.Threshold, s.Own.Missing, "no")
	if s.Previous != nil {
		before := fmt.Sprintf("root of version %d", s.Version-1)
		rows(before, s.Previous.Need, s.Previous.Signed, "yes")
		rows(before, s.Previous.Need, s.Previous.Missing, "no")
	}
	for _, k := range s.Release.Keys {
		rows("release", s.Release.Threshold, []trust.KeyName{{ID: k.ID, Name: k.Name}}, "-")
	}
}
