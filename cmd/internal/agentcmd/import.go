package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// importFlags are the flags of import.
type importFlags struct {
	passFlags
	allowExpired reason
	reports      string
	watch        string
}

func newImportCommand() *cobra.Command {
	var f importFlags
	cmd := f.command(&cobra.Command{
		Use:   "import SOURCE…",
		Short: "Import a site package",
		Long: `Take in a site package that "wherry airgap export" has written: verify it, store what this agent is to have of it,
apply the release for this agent, and say how the cluster stands. It is handed to the running agent if there is
one. What breaks off goes on with the next import of the package.

SOURCE is the package's file; its parts, in any order; a folder with packages, of which the newest runs, or with
an unpacked one; or - for standard input. A folder may hold the file of "wherry hub export-ack" as well, under any
name: the reports that the hub has acknowledged are then deleted, as reports ack does. With --reports FILE, all
reports that wait are written to FILE at the end, and RESULT-CLUSTER.txt beside it says in words what came of it.

With --watch DIR the command waits for media at the mount point DIR, takes in the package of each, with
acknowledgements and --reports as above, by the running agent, and prints one line for each. A bad medium does
not end it; SIGTERM and Ctrl-C do.` + exitCodes + `

With other streams in the package: 1 if some were taken and others not; 4 if none was and one is refused.`,
		Example: example("import site.tar --config agent.yaml", "import /media/wherry --reports /media/wherry", "import - <site.tar"),
		Args: func(cmd *cobra.Command, args []string) error {
			if f.watch != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
	}, func(cmd *cobra.Command, c *config.Config, args []string) error {
		if f.watch != "" {
			return f.watchFolder(cmd, c)
		}
		return f.importOnce(cmd, c, args)
	})
	flags := cmd.Flags()
	flags.Var(&f.allowExpired, "allow-expired", "take releases that have expired, and record and report `REASON`, one line; for this import alone")
	flags.StringVar(&f.reports, "reports", "", "write all reports that wait to `FILE`, or to reports-CLUSTER.tar in this folder, at the end, and RESULT-CLUSTER.txt beside them; with --watch, a name on the medium, or . for the medium itself")
	flags.StringVar(&f.watch, "watch", "", "wait for media at the mount point `DIR`")
	cli.NotEmpty(cmd, "reports", "watch")
	_ = cmd.MarkFlagDirname("watch")
	cmd.MarkFlagsMutuallyExclusive("watch", "allow-expired") // else it would allow what nobody has looked at
	cmd.MarkFlagsMutuallyExclusive("watch", "output")
	return cmd
}

// reason is a flag's value that tells why: one line that is not empty.
type reason string

func (r *reason) String() string { return string(*r) }
func (r *reason) Type() string   { return "string" }
func (r *reason) Set(s string) error {
	if s = strings.TrimSpace(s); s == "" {
		return errors.New("say why")
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c == '\n' || c == '\r' }) {
		return errors.New("say why in one line")
	}
	*r = reason(s)
	return nil
}

// importOnce imports what args name.
func (f *importFlags) importOnce(cmd *cobra.Command, c *config.Config, args []string) error {
	n, err := f.open(cmd, args)
	if err != nil {
		return f.reportResult(cmd, c, imported{}, err)
	}
	defer n.close()
	if why := n.allowedExpired; why != "" {
		cmd.PrintErrf("note: a release in %s had expired when it was written, with --allow-expired %q\n", n.name, why)
	}
	if other := n.otherSite(c); other != "" {
		cmd.PrintErrf("note: %s\n", other)
	}
	done, errs := f.takeMedium(cmd, c, n)
	errs = append(errs, n.skipped...)
	if errors.Is(errs[0], context.Canceled) && cmd.Context().Err() != nil {
		cmd.PrintErrln("the next import of this package goes on from here")
		return errs[0]
	}
	failed := f.reportResult(cmd, c, done, joined(errs...))
	if done.status == nil {
		return failed
	}
	if err := f.printImport(cmd, done); err != nil {
		return err
	}
	return failed
}

// imported is what came of a medium.
type imported struct {
	name  string // of the package, or of the folder of several; empty if there was none
	sites []string
	// status is nil if the import did not come to an end.
	status  *agent.Status
	result  agent.ImportResult
	acks    *outbox.Acknowledged
	reports *writtenReports
}

// takeMedium imports the package, hands over acknowledgements, and writes reports: later steps are taken though an earlier
// one has failed, unless nobody could be asked. The errors are those of the steps, nil for those that went well.
func (f *importFlags) takeMedium(cmd *cobra.Command, c *config.Config, n named) (done imported, errs []error) {
	errs = make([]error, 3)
	done.name, done.sites = n.name, n.sites
	if n.name != "" {
		done.result, errs[0] = f.take(cmd, c, n)
		if errs[0] != nil {
			return done, errs
		}
		if errs[0] = importExit(cmd, done.result, n.holds, c.Cluster); done.result.Verdict == agent.Interrupted {
			return done, errs
		}
		done.status = &done.result.Status
	}
	done.acks, errs[1] = takeAcks(cmd, c, n.acks)
	if f.reports != "" {
		done.reports, errs[2] = reportsTo(cmd, c, f.reports)
	}
	if done.status == nil || done.acks != nil { // the queue is shorter
		if s, err := c.Status(cmd.Context()); err == nil {
			done.status = &s
		} else if done.status == nil {
			errs[0] = err
		}
	}
	return done, errs
}

// take has the running agent import the package, or imports it.
func (f *importFlags) take(cmd *cobra.Command, c *config.Config, n named) (r agent.ImportResult, err error) {
	ctx := cmd.Context()
	progress := cli.NewProgress("importing " + n.name)
	defer progress.End()
	client := agent.NewClient(c.StateDir)
	if progress == nil {
		client = runningAgent(cmd, c)
	}
	defer follow(ctx, client, progress)()
	request := agent.ImportRequest{Paths: n.paths, Stdin: n.stdin, AllowExpired: string(f.allowExpired), Wait: f.wait}
	if files := n.files(); len(files) > 0 { // in an agent with mounts of its own, a folder may be another one
		request.Paths, request.Each = nil, files
	}
	r, err = client.Import(ctx, request)
	if errors.Is(err, agent.ErrUnreadable) && len(n.packages) > 0 {
		cmd.PrintErrf("%v: it is sent to the agent\n", err)
		request.Paths, request.Each = nil, nil
		r, err = send(ctx, client, request, n.packages)
	}
	switch {
	case errors.Is(err, control.ErrNotRunning) && f.watch != "":
		err = controlError(c, err)
	case errors.Is(err, control.ErrNotRunning):
		request.Progress, request.Opened = progress.Update, n.packages
		err = withAgent(cmd, c, func(a *agent.Agent) error {
			r = a.Import(ctx, request)
			return nil
		})
	case errors.Is(err, control.ErrGone):
		err = cli.Fail(cli.Failed, err, "import again: what has arrived is kept")
	case errors.Is(err, agent.ErrUnreadable):
		err = cli.Fail(cli.Failed, err, "give it the rights, copy the package to a folder that it may read, or send it: import - <site.tar")
	}
	return r, err
}

// send sends packages to the agent one after the other, by their names, and returns what came of all of them.
func send(ctx context.Context, client agent.Client, request agent.ImportRequest, packages []medium.Package) (all agent.ImportResult, err error) {
	var streams []intake.Stream
	for _, p := range packages {
		content := contentOf(p)
		request.Stdin = content
		all, err = client.Import(ctx, request)
		err = errors.Join(err, content.Close())
		for _, s := range all.Streams {
			if len(packages) > 1 {
				s.Package = filepath.Base(p.Name())
			}
			streams = append(streams, s)
		}
		if err != nil || all.Verdict == agent.Interrupted {
			break
		}
	}
	all.Streams = streams
	return all, err
}

// followEvery is the time between two questions how far a running agent is.
const followEvery = 500 * time.Millisecond

// follow shows how far the running agent is, until the caller ends it.
func follow(ctx context.Context, client agent.Client, progress *cli.Progress) (end func()) {
	if progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(followEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if p, err := client.ImportProgress(ctx); err == nil && p.Done > 0 {
				progress.Update(p.Done, p.Total)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// takeAcks hands over the acknowledgements in files. It is nil if there were none for this cluster.
func takeAcks(cmd *cobra.Command, c *config.Config, paths []string) (*outbox.Acknowledged, error) {
	var envelopes [][]byte
	for _, path := range paths {
		more, err := airgap.ReadAck(path)
		if err != nil {
			return nil, cli.Fail(denied(err), err, "")
		}
		envelopes = append(envelopes, more...)
	}
	if len(envelopes) == 0 {
		return nil, nil
	}
	done, err := acknowledge(cmd, c, envelopes)
	if errors.Is(err, queue.ErrForeignAck) {
		cmd.PrintErrf("note: %s: no acknowledgement for this cluster\n", strings.Join(paths, ", "))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &done, nil
}

// reportsTo writes the reports that wait.
func reportsTo(cmd *cobra.Command, c *config.Config, path string) (*writtenReports, error) {
	written, err := exportReports(cmd, c, path)
	switch {
	case errors.Is(err, os.ErrPermission), isReadOnly(err):
		return nil, cli.Fail(cli.Failed, fmt.Errorf("the reports were not written: %w", err), "they stay in the queue: mount the medium so that it can be written, or give --reports another place")
	case err != nil:
		return nil, cli.Fail(cli.Failed, fmt.Errorf("the reports were not written: %w", err), "they stay in the queue")
	}
	return &written, nil
}

// joined returns all errors as one, with the exit code of the first, and the first hint; nil if there are none.
func joined(errs ...error) error {
	var all []error
	code, hint := 0, ""
	for _, err := range errs {
		if err == nil {
			continue
		}
		all = append(all, err)
		e := &cli.Error{Code: cli.Failed}
		_ = errors.As(err, &e)
		code, hint = cmp.Or(code, e.Code), cmp.Or(hint, e.Hint)
	}
	if len(all) == 0 {
		return nil
	}
	if len(all) == 1 {
		return all[0]
	}
	return cli.Fail(code, errors.Join(all...), hint)
}

// ackLine says what came of acknowledgements.
func ackLine(done outbox.Acknowledged) string {
	return fmt.Sprintf("deleted %s, %d left%s", show.Count(done.Deleted, "report"), done.Left, ofOthers(done))
}
