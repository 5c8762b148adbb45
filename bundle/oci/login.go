package oci

import (
	"context"
	"fmt"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// Login asks the registry at host whether it accepts the credentials, and has docker's config.json, or
// the credential helper that it names, keep them if so.
func Login(ctx context.Context, host, user, password string, opts Options) error {
	reg, store, err := openForLogin(host, opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return explain("login to", host, credentials.Login(ctx, store, reg, auth.Credential{Username: user, Password: password}))
}

// Logout forgets the credentials for the registry at host. It is no error if there are none.
func Logout(ctx context.Context, host string, opts Options) error {
	_, store, err := openForLogin(host, opts)
	if err != nil {
		return err
	}
	if err := credentials.Logout(ctx, store, host); err != nil {
		return fmt.Errorf("logout from %s: %w", host, err)
	}
	return nil
}

func openForLogin(host string, opts Options) (*remote.Registry, credentials.Store, error) {
	if err := CheckHost(host); err != nil {
		return nil, nil, err
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{AllowPlaintextPut: true, DetectDefaultNativeStore: true})
	if err != nil {
		return nil, nil, fmt.Errorf("docker credentials: %w", err)
	}
	opts.Credential = auth.StaticCredential(host, auth.EmptyCredential) // Login sets its own
	client, err := newClient(opts)
	if err != nil {
		return nil, nil, err
	}
	reg, err := remote.NewRegistry(host)
	if err != nil {
		return nil, nil, err
	}
	reg.Client, reg.PlainHTTP = client, opts.PlainHTTP || isLoopback(host)
	return reg, store, nil
}
