package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/bcrypt"
)

// Registry is a registry that answers, over plain HTTP.
type Registry struct {
	// Prefix is HOST:PORT, or HOST:PORT/PREFIX, for references below it.
	Prefix string

	dir     string // holds content and log; empty for a registry that was given
	process *process
}

// StartRegistry runs "wherry registry serve" on loopback and returns when it answers, or takes the
// registry that WHERRY_E2E_REGISTRY names. The caller calls Stop.
func StartRegistry(ctx context.Context) (*Registry, error) {
	if prefix := os.Getenv(RegistryEnv); prefix != "" {
		return &Registry{Prefix: prefix}, nil
	}
	programs := os.Getenv(ProgramsEnv)
	if programs == "" {
		return nil, fmt.Errorf("neither %s nor %s is set: run \"make e2e\"", RegistryEnv, ProgramsEnv)
	}
	return launchRegistry(ctx, programs)
}

// StartDistribution runs the registry of distribution, with its own command and configuration, on loopback
// and returns when it listens. If password is not empty, it admits only the user "edge" with that. The caller calls Stop.
func StartDistribution(ctx context.Context, password string) (*Registry, error) {
	return newRegistry(func(r *Registry) error { return r.distribution(ctx, password) })
}

func (r *Registry) distribution(ctx context.Context, password string) error {
	path, err := Tool("registry")
	if err != nil {
		return err
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	r.Prefix = fmt.Sprintf("127.0.0.1:%d", ports[0])
	config := filepath.Join(r.dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", filepath.Join(r.dir, "content"), r.Prefix)
	if password != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			return err
		}
		users := filepath.Join(r.dir, "users")
		text += fmt.Sprintf("auth: {htpasswd: {realm: edge, path: %q}}\n", users)
		if err := os.WriteFile(users, fmt.Appendf(nil, "edge:%s\n", hash), 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if r.process, err = start(r.dir, path, []string{"serve", config}); err != nil {
		return err
	}
	return Place{}.awaitPort(ctx, r.Prefix, r.process)
}

func launchRegistry(ctx context.Context, programs string) (*Registry, error) {
	return newRegistry(func(r *Registry) (err error) {
		r.process, err = start(r.dir, filepath.Join(programs, "wherry"), []string{"registry", "serve", filepath.Join(r.dir, "content"), "--addr", "127.0.0.1:0"})
		if err != nil {
			return fmt.Errorf("%w (%s is %q; \"make build\" builds it)", err, ProgramsEnv, programs)
		}
		r.Prefix, err = r.process.reports(ctx, "oci://")
		return err
	})
}

// newRegistry makes the folder of a registry and starts it. Where that fails, nothing of it stays.
func newRegistry(start func(*Registry) error) (*Registry, error) {
	dir, err := os.MkdirTemp("", "wherry-e2e-")
	if err != nil {
		return nil, err
	}
	r := &Registry{dir: dir}
	if err := start(r); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

// Stop ends what StartRegistry began and deletes its content.
func (r *Registry) Stop() error {
	var err error
	if r.process != nil {
		err = r.process.stop()
	}
	if r.dir != "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}
