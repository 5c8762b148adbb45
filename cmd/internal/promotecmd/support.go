package promotecmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/publisher/catalog"
)

// Support returns the command wherry support-bundle.
func Support() *cobra.Command {
	var e Examination
	var output string
	cmd := &cobra.Command{
		Use:   "support-bundle [PLATFORM] -o FILE",
		Short: "Collect diagnostics without secrets",
		Long: `Collect what those who help with a publisher or a promoter need to know, in a tar with gzip: the version, all settings,
what "wherry doctor" says, the releases at the registry, the trust document, and how far the environments are at the hub.

Passwords, tokens, PINs and private keys are in no file of it, nor are the rendered manifests. Environment variables are named
without their values. Names of repositories, environments, clusters and workloads are in it: look through it before you send it.

"wherry hub support-bundle" is for a hub, "wherry-agent support-bundle" for an agent.`,
		Example: "  wherry support-bundle -o support.tar.gz",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := e.Examine(cmd, args)
			if err != nil {
				return err
			}
			var s cli.Support
			s.Add("doctor.json", report, nil)
			e.collect(cmd, &s)
			return s.Write(cmd, output)
		},
	}
	e.AddTo(cmd)
	cli.OutputSupport(cmd, &output)
	return cmd
}

// collect adds what is known beside the checks.
func (e *Examination) collect(cmd *cobra.Command, s *cli.Support) {
	settings, err := flags.Settings()
	if e.settings != nil {
		settings, err = e.settings, nil
	}
	if err != nil {
		s.Add("settings.json", nil, err)
		return
	}
	s.Add("settings.json", settings.Rows(), nil)
	ctx, cancel := context.WithTimeout(cmd.Context(), readTime)
	defer cancel()
	if to, err := flags.Location(settings, "to", e.To); err == nil {
		list, err := catalog.List(ctx, to, e.options.To, time.Now(), e.Registry.Options())
		s.Add("releases.json", list, err)
		if e.First != "" {
			signers, err := flags.OpenTrust(ctx, e.First, to, e.Registry.Options())
			s.Add("trust.json", signers.Document, err)
		}
	}
	if e.Fleet.URL() != "" {
		hub, err := e.Fleet.Client(cmd)
		var environments fleet.Environments
		if err == nil {
			environments, err = hub.Environments(ctx, fleet.Query{})
		}
		s.Add("environments.json", environments, err)
	}
}
