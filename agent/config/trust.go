package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// kindOf returns Refused for an error of trust, and Unusable for all others.
func kindOf(err error) Kind {
	if outbox.IsUntrusted(err) || errors.As(err, new(*bundle.Refusal)) {
		return Refused
	}
	return Unusable
}

// ReadTrust reads a file of trust documents that a person has named.
func ReadTrust(ctx context.Context, path string) ([][]byte, error) {
	envelopes, err := trust.ReadFile(ctx, path)
	switch {
	case errors.Is(err, airgap.ErrFormat):
		return nil, invalid(fmt.Errorf("%s: neither a trust document nor a site's file with one", path), `"wherry trust sign" and "wherry airgap export" write such files`)
	case errors.Is(err, os.ErrNotExist):
		return nil, invalid(err, "")
	case err != nil:
		return nil, &Error{kindOf(err), err, ""}
	}
	return envelopes, nil
}

// TrustState returns the trust of the running agent, or of the state that the last one has left, with the keys that c
// pins.
func (c *Config) TrustState(ctx context.Context) (trust.Known, error) {
	return Look(ctx, c, func(ctx context.Context, a agent.Client) (trust.Known, error) { return a.Trust(ctx) },
		func(s *agent.State) (trust.Known, error) {
			t, err := s.Trust().Known()
			if err != nil {
				return t, err
			}
			keys, err := readKeys(c.Trust.Keys)
			for _, k := range keys {
				id, err := bundle.KeyID(k)
				if err != nil {
					return t, err
				}
				t.Pinned = append(t.Pinned, id)
			}
			slices.Sort(t.Pinned)
			return t, err
		})
}

// hasTrust reports whether the agent was given a trust document before, so that it needs no setting for one. A
// state that another process has open is that of an agent that found out for itself.
func (c *Config) hasTrust() bool {
	kept, err := agent.ReadState(c.StateDir)
	if err != nil {
		return errors.Is(err, state.ErrBusy)
	}
	t, err := kept.Trust().Known()
	return errors.Join(err, kept.Close()) == nil && len(t.Chain) > 0
}

// firstTrust reads the file that the setting trust names.
func (c *Config) firstTrust(ctx context.Context) ([]byte, error) {
	envelopes, err := ReadTrust(ctx, c.Trust.Document)
	if err != nil {
		return nil, err
	}
	d, _, err := bundle.OpenTrust(envelopes[0])
	switch {
	case err != nil:
		return nil, refused(fmt.Errorf("--trust: %s: %w", c.Trust.Document, err), "")
	case d.Version != 1:
		return nil, invalidf("--trust: %s is version %d of the trust document: give version 1; later ones come from the registry, or by trust install", c.Trust.Document, d.Version)
	}
	return envelopes[0], nil
}

// installTrust adds the document that the setting names to a state that has none.
func (c *Config) installTrust(ctx context.Context, state *agent.State, log *slog.Logger) error {
	if c.Trust.Document == "" {
		return nil
	}
	envelope, err := c.firstTrust(ctx)
	if err != nil {
		return err
	}
	change, err := state.Trust().Install(c.Cluster.Platform, envelope)
	if err != nil {
		return &Error{kindOf(err), fmt.Errorf("--trust: %s: %w", c.Trust.Document, err), "an agent keeps its first version 1, which \"wherry-agent trust show\" shows; to start over, use a new --state-dir"}
	}
	if change.Before == nil {
		log.Info("trust document installed", "version", change.After.Version, "epoch", change.After.Epoch, "expires", change.After.ExpiresAt)
	}
	return nil
}
