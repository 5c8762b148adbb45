package promotecmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/gatefacts"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/gate"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/promote"
)

// gather returns where the gate's facts come from.
func (p *promoting) gather(cmd *cobra.Command) (*gatefacts.Facts, error) {
	f := &gatefacts.Facts{
		Location: p.Location, Options: p.Registry.Options(), Signers: p.Trusted, Now: time.Now,
		Clusters: gatefacts.Roster(func(environment string) (platform.Source, error) {
			return p.Source.Of(environment).Options(p.place, p.Location.Dir)
		}),
		Warn: p.warn(cmd),
	}
	return f, p.Complete(cmd, f)
}

func (p *promoting) warn(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		cmd.PrintErrf("warning: %s\n", cli.Indented(fmt.Sprintf(format, args...)))
	}
}

// judge returns the function that asks the gate of an environment.
func (p *promoting) judge(cmd *cobra.Command, facts *gatefacts.Facts) func(context.Context, promote.Question) (gate.Verdict, error) {
	return func(ctx context.Context, q promote.Question) (gate.Verdict, error) {
		of := *facts
		of.Platform = cmp.Or(q.Target.Model.PlatformName(), publisher.DefaultPlatform)
		verdict, err := of.Judge(ctx, gatefacts.Ask{
			Policy: q.Policy, Commit: q.Commit, Automatic: q.Automatic, AllowRemovals: q.AllowRemovals,
			Removals: removals(cmd, p.Source.Of(q.Policy.Environment), p.place, facts),
		})
		verdict.Commit = cmp.Or(verdict.Commit, q.Commit)
		return verdict, err
	}
}

// removals returns the function that renders an environment with another base commit, and says what it would lose beyond the
// platform's bound.
func removals(cmd *cobra.Command, source *flags.Source, place string, facts *gatefacts.Facts) func(context.Context, string) ([]string, error) {
	return func(_ context.Context, commit string) ([]string, error) {
		at := *source
		at.BaseAt = commit
		return releasecmd.Removals(cmd, &at, place, facts.Location, facts.Signers, publisher.PublishOptions{OCI: facts.Options})
	}
}
