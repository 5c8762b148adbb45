package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// Credentials returns, for Options.Credential, those in a file in the form of docker's config.json, with the
// helpers that it names. A pull secret of type kubernetes.io/dockerconfigjson holds one. The file is read at each
// login, so that it may be replaced while the program runs.
func Credentials(file string) (auth.CredentialFunc, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("%s holds no credentials as docker's config.json has them", file) // what it holds is secret
	}
	return docker(func() (credentials.Store, error) { return credentials.NewStore(file, credentials.StoreOptions{}) }), nil
}

// docker asks the store that open opens, each time anew.
func docker(open func() (credentials.Store, error)) auth.CredentialFunc {
	return func(ctx context.Context, host string) (auth.Credential, error) {
		store, err := open()
		if err != nil {
			return auth.EmptyCredential, fmt.Errorf("docker credentials: %w", err)
		}
		return credentials.Credential(store)(ctx, host)
	}
}
