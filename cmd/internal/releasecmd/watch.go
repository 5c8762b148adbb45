package releasecmd

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// goOn publishes again and again.
func (p *publishing) goOn(cmd *cobra.Command, args []string, place string) error {
	switch {
	case len(p.options.Drop) > 0:
		return cli.Fail(cli.Usage, errors.New("--drop is not for --watch"), "drop the assignment once, without --watch")
	case p.source.Assignments == "-":
		return cli.Usagef("--assignments - is not for --watch, which reads them again and again")
	}
	p.source.Named = p.Location.String()
	source, err := p.source.Options(place, p.Location.Dir)
	if err != nil {
		return err
	}
	followed := platform.FollowedBy(source)
	watched := flags.Watched{
		Format: p.format, Sources: func() []watch.Source { return followed.Sources(p.Location.Dir) },
	}
	return p.watch.Run(cmd, watched, func(ctx context.Context, t *watch.Turn, j *flags.Journal) error {
		place, err := p.source.Resolve(cmd, args) // opens a repository anew, which may have other objects now
		if err != nil {
			return err
		}
		publication, err := p.publication(cmd, place)
		if err != nil {
			return err
		}
		publication.Quiet = true
		publication.Read = func(l *platform.Loaded) { followed = l.Followed }
		return publishAgain(cmd, publication, t, j)
	})
}

// publishAgain publishes an environment, prints a line if that made something new, and asks for a turn when a release has to be renewed.
func publishAgain(cmd *cobra.Command, p Publication, t *watch.Turn, j *flags.Journal) error {
	t.Within(watch.ForAnything)
	done, err := PublishEnvironment(cmd, p)
	if done != nil {
		t.At(done.RenewAt)
		t.At(done.NextLook)
		if len(done.AwaitingProof) > 0 {
			t.Within(watch.ForReports)
		}
	}
	if lost := PrintNew(j, done); lost != nil {
		return lost
	}
	var e *cli.Error
	if errors.As(err, &e) && e.Code == cli.NotYet { // people sign in their own time
		cmd.PrintErrf("%s (%s)\n", e.Error(), e.Hint)
		err = nil
	}
	return err
}

// PrintNew prints a line if a publication, which may be nil, made something new. An error of printing stops the loop.
func PrintNew(j *flags.Journal, done *publisher.Published) error {
	text := whatIsNew(done)
	if text == "" {
		return nil
	}
	return watch.Stop(j.Print(flags.Line{Event: "published", Environment: done.Environment, Message: text, Result: done}))
}

// maxProvedText bounds what a line says of workloads that were proved; the result beside it has all.
const maxProvedText = 2000

// whatIsNew says what a publication made; it is empty if it changed nothing.
func whatIsNew(done *publisher.Published) string {
	if done == nil {
		return ""
	}
	var made []string
	for _, ct := range done.ClusterTypes {
		if ct.Result == releases.OutcomePublished {
			made = append(made, ct.ClusterType+" "+bundle.ReleaseName(ct.Number, ct.Digest))
		}
	}
	switch {
	case len(made) > 0:
	case done.Record.Result == releases.OutcomePublished:
		made = []string{"a new record of the environment"}
	default:
		return ""
	}
	text := "published " + strings.Join(slices.Compact(made), ", ")
	if c := done.BaseCommit; c != "" {
		text += " at base commit " + c[:min(len(c), 12)]
	}
	if len(done.Proved) > 0 {
		text += "; " + diff.ProvedText(done.Proved, maxProvedText)
	}
	return text
}
