package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// serveOptions are those of the endpoint.
func (c *Config) serveOptions(log *slog.Logger) serve.Options {
	return serve.Options{
		Address: c.Serve.Address, URL: c.Serve.URL, CertFile: c.Serve.Cert, KeyFile: c.Serve.Key, Plain: c.Serve.Plain,
		StateDir: c.StateDir, Log: log,
	}
}

// checkServe returns an error if the settings of the endpoint contradict each other.
func (c *Config) checkServe() error {
	if c.Serve == (Serve{}) {
		return nil
	}
	if c.Serve.Address == "" {
		return invalidf("--serve-url, --serve-cert, --serve-key, --serve-plain-http and --serve-accept-reports need --serve")
	}
	if _, err := c.serveOptions(nil).Check(); err != nil {
		return invalid(fmt.Errorf("--serve: %w", err), "")
	}
	if err := oci.CheckName(c.Cluster.Platform); err != nil {
		return invalid(fmt.Errorf("--serve: the platform's name cannot begin a repository name: %w", err), "")
	}
	return nil
}

// endpoint returns the endpoint with its certificates, which are made on the first start; nil where there is none.
func (c *Config) endpoint(now func() time.Time, log *slog.Logger) (*serve.Endpoint, error) {
	if c.Serve.Address == "" {
		return nil, nil
	}
	o := c.serveOptions(log)
	o.Now = now
	e, err := serve.Open(o)
	if err != nil {
		return nil, invalid(fmt.Errorf("--serve: %w", err), "")
	}
	return e, nil
}

// ServeCA returns the certificates, in PEM, by which clients know the agent's endpoint.
func (c *Config) ServeCA() ([]byte, error) {
	if c.Serve.Plain {
		return nil, invalidf("--serve-plain-http is set: the endpoint shows no certificate")
	}
	ca, err := c.serveOptions(nil).CA()
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.Serve.Cert == "":
		return nil, &Error{Unusable, fmt.Errorf("no CA in the state folder %s yet", c.StateDir), "run the agent with --serve: it creates the CA"}
	case err != nil:
		return nil, &Error{Unusable, err, ""}
	case len(ca) == 0:
		return nil, invalidf("%s holds no certificate of an authority: append it to the file, or give clients the authority's certificate", c.Serve.Cert)
	}
	return ca, nil
}
