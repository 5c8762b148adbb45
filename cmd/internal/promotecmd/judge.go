package promotecmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
)

// gather returns where the gate's facts come from.
func (p *promoting) gather(cmd *cobra.Command) (*facts.Facts, error) {
	f := &facts.Facts{
		Location: p.Location, Options: p.Registry.Options(), Signers: p.Trusted, Now: time.Now,
		Clusters: facts.Roster(func(environment string) (platform.Source, error) {
			return p.Source.Of(environment).Options(p.place, p.Location.Dir)
		}),
		Warn: p.warn(cmd), Carry: true,
	}
	return f, p.Complete(cmd, f)
}

func (p *promoting) warn(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		cmd.PrintErrf("warning: %s\n", cli.Indented(fmt.Sprintf(format, args...)))
	}
}

// judge returns the function that asks the gate of an environment.
func (p *promoting) judge(cmd *cobra.Command, from *facts.Facts) func(context.Context, promote.Question) (gate.Verdict, error) {
	return func(ctx context.Context, q promote.Question) (gate.Verdict, error) {
		p.look = from.Look() // which serves the publication
		of := *p.look
		of.Platform = cmp.Or(q.Target.Model.PlatformName(), publisher.DefaultPlatform)
		verdict, err := of.Judge(ctx, facts.Ask{
			Policy: q.Policy, Commit: q.Commit, Automatic: q.Automatic, AllowRemovals: q.AllowRemovals,
			Removals: removals(cmd, p.Source.Of(q.Policy.Environment), p.place, from),
		})
		verdict.Commit = cmp.Or(verdict.Commit, q.Commit)
		return verdict, err
	}
}

// pause turns automation off in an environment, by the first of the keys.
func (p *promoting) pause(ctx context.Context, name, environment, reason string) error {
	_, err := decisions.Write(ctx, p.Location, p.Registry.Options(), bundle.Decision{
		Action: bundle.Pause, Platform: cmp.Or(name, publisher.DefaultPlatform), Environment: environment, Reason: reason,
	}, p.Keys[0], time.Now())
	return failure.At(err, p.Location)
}

// removals returns the function that renders an environment with another base commit, and says what it would lose beyond the
// platform's bound.
func removals(cmd *cobra.Command, source *flags.Source, place string, from *facts.Facts) func(context.Context, string) ([]string, error) {
	return func(_ context.Context, commit string) ([]string, error) {
		at := *source
		at.BaseAt = commit
		return releasecmd.Removals(cmd, &at, place, from.Location, from.Signers, publisher.PublishOptions{OCI: from.Options})
	}
}
