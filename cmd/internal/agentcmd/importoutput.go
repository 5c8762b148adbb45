package agentcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// importOutput is what import prints as JSON: the status, and what came of the medium. It is an interface.
type importOutput struct {
	agent.Status
	Import importSummary `json:"import"`
}

// importSummary is what came of a medium.
type importSummary struct {
	// Package is the name of the package, or that of the folder if several were of use; empty if the medium held none. Packages is
	// the number of them.
	Package  string `json:"package,omitempty"`
	Packages int    `json:"packages,omitempty"`
	// Sites are those that the packages say they were made for.
	Sites []string `json:"sites,omitempty"`
	// Outcomes counts the streams by their outcome, and Bytes is what was copied of them.
	Outcomes map[intake.Outcome]int `json:"outcomes,omitempty"`
	Bytes    int64                  `json:"bytes"`
	// Streams are sorted, the worst first.
	Streams []intake.Stream `json:"streams,omitempty"`
	// Acknowledged is what came of acknowledgements on the medium, and Reports the file that was written; nil for none.
	Acknowledged *outbox.Acknowledged `json:"acknowledged,omitempty"`
	Reports      *writtenReports      `json:"reports,omitempty"`
}

// outcomes are those of streams, the worst first.
var outcomes = []intake.Outcome{
	intake.Refused, intake.Unfinished, intake.NoRoom, intake.LacksBase, intake.Older, intake.Foreign, intake.Taken, intake.Here,
}

func summarize(done imported) importSummary {
	s := importSummary{Package: done.name, Sites: done.sites, Streams: slices.Clone(done.result.Streams), Acknowledged: done.acks, Reports: done.reports}
	names := map[string]bool{}
	for _, stream := range s.Streams {
		if s.Outcomes == nil {
			s.Outcomes = map[intake.Outcome]int{}
		}
		s.Outcomes[stream.Outcome]++
		s.Bytes += stream.Bytes
		names[stream.Package] = true
	}
	if s.Packages = len(names); s.Packages == 1 && s.Streams[0].Package != "" {
		s.Package = filepath.Join(s.Package, s.Streams[0].Package)
	}
	slices.SortStableFunc(s.Streams, func(a, b intake.Stream) int {
		if worse := rankOf(a.Outcome) - rankOf(b.Outcome); worse != 0 || a.Own == b.Own {
			return cmp.Or(worse, strings.Compare(a.Name(), b.Name()))
		}
		if a.Own {
			return -1
		}
		return 1
	})
	return s
}

// rankOf is the place of an outcome, the worst first.
func rankOf(o intake.Outcome) int { return slices.Index(outcomes, o) }

// totals returns how many streams had each outcome, the worst first, and what was copied.
func (s importSummary) totals() string {
	line := s.Package
	if s.Packages > 1 {
		line += ": " + show.Count(s.Packages, "package")
	}
	if len(s.Streams) == 1 {
		line += ": " + string(s.Streams[0].Outcome)
	} else if len(s.Streams) > 1 {
		var parts []string
		for _, o := range outcomes {
			if n := s.Outcomes[o]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, o))
			}
		}
		line += ": " + show.Count(len(s.Streams), "stream") + ", " + strings.Join(parts, ", ")
	}
	if s.Bytes > 0 {
		line += "; " + show.Size(s.Bytes) + " copied"
	}
	return line
}

func (f *importFlags) printImport(cmd *cobra.Command, done imported) error {
	s := summarize(done)
	return cli.Print(cmd.OutOrStdout(), f.output, importOutput{*done.status, s}, func(w io.Writer) {
		writeImport(w, s)
		writeTable(w, *done.status, time.Now())
	})
}

// writeImport writes the totals and the table of streams.
func writeImport(w io.Writer, s importSummary) {
	if s.Package != "" {
		cli.Row(w, "package", s.totals())
	}
	if len(s.Sites) > 0 {
		cli.Row(w, "made for", show.List(s.Sites, maxNamedStreams))
	}
	if s.Acknowledged != nil {
		cli.Row(w, "acks", ackLine(*s.Acknowledged))
	}
	if s.Reports != nil {
		cli.Row(w, "reports", s.Reports.String())
	}
	if len(s.Streams) > 0 {
		several := s.Streams[0].Package != ""
		fmt.Fprintf(w, "\nSTREAM\t%sRELEASE\tRESULT\tCOPIED\tREASON\n", map[bool]string{true: "PACKAGE\t"}[several])
		for _, stream := range s.Streams {
			copied := ""
			if stream.Bytes > 0 {
				copied = show.Size(stream.Bytes)
			}
			cells := []string{stream.Name() + ownMark(stream)}
			if several {
				cells = append(cells, stream.Package)
			}
			cli.Row(w, append(cells, stream.Release, string(stream.Outcome), copied, reasonOf(string(stream.Reason), stream.Message))...)
		}
	}
	fmt.Fprintln(w)
}

// ownMark marks the agent's own stream.
func ownMark(s intake.Stream) string {
	if s.Own {
		return " (own)"
	}
	return ""
}

// importExit is the exit code of an import, with the reason for it: that of the pass, unless other streams were not taken.
// Holds says what the package holds, and who is this agent by its configuration.
func importExit(cmd *cobra.Command, r agent.ImportResult, holds string, who bundle.ReportCluster) error {
	err := verdictExit(cmd, r, holds, who)
	if e := (*cli.Error)(nil); r.Parts != "" && errors.As(err, &e) && !strings.Contains(e.Error(), r.Parts) {
		return cli.Fail(e.Code, fmt.Errorf("%w; %s", e.Err, r.Parts), e.Hint)
	}
	return err
}

func verdictExit(cmd *cobra.Command, r agent.ImportResult, holds string, who bundle.ReportCluster) error {
	own := slices.IndexFunc(r.Streams, func(s intake.Stream) bool { return s.Own && s.Outcome != intake.Foreign })
	goodOwn := slices.ContainsFunc(r.Streams, func(s intake.Stream) bool { return s.Own && s.Outcome.Good() })
	switch {
	case r.Verdict == agent.Interrupted:
		return interrupted(cmd, r.Result)
	case r.Verdict == agent.Refused && own < 0 && holds != "":
		if c := r.Status.Cluster; c.Type != "" { // it has made a pass
			who = bundle.ReportCluster{Platform: r.Status.Platform, Environment: c.Environment, Type: c.Type}
		}
		return cli.Fail(cli.Denied, errors.New("the package has nothing for this agent: "+r.Error),
			fmt.Sprintf("the package holds %s; this agent is %s/%s of the platform %q", holds, who.Environment, who.Type, who.Platform))
	case r.Verdict == agent.Refused && r.Status.Release.Refused == nil && r.Status.Release.Held == nil:
		return cli.Fail(cli.Denied, errors.New(r.Error), ownHint(r, own))
	case r.Verdict == agent.Broken && r.Damaged:
		return cli.Fail(cli.Failed, errors.New(r.Error), cli.DamagedHint)
	}
	err := exitOf(r.Result)
	if e := (*cli.Error)(nil); errors.As(err, &e) && e.Code != cli.NotYet {
		return err
	}
	var bad []intake.Stream
	for _, s := range summarize(imported{result: r}).Streams {
		if (!s.Own || goodOwn) && !s.Outcome.Good() && s.Outcome != intake.Foreign && s.Outcome != intake.Older {
			bad = append(bad, s)
		}
	}
	if len(bad) == 0 {
		return err
	}
	worst := bad[0]
	name := worst.Name()
	if worst.Package != "" {
		name += " of " + worst.Package
	}
	return cli.Fail(cli.No, fmt.Errorf("%d of %s not taken; %s: %s", len(bad), show.Count(len(r.Streams), "stream"), name,
		string(worst.Outcome)+spaced(reasonOf(string(worst.Reason), worst.Message))), streamHint(worst))
}

// ownHint says what mends an import that has changed nothing. Own is the index of the agent's own stream, -1 for none.
func ownHint(r agent.ImportResult, own int) string {
	const rest = "what runs keeps running"
	if own < 0 || r.Streams[own].Outcome == intake.Refused && !isDamaged(r.Streams[own]) {
		return rest
	}
	return rest + "; " + streamHint(r.Streams[own])
}

// isDamaged reports whether a stream was refused because its content is not what was written.
func isDamaged(s intake.Stream) bool {
	return s.Outcome == intake.Refused && s.Reason == bundle.DigestMismatch
}

// streamHint says what mends the outcome of a stream.
func streamHint(s intake.Stream) string {
	if isDamaged(s) {
		return cli.DamagedHint
	}
	switch s.Outcome {
	case intake.LacksBase:
		return "have a complete package exported for this stream, without --since"
	case intake.NoRoom:
		return "make room, or raise --import-budget, and import the package again"
	case intake.Unfinished:
		return "import the package again: it goes on from there"
	case intake.Older:
		return "a newer release is here already: bring a newer package"
	}
	return "the others are not affected"
}
