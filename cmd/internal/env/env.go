// Package env opens what several commands work on, the same in all of them: what no flag gives is taken from the settings, and these
// from the platform around the current folder.
//
// Begin with Signing for a command that signs releases, and with Gates for one that asks gates. The flags themselves are those of package flags.
package env

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// Signing is what a command needs that signs releases: their location, the keys, and the trust document, if there is one. Add its
// flags with AddTo, and those of Signers; then call Take or TakeArgument, and OpenKeys.
type Signing struct {
	Signers flags.Signers
	// First is the file with version 1 of the trust document, empty without one.
	First string

	Location oci.Location
	Keys     []*keys.Key
	// Trusted are those whom the trust document lets sign, and without one the keys.
	Trusted published.Signers

	// To is the value of --to.
	To string
}

// AddTo adds --trust, and --to with a usage, which is empty for a command whose location is an argument.
func (s *Signing) AddTo(cmd *cobra.Command, to string) {
	cmd.Flags().StringVar(&s.First, "trust", "", flags.TrustUsage)
	cli.NotEmpty(cmd, "trust")
	if to != "" {
		cmd.Flags().StringVar(&s.To, "to", "", to)
		cli.NotEmpty(cmd, "to")
	}
}

// Take completes the flags by the settings.
func (s *Signing) Take(from *settings.Settings) (err error) {
	if s.Location, err = flags.Location(from, "to", s.To); err != nil {
		return err
	}
	return s.complete(from)
}

// TakeArgument completes the argument LOCATION, the flags and the name of an environment by the settings.
func (s *Signing) TakeArgument(cmd *cobra.Command, args []string, environment *string) error {
	loc, from, err := flags.LocationArgument(args)
	if err != nil {
		return err
	}
	s.Location = loc
	if err := s.complete(from); err != nil {
		return err
	}
	*environment, err = flags.Environment(cmd, from, *environment)
	return err
}

func (s *Signing) complete(from *settings.Settings) error {
	if s.First == "" {
		s.First = from.Trust.Text
	}
	return s.Signers.Default(from)
}

// OpenKeys opens the keys, and reads the trust document.
func (s *Signing) OpenKeys(cmd *cobra.Command, registry flags.Registry) (err error) {
	if s.Keys, err = s.Signers.Open(cmd); err != nil {
		return err
	}
	return s.ReadTrust(cmd, registry)
}

// ReadTrust reads who may sign. A command that goes on calls it before each step, since trust documents change.
func (s *Signing) ReadTrust(cmd *cobra.Command, registry flags.Registry) (err error) {
	s.Trusted = trust.PinnedBy(s.Keys)
	if s.First != "" {
		s.Trusted, err = flags.OpenTrust(cmd.Context(), s.First, s.Location, registry.Options())
	}
	return err
}

// PublishOptions returns the options of a publication.
func (s *Signing) PublishOptions(registry flags.Registry) publisher.PublishOptions {
	opts := publisher.PublishOptions{OCI: registry.Options(), Parallel: publisher.DefaultParallel}
	if s.First != "" {
		opts.Trust = s.Trusted
	}
	return opts
}
