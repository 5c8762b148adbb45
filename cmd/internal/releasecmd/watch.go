package releasecmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/follow"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// LookAnyway is the longest time between two passes of a command that goes on: not all that an environment consists of is in
// a repository that is followed, such as charts and the trust document.
const LookAnyway = time.Hour

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
		Format: p.format, Sources: func() []follow.Source { return flags.SourcesOf(followed, p.Location.Dir) },
	}
	return p.watch.Run(cmd, watched, func(ctx context.Context, j *flags.Journal) (time.Time, error) {
		place, err := p.source.Resolve(cmd, args) // opens a repository anew, which may have other objects now
		if err != nil {
			return time.Time{}, err
		}
		publication, err := p.publication(cmd, place)
		if err != nil {
			return time.Time{}, err
		}
		publication.Quiet = true
		publication.Read = func(l *platform.Loaded) { followed = l.Followed }
		return PublishAgain(cmd, publication, j)
	})
}

// PublishAgain is a step of a command that goes on: it publishes an environment, and prints a line to j if that made something
// new. Next is the moment at which a release has to be renewed, and within an hour.
func PublishAgain(cmd *cobra.Command, p Publication, j *flags.Journal) (next time.Time, err error) {
	next = time.Now().Add(LookAnyway)
	done, err := PublishEnvironment(cmd, p)
	if done != nil && !done.RenewAt.IsZero() && done.RenewAt.Before(next) {
		next = done.RenewAt
	}
	if text := WhatIsNew(done); text != "" {
		if lost := j.Print(flags.Line{Event: "published", Environment: done.Environment, Message: text, Result: done}); lost != nil {
			return next, follow.Stop(lost)
		}
	}
	var e *cli.Error
	if errors.As(err, &e) && e.Code == cli.NotYet { // people sign in their own time
		cmd.PrintErrf("%s (%s)\n", e.Error(), e.Hint)
		err = nil
	}
	return next, err
}

// WhatIsNew says what a publication made; it is empty if it changed nothing.
func WhatIsNew(done *publisher.Published) string {
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
	return text
}
