package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/wherry-dev/wherry/bundle/regularfile"
)

// maxSettingBytes bounds a file of credentials or of certificates.
const maxSettingBytes = 4 << 20

// Credentials returns, for Options.Credential, those in a file in the form of docker's config.json, with the
// helpers that it names, or of the older .dockercfg: pull secrets of Kubernetes hold one or the other. Where none is
// for a registry by name, one is whose name has "*" for a part of it, such as *.example.com. The file is read at each
// login, so that it may be replaced while the program runs.
func Credentials(file string) (auth.CredentialFunc, error) {
	data, err := regularfile.Read(file, maxSettingBytes)
	if err != nil {
		return nil, err
	}
	if _, err := entries(data); err != nil {
		return nil, fmt.Errorf("%s holds no credentials as docker's config.json has them", file) // what it holds is secret
	}
	return docker(func() (*credentials.DynamicStore, error) {
		return credentials.NewStore(file, credentials.StoreOptions{})
	}), nil
}

// docker asks the store that open opens, each time anew.
func docker(open func() (*credentials.DynamicStore, error)) auth.CredentialFunc {
	return func(ctx context.Context, host string) (auth.Credential, error) {
		store, err := open()
		if err != nil {
			return auth.EmptyCredential, fmt.Errorf("docker credentials: %w", err)
		}
		found, err := credentials.Credential(store)(ctx, host)
		if err != nil || found != auth.EmptyCredential {
			return found, err
		}
		return fromPullSecret(ctx, store.ConfigPath(), host)
	}
}

// fromPullSecret looks for what Kubernetes finds in a pull secret and docker does not.
func fromPullSecret(ctx context.Context, file, host string) (auth.Credential, error) {
	data, err := regularfile.Read(file, maxSettingBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return auth.EmptyCredential, nil
	}
	all, bad := entries(data)
	if err = errors.Join(err, bad); err != nil {
		return auth.EmptyCredential, err
	}
	var best string
	for name := range all {
		// The longer name says more. Without a "*" it is this host's.
		if fits(name, host) && (best == "" || len(name) > len(best) || len(name) == len(best) && name < best) {
			best = name
		}
	}
	if best == "" {
		return auth.EmptyCredential, nil
	}
	one, err := json.Marshal(map[string]any{"auths": map[string]any{host: all[best]}})
	if err != nil {
		return auth.EmptyCredential, err
	}
	store, err := credentials.NewMemoryStoreFromDockerConfig(one)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("credentials for %s in %s: %w", host, file, err)
	}
	return store.Get(ctx, host)
}

// entries are the credentials of a config.json or, where that has none, of a .dockercfg, by the names of registries.
func entries(data []byte) (all map[string]json.RawMessage, err error) {
	var config struct{ Auths map[string]json.RawMessage }
	if err := json.Unmarshal(data, &config); err != nil || config.Auths != nil {
		return config.Auths, err
	}
	err = json.Unmarshal(data, &all)
	return all, err
}

// fits says whether credentials of that name are for a host: a "*" stands for anything in one part of it, and the
// port has to be the same. Schemes and paths do not count.
func fits(name, host string) bool {
	if name == credentials.ServerAddressFromHostname(host) {
		return true
	}
	if _, rest, ok := strings.Cut(name, "://"); ok {
		name = rest
	}
	name, _, _ = strings.Cut(name, "/")
	patterns, parts := strings.Split(name, "."), strings.Split(host, ".")
	if len(patterns) != len(parts) {
		return false
	}
	for i, part := range parts {
		if ok, err := path.Match(patterns[i], part); err != nil || !ok {
			return false
		}
	}
	return true
}
