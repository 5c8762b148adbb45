package flags

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

const (
	// minInterval is the shortest --interval.
	minInterval = time.Second
	// maxSecretFile bounds the file of --webhook-secret-file, and maxNotes what a step prints.
	maxSecretFile = 4 << 10
	maxNotes      = 1 << 20
)

// Watch holds the flags of a command that goes on with --watch.
type Watch struct {
	On bool

	interval            time.Duration
	webhook, secretFile string
	journal             *Journal
	hook                *watch.Webhook // nil without --webhook
}

// AddTo adds --watch and the flags that go with it.
func (w *Watch) AddTo(cmd *cobra.Command, usage string) {
	w.interval = watch.DefaultInterval
	f := cmd.Flags()
	f.BoolVar(&w.On, "watch", false, usage)
	f.Var((*duration.Value)(&w.interval), "interval", "with --watch: look at each repository after this `TIME`")
	f.StringVar(&w.webhook, "webhook", "", "with --watch: take webhooks of forges at this `ADDRESS`, such as :8090")
	f.StringVar(&w.secretFile, "webhook-secret-file", "", "read the webhook's secret from the first line of this `FILE`")
	cli.NotEmpty(cmd, "webhook", "webhook-secret-file")
	cli.Rare(cmd, "interval", "webhook", "webhook-secret-file")
}

// Check returns an error if flags do not fit together. Format is the value of -o.
func (w *Watch) Check(cmd *cobra.Command, format string) error {
	for _, name := range []string{"interval", "webhook", "webhook-secret-file"} {
		if !w.On && cmd.Flags().Changed(name) {
			return cli.Usagef("--%s needs --watch", name)
		}
	}
	switch {
	case w.On && format == "yaml":
		return cli.Usagef("--watch prints lines: give -o json, or leave -o out")
	case w.interval < minInterval:
		return cli.Usagef("--interval %s: at least %s", w.interval, minInterval)
	case w.webhook != "" && w.secretFile == "":
		return cli.Fail(cli.Usage, errors.New("--webhook needs --webhook-secret-file"), "openssl rand -hex 32 > webhook.secret, and give the forge the same secret")
	case w.webhook == "" && w.secretFile != "":
		return cli.Usagef("--webhook-secret-file needs --webhook")
	}
	return nil
}

// Interval returns the time between two looks at a repository.
func (w *Watch) Interval() time.Duration { return w.interval }

// Watched is what a command looks at with --watch.
type Watched struct {
	// Sources is called before the first turn and after each.
	Sources func() []watch.Source
	// Wakers run beside the steps, with that of --webhook.
	Wakers []watch.Waker
	// Format is the value of -o.
	Format string
}

// Journal prints one line for each thing that happens.
type Journal struct {
	mu        sync.Mutex
	out, talk io.Writer
	format    string
	noted     map[string]bool // by the last turn
	same      bool            // this turn notes less than the last one
}

// Line is a line of a [Journal]. Its JSON form is an interface.
type Line struct {
	Time time.Time `json:"time"`
	// Event is watching, failed, unreachable, reachable or note, or one of the command's own.
	Event       string `json:"event"`
	Environment string `json:"environment,omitempty"`
	Message     string `json:"message"`
	Hint        string `json:"hint,omitempty"`
	// Source is the repository, folder or hub that it is about.
	Source string `json:"source,omitempty"`
	// Again is when what failed is tried again.
	Again time.Time `json:"again,omitzero"`
	// Result is the command's own.
	Result any `json:"result,omitempty"`
}

// Print prints a line: results to stdout, and what is beside them to stderr; with -o json all to stdout. A zero time is now.
func (j *Journal) Print(l Line) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if l.Time.IsZero() {
		l.Time = time.Now()
	}
	l.Time = l.Time.UTC().Truncate(time.Millisecond)
	if !l.Again.IsZero() {
		l.Again = l.Again.UTC().Truncate(time.Second)
	}
	if j.format == "json" {
		enc := json.NewEncoder(j.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(l)
	}
	text := l.Time.Format(time.RFC3339) + " "
	for _, part := range []string{l.Environment, l.Source} {
		if part != "" {
			text += show.Line(part) + ": "
		}
	}
	text += show.Line(strings.Join(strings.Fields(l.Message), " "))
	if !l.Again.IsZero() {
		text += "; trying again at " + l.Again.Format(time.TimeOnly)
	}
	out := j.out
	if l.Result == nil {
		out = j.talk
	}
	if l.Hint != "" {
		text += "\nhint: " + show.Line(l.Hint)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// Same tells that a turn looks at less than those before it, so that what they noted holds.
func (j *Journal) Same() { j.same = true }

// Step is a step of a command that goes on; see [watch.Step].
type Step func(ctx context.Context, t *watch.Turn, j *Journal) error

// Run runs steps as [watch.Run] does until the command is interrupted. What they print to stderr is printed as lines, each
// once as long as every turn prints it again. The first turn ends the command if its usage or configuration is wrong.
func (w *Watch) Run(cmd *cobra.Command, o Watched, steps ...Step) error {
	w.journal = &Journal{out: cmd.OutOrStdout(), talk: cmd.ErrOrStderr(), format: o.Format}
	about := fmt.Sprintf("watching, every %s", duration.Text(w.interval))
	wakers := o.Wakers
	if w.webhook != "" {
		listener, err := w.listen(cmd)
		if err != nil {
			return err
		}
		wakers = append(wakers, w.hook.Wake)
		about += fmt.Sprintf("; webhooks at http://%s/hook", listener.Addr())
	}
	if err := w.journal.Print(Line{Event: "watching", Message: about}); err != nil {
		return err
	}
	first := true
	around := func(ctx context.Context, turn func(context.Context) error) error {
		err := failure.Of(w.journal.noting(ctx, cmd, turn))
		if err != nil && first && isMistake(err) {
			err = watch.Stop(err)
		}
		first = false
		return err
	}
	var all []watch.Step
	for _, step := range steps {
		all = append(all, func(ctx context.Context, t *watch.Turn) error { return step(ctx, t, w.journal) })
	}
	ctx := cmd.Context()
	err := watch.Run(ctx, watch.Options{Sources: o.Sources, Wakers: wakers, Interval: w.interval, Around: around, Tell: w.tell}, all...)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// isMistake reports whether err is about the command's own flags and configuration: no later commit mends that.
func isMistake(err error) bool {
	var e *cli.Error
	var source *platform.SourceError
	switch {
	case errors.As(err, new(*finding.Error)):
		return false
	case errors.As(err, &source):
		return !source.Unreachable && source.Part == platform.PlatformPart
	}
	return errors.As(err, &e) && e.Code == cli.Usage
}

// noting runs a turn, and prints what it writes to stderr.
func (j *Journal) noting(ctx context.Context, cmd *cobra.Command, turn func(context.Context) error) error {
	var written notes
	before := cmd.Context()
	cmd.SetContext(ctx)
	cmd.SetErr(&written)
	j.same = false
	err := turn(ctx)
	cmd.SetErr(nil) // the root's again
	cmd.SetContext(before)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	noted := map[string]bool{}
	for _, note := range written.list() {
		known := j.noted[note] || noted[note]
		if noted[note] = true; !known {
			if err := j.Print(Line{Event: "note", Message: note}); err != nil {
				return watch.Stop(err)
			}
		}
	}
	if j.same {
		maps.Copy(noted, j.noted)
	}
	j.noted = noted
	return err
}

// notes keeps the beginning of what is written.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.Write(p[:min(len(p), max(0, maxNotes-n.text.Len()))])
	return len(p), nil
}

// list returns the lines, each with the indented ones that follow it.
func (n *notes) list() (all []string) {
	for line := range strings.Lines(n.text.String()) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "note: ")
		switch {
		case text == "":
		case strings.HasPrefix(line, "  ") && len(all) > 0:
			all[len(all)-1] += " " + text
		default:
			all = append(all, text)
		}
	}
	return all
}

// tell prints what happens beside the steps, and notes it for --webhook.
func (w *Watch) tell(e watch.Event) {
	if w.hook != nil {
		w.hook.Tell(e)
	}
	if e.Kind == watch.TurnBegan || e.Kind == watch.TurnEnded {
		return
	}
	l := Line{Time: e.Time, Event: string(e.Kind), Source: e.Source, Again: e.Again}
	var known *cli.Error
	switch {
	case e.Kind == watch.Reachable:
		l.Message = "answers again"
	case e.Kind == watch.Unreachable:
		l.Message = "does not answer: " + e.Err.Error()
		if errors.As(e.Err, &known) {
			l.Hint = known.Hint
		}
		if known != nil && known.Code == cli.Denied {
			l.Message = "refuses to answer: " + known.Error()
		}
	case errors.As(e.Err, &known):
		l.Event, l.Message, l.Hint = "failed", known.Error(), known.Hint
	default:
		l.Event, l.Message = "failed", e.Err.Error()
	}
	_ = w.journal.Print(l) // a pipe that is closed ends the command at the next result
}

// listen makes what takes webhooks.
func (w *Watch) listen(cmd *cobra.Command) (net.Listener, error) {
	hint := "openssl rand -hex 32 > " + w.secretFile
	data, err := cli.ReadInput(cmd, w.secretFile, maxSecretFile)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--webhook-secret-file: %w", err), hint)
	}
	secret, _, _ := bytes.Cut(data, []byte("\n"))
	if secret = bytes.TrimSpace(secret); len(secret) < watch.MinSecretBytes {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--webhook-secret-file %s: %w", w.secretFile, watch.ErrShortSecret), hint)
	}
	listener, err := cli.Listen("webhook", w.webhook)
	if err != nil {
		return nil, err
	}
	w.hook, err = watch.NewWebhook(listener, secret)
	return listener, err
}
