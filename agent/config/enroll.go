package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// maxTokenBytes bounds a file with a token.
const maxTokenBytes = 4 << 10

// RunResting opens the state for an agent that does nothing but enroll, and calls f.
func (c *Config) RunResting(ctx context.Context, f func(*agent.Agent) error) error {
	remote, err := c.connect()
	if err != nil {
		return err
	}
	opts, err := c.options(slog.New(slog.DiscardHandler))
	if err == nil {
		err = remote.configure(&opts)
	}
	if err != nil {
		return err
	}
	if status, err := c.Status(ctx); err == nil {
		c.rebind(status)
	}
	cluster, err := c.whoEnrolls()
	if err != nil {
		return err
	}
	st, err := c.openState()
	if err != nil {
		return err
	}
	err = f(agent.New(st, nil, bundle.Trust{}, cluster, opts))
	return errors.Join(err, st.Close())
}

// whoEnrolls returns the cluster as configured, or as the agent that ran here last had it.
func (c *Config) whoEnrolls() (bundle.ReportCluster, error) {
	if c.Cluster.Environment != "" && c.Cluster.Type != "" {
		return c.Cluster, nil
	}
	kept, err := agent.ReadState(c.StateDir)
	if err == nil {
		var st agent.Status
		st, err = kept.Status(time.Now())
		if err = errors.Join(err, kept.Close()); err == nil && st.Cluster.Environment != "" && st.Cluster.Type != "" {
			k := st.Cluster
			return bundle.ReportCluster{UID: k.UID, Name: k.Name, Platform: st.Platform, Type: k.Type, Environment: k.Environment, Ring: k.Ring, Labels: k.Labels}, nil
		}
	}
	if err != nil && !errors.Is(err, state.ErrNoState) {
		return bundle.ReportCluster{}, c.stateError(err)
	}
	if c.Cluster.Environment == "" {
		return bundle.ReportCluster{}, c.Missing("environment")
	}
	return bundle.ReportCluster{}, c.Missing("clusterType")
}

// readEnrollToken reads the token that an agent is to register itself with. The file may be gone once it has: a token
// that is not there holds up nothing.
func (c *Config) readEnrollToken(log *slog.Logger) (string, error) {
	if c.Reports.EnrollToken == "" {
		return "", nil
	}
	f, err := diskfile.Open(c.Reports.EnrollToken)
	if errors.Is(err, os.ErrNotExist) {
		log.Info("there is no token to enroll with", "file", c.Reports.EnrollToken)
		return "", nil
	}
	if err != nil {
		return "", invalid(fmt.Errorf("--enroll-token-file: %w", err), "")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTokenBytes))
	if err == nil {
		var token bundle.EnrollToken
		if token, err = bundle.ParseEnrollToken(string(data)); err == nil {
			return token.Reveal(), nil
		}
	}
	return "", invalid(fmt.Errorf("--enroll-token-file: %s: %w", c.Reports.EnrollToken, err), `"wherry hub tokens create" makes one`)
}

// installedToken reads the token for an agent that is to be installed, which has to be there.
func (c *Config) installedToken() (string, error) {
	switch {
	case c.Reports.EnrollToken == "":
		return "", nil
	case c.Reports.Hub == "":
		return "", invalidf("--enroll-token-file needs --hub")
	}
	token, err := c.readEnrollToken(slog.New(slog.DiscardHandler))
	if err == nil && token == "" {
		err = invalidf("--enroll-token-file: there is no file %s", c.Reports.EnrollToken)
	}
	return token, err
}
