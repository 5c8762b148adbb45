package fleetcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published/watch"
)

// Rollout returns the commands wherry rollout commit and wherry rollout workload.
func Rollout() []*cobra.Command {
	return []*cobra.Command{newRolloutCommitCommand(new(source)), newRolloutWorkloadCommand(new(source))}
}

const (
	// lookAgain is the longest time without a question with --watch: clusters become stale without an event.
	lookAgain = time.Minute
	// openRows is how many open clusters are shown on a terminal.
	openRows = 20
)

// watching holds the flags of both commands.
type watching struct {
	*source
	query
	format       format
	watch        bool
	timeout      string
	allowUnknown bool
	workloads    fleet.Workloads
	hint         string // what to do if no cluster counts; of the last look at a workload
	// waits says why the newest version of the workload does not enter the environment; empty if nothing waits. Nil if that is not known.
	waits func(context.Context) (string, error)
}

func newRolloutCommitCommand(s *source) *cobra.Command {
	w := &watching{source: s}
	cmd := &cobra.Command{
		Use:   "commit COMMIT --environment NAME [--watch] [--timeout DURATION]",
		Short: "Show the progress of a commit",
		Long: `Show how far the clusters of an environment are with a commit of the platform, or of the environment's branch; 7 digits are
enough. A silent cluster is unknown, whatever it reported last; --allow-unknown does not wait for it. --watch waits until
all clusters are compliant or one failed; --timeout does so too, and ends after DURATION. A hub is asked.

Exit codes: 0 all clusters are compliant, 1 waiting alone does not help, 5 not yet.

More: wherry help rings, hub-access`,
		Example: `  wherry rollout commit 3f2a9c1 --environment prod
  wherry rollout commit $(git rev-parse HEAD) --environment prod --timeout 2h
  wherry rollout commit 3f2a9c1 -e prod --ring canary -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Commit = args[0]
			switch {
			case w.Commit == "":
				return cli.Usagef("COMMIT is empty")
			case w.environment == "":
				return cli.Usagef("missing --environment")
			}
			return w.run(cmd)
		},
	}
	w.addTo(cmd, "workspace", "version")
	return cmd
}

// addTo adds the flags of both commands, without those that choose by the names of without.
func (w *watching) addTo(cmd *cobra.Command, without ...string) {
	w.source.addTo(cmd)
	w.addChoosing(cmd, append(without, "commit", "workload", "environment", "cluster", "application", "target", "adapter", "config", "content", "release", "image", "state", "relation", "silent-for")...)
	w.addEnvironment(cmd)
	f := cmd.Flags()
	f.BoolVar(&w.watch, "watch", false, "wait until all are compliant, or some failed")
	f.BoolVar(&w.allowUnknown, "allow-unknown", false, "do not wait for clusters that are silent")
	f.StringVar(&w.timeout, "timeout", "", "wait like --watch, for this `DURATION` at most, such as 2h")
	cli.NotEmpty(cmd, "timeout")
	w.addLimit(cmd)
	f.Lookup("limit").Usage = fmt.Sprintf("print `N` open clusters at most; 0 is all (default %d on a terminal, else 0)", openRows)
	addFormat(cmd, &w.format, documentFormats)
	w.completeNames(cmd, &w.query)
}

// run answers about the commit or the workload.
func (w *watching) run(cmd *cobra.Command) error {
	if err := w.finish(cmd.Flags(), w.now()); err != nil {
		return err
	}
	w.watch = w.watch || w.timeout != ""
	if w.watch && !w.AsOf.IsZero() {
		return cli.Usagef("--watch and --timeout follow what comes, and --as-of is about the past")
	}
	ctx := cmd.Context()
	if w.timeout != "" {
		limit, err := duration.Parse(w.timeout)
		if err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--timeout: %w", err), "")
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
		defer cancel()
	}
	width := 0
	if w.format == asTable {
		width = w.width()
	}
	q := w.Query
	q.Environments, q.Commit = nil, ""
	if q.Limit = w.limit; width > 0 && !w.limited {
		q.Limit = openRows
	}
	screen := &screen{out: cmd.OutOrStdout(), redraw: w.watch && width > 0, width: width}
	if w.Workload != "" {
		screen.title = joined(" in ", w.Workload+" "+w.Version, w.environment) + ": "
	}
	var last *fleet.Rollout
	err := w.ask(cmd, func(a fleet.Answers) (err error) {
		last, err = w.follow(ctx, cmd.ErrOrStderr(), a, q, screen)
		return err
	})
	timedOut := errors.Is(context.Cause(ctx), errTimeout)
	if err != nil && !timedOut {
		return w.explain(err)
	}
	if last == nil { // it ended before the first answer
		return cli.Fail(cli.NotYet, fmt.Errorf("the hub did not answer within %s", w.timeout), "")
	}
	if w.format != asTable {
		var answer any = commitRollout{w.by, *last}
		if w.Workload != "" {
			answer = workloadRollout{w.Workload, w.Version, w.by, *last}
		}
		if err := document(cmd.OutOrStdout(), w.format, answer); err != nil {
			return err
		}
	}
	switch {
	case last.Done:
		return nil
	case last.Failed:
		return cli.Exit(cli.No)
	}
	if !w.watch {
		w.noteUnpublished(cmd.ErrOrStderr(), *last)
	}
	if timedOut && w.Workload != "" && last.Why != "" {
		return cli.Fail(cli.NotYet, fmt.Errorf("after %s: %s", w.timeout, last.Why), w.hint)
	}
	if timedOut {
		return cli.Fail(cli.NotYet, fmt.Errorf("not all clusters are compliant after %s", w.timeout), "")
	}
	return cli.Exit(cli.NotYet)
}

// commitRollout is how far the clusters are with a base commit. Its JSON form is an interface.
type commitRollout struct {
	CountedBy string `json:"countedBy,omitempty"` // such as "the hub at https://hub.example.com"
	fleet.Rollout
}

var errTimeout = errors.New("--timeout has passed")

// explain gives an error its exit code and hint.
func (w *watching) explain(err error) error {
	if errors.Is(err, store.ErrUnknownRelease) {
		return cli.Fail(cli.Failed, err, fmt.Sprintf("wherry get releases --environment %s shows the commits that the hub knows", w.environment))
	}
	return err
}

// noteUnpublished says what to do if the hub does not know the commit, which the answer itself says. With --watch it says that
// too: what is waited for may be a wrong commit.
func (w *watching) noteUnpublished(notes io.Writer, r fleet.Rollout) {
	if r.Published {
		return
	}
	if w.Workload != "" {
		if w.watch {
			fmt.Fprintln(notes, "note: "+r.Why+"; waiting for it")
		}
		if w.hint != "" {
			fmt.Fprintln(notes, "hint: "+w.hint)
		}
		return
	}
	if w.watch {
		what := "commit " + short(w.Commit) + " is not published in environment " + w.environment + " yet; waiting for it"
		if !r.Followed {
			what = "the hub does not follow what is published in environment " + w.environment + "; waiting for it"
		}
		fmt.Fprintln(notes, "note: "+what)
	}
	if r.Followed {
		fmt.Fprintf(notes, "hint: \"wherry get releases --environment %s\" shows the commits that the hub knows\n", w.environment)
	} else {
		fmt.Fprintln(notes, "hint: "+followHint)
	}
}

// followHint is the hint of a hub that does not know what is published.
const followHint = `"wherry hub serve --watch LOCATION" follows what is published, and "wherry publish --hub URL" sends it`

// follow asks how far the clusters are, and with --watch again after changes, until they are done or failed.
// Notes is for what a person has to do before that can be.
func (w *watching) follow(ctx context.Context, notes io.Writer, a fleet.Answers, q fleet.Query, screen *screen) (last *fleet.Rollout, err error) {
	var wakers []watch.Waker
	if w.watch && w.instead == nil {
		wakers = append(wakers, env.Changes(a, fleet.Query{Environments: w.Environments}))
	}
	err = watch.Run(ctx, watch.Options{Wakers: wakers}, func(ctx context.Context, t *watch.Turn) error {
		next, err := w.look(ctx, a, q)
		if err != nil {
			return watch.Stop(err)
		}
		first := last == nil
		last = &next
		if first && w.watch && !last.Done && !last.Failed { // before the picture, which is drawn again in its place
			w.noteUnpublished(notes, next)
		}
		if w.format == asTable {
			screen.by = w.by
			if err := screen.show(next, w.moment(next)); err != nil {
				return watch.Stop(err)
			}
		}
		if !w.watch || last.Done || last.Failed {
			return watch.ErrDone
		}
		t.Within(lookAgain)
		return nil
	})
	return last, err
}

// look asks how far the clusters are.
func (w *watching) look(ctx context.Context, a fleet.Answers, q fleet.Query) (r fleet.Rollout, err error) {
	if w.Workload != "" {
		r, err = w.lookAtWorkload(ctx, a, q)
	} else {
		r, err = a.Rollout(ctx, w.environment, w.Commit, fleet.RolloutQuery{Query: q})
	}
	if w.allowUnknown && r.Compliant > 0 && r.Compliant+r.Unknown == r.Clusters {
		r.Done = true
	}
	return r, err
}

// lookAtWorkload asks how far the clusters are that should run the workload.
func (w *watching) lookAtWorkload(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Rollout, error) {
	q.Environments, w.hint = w.Environments, ""
	if w.instead != nil {
		var err error
		if a, err = w.instead(ctx, q); err != nil {
			return fleet.Rollout{}, err
		}
	}
	r, err := w.workloads.Rollout(ctx, a, q)
	if w.instead != nil && errors.As(err, new(*fleet.UnknownNameError)) {
		r.Published, r.Why = false, "no cluster is registered"
		return r.Rollout, nil
	}
	if err == nil && w.waits != nil && !slices.Contains(r.Versions, w.Version) {
		var waits string
		waits, err = w.waits(ctx)
		r.Why = cmp.Or(waits, r.Why)
	}
	if err != nil || r.Clusters+r.NotReporting > 0 {
		return r.Rollout, err
	}
	versions := slices.DeleteFunc(r.Versions, func(v string) bool { return v == "" })
	switch in := r.Workspaces[w.Workload]; {
	case !r.Followed && w.instead != nil:
		w.hint = "check --to and --environment: no record of the environment is there that --release-key or --trust vouches for"
	case !r.Followed:
		r.Why, w.hint = "the hub does not know what is published for any of its clusters", followHint
	case in == nil:
		w.hint = failure.Near(w.Workload, slices.Sorted(maps.Keys(r.Workspaces)))
	case len(r.Versions) == 0:
		w.hint = failure.Near(w.Workspace, slices.Sorted(maps.Keys(in)))
	case len(versions) == 0:
		w.hint = "its releases name no version: see wherry.dev/pin, or deliver it embedded"
	default:
		w.hint = "releases have version " + strings.Join(versions[max(0, len(versions)-maxVersions):], ", ")
	}
	return r.Rollout, nil
}

// maxVersions bounds the versions in a hint.
const maxVersions = 8

// workloadRollout is how far the clusters are with a version of a workload. Its JSON form is an interface.
type workloadRollout struct {
	Workload string `json:"workload"`
	Version  string `json:"version"`
	// CountedBy is who counted the clusters, such as "the hub at https://hub.example.com".
	CountedBy string `json:"countedBy,omitempty"`
	fleet.Rollout
}

// moment is the moment of an answer.
func (w *watching) moment(r fleet.Rollout) time.Time {
	if !w.AsOf.IsZero() {
		return w.AsOf
	}
	if !r.AsOf.IsZero() {
		return r.AsOf
	}
	return w.now()
}

// screen shows how far a rollout is: again in the same place on a terminal, else a line for each change.
type screen struct {
	out    io.Writer
	title  string // empty for that of a commit
	by     string // who counted the clusters; empty if that is not known
	redraw bool
	width  int
	lines  int    // that the last picture took
	shown  string // the last line
}

func (s *screen) show(r fleet.Rollout, now time.Time) error {
	sheet := &sheet{width: s.width}
	writeRollout(sheet, s.title, s.by, r, now)
	text := sheet.String()
	if s.redraw {
		if s.lines > 0 { // past the writer that escapes what terminals obey
			fmt.Fprintf(os.Stdout, "\x1b[%dA\x1b[J", s.lines)
		}
		s.lines = screenLines(text, s.width)
		_, err := io.WriteString(s.out, text)
		return err
	}
	line, _, _ := strings.Cut(text, "\n")
	if s.shown == "" || r.Done || r.Failed {
		s.shown = line
		_, err := io.WriteString(s.out, text)
		return err
	}
	if line == s.shown {
		return nil
	}
	s.shown = line
	_, err := fmt.Fprintln(s.out, line)
	return err
}

// screenLines counts the lines that a text takes on a terminal, which breaks those that are too long.
func screenLines(text string, width int) (n int) {
	for line := range strings.Lines(text) {
		n += max(1, (len([]rune(strings.TrimRight(line, "\n")))+width-1)/max(1, width))
	}
	return n
}

func writeRollout(w *sheet, title, by string, r fleet.Rollout, now time.Time) {
	head := cmp.Or(title, fmt.Sprintf("%s at %s: ", r.Environment, short(r.Commit)))
	if r.Clusters == 0 {
		head += "no clusters"
	} else {
		n, beyond := r.Shown()
		head += progress(n.Clusters, n.Compliant, n.Progressing, n.Failed, n.Waiting, n.Unknown)
		if beyond > 0 {
			head += " · " + number(beyond) + " in rings that it has not reached"
		}
	}
	if r.OldestProofSeconds > 0 {
		head += " · oldest proof " + longAge(time.Duration(r.OldestProofSeconds)*time.Second)
	}
	fmt.Fprintln(w, head)
	if r.Why != "" {
		w.value("Why", r.Why)
	}
	if by != "" {
		w.value("Counted by", by)
	}
	if len(r.Types) > 0 {
		t := &table{headers: []string{"TYPE", "RELEASE", "CLUSTERS", "COMPLIANT", "PROGRESSING", "FAILED", "WAITING", "UNKNOWN"}, flexible: make([]bool, 8)}
		for _, x := range r.Types {
			release := x.Release
			if x.Incomplete {
				release = joined(", ", cmp.Or(release, "none"), "incomplete")
			}
			t.add(x.Type, release, number(x.Clusters), number(x.Compliant), number(x.Progressing), number(x.Failed), number(x.Waiting), number(x.Unknown))
		}
		w.table("By type", t)
	}
	if len(r.Open) == 0 {
		return
	}
	t := &table{headers: []string{"CLUSTER", "TYPE", "VERDICT", "STATE", "REASON", "RELEASE", "LAST SEEN"}, flexible: []bool{false, false, false, false, true, false, false}}
	for _, c := range r.Open {
		t.add(c.Cluster, joined(", ring ", c.Type, c.Ring), c.Verdict, stateText(c.State, c.LastState), reasonText(c.Reason, c.Message), c.Release, heard(c.LastSeen, c.Via, now))
	}
	w.table("Open clusters", t)
	if more := r.Clusters - r.Compliant - len(r.Open); more > 0 {
		fmt.Fprintf(w, "… and %s more; --limit 0 shows all\n", number(more))
	}
}

// stateText is a state as people read it.
func stateText(state, last bundle.State) string {
	return fleet.Cluster{ClusterStatus: store.ClusterStatus{State: state, LastState: last}}.ShownState()
}
