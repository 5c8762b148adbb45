package oci

import (
	"context"
	"fmt"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// Login asks the registry at host whether it accepts the credentials. If it does, Login stores them in docker's
// config.json or the credential helper that it names. If only Options.AuthHosts allowed the registry's token service,
// Login also records its host for later and returns it. The error wraps ErrUnauthorized or ErrUnreachable.
func Login(ctx context.Context, host, user, password string, opts Options) (recorded string, err error) {
	store, err := openForLogin(host)
	if err != nil {
		return "", err
	}
	reg, err := remote.NewRegistry(host)
	if err != nil {
		return "", err
	}
	cred := auth.Credential{Username: user, Password: password}
	opts.Credential = func(context.Context, string) (auth.Credential, error) { return cred, nil }
	opts.AuthRecord = AuthRecord(store.ConfigPath())
	opts.PlainHTTP = opts.PlainHTTP || IsLoopback(host)
	client, guard, err := newClient(host, opts)
	if err != nil {
		return "", err
	}
	reg.Client, reg.PlainHTTP = client, opts.PlainHTTP
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if err := reg.Ping(ctx); err != nil {
		return "", explain("login to", host, err)
	}
	if listed := guard.listed.Load(); listed != nil {
		recorded = *listed
	}
	if recorded != "" {
		if err := recordAuthHost(opts.AuthRecord, guard.rules.registry.Host, recorded); err != nil {
			return "", fmt.Errorf("record the host of the token service: %w", err)
		}
	}
	if err := store.Put(ctx, credentials.ServerAddressFromRegistry(host), cred); err != nil {
		return "", fmt.Errorf("store the credentials for %s: %w", host, err)
	}
	return recorded, nil
}

// Logout removes the credentials for the registry at host and the recorded host of its token service. It returns nil if
// there are none.
func Logout(ctx context.Context, host string) error {
	store, err := openForLogin(host)
	if err != nil {
		return err
	}
	if err := credentials.Logout(ctx, store, host); err != nil {
		return fmt.Errorf("logout from %s: %w", host, err)
	}
	return recordAuthHost(AuthRecord(store.ConfigPath()), registry.Reference{Registry: host}.Host(), "")
}

func openForLogin(host string) (*credentials.DynamicStore, error) {
	if err := CheckHost(host); err != nil {
		return nil, err
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{AllowPlaintextPut: true, DetectDefaultNativeStore: true})
	if err != nil {
		return nil, fmt.Errorf("docker credentials: %w", err)
	}
	return store, nil
}
