package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// maxSettingBytes bounds a file of credentials or of certificates.
const maxSettingBytes = 4 << 20

// olderFile is read if there is no config.json beside it.
const olderFile = ".dockercfg"

// Credentials returns a function for Options.Credential that reads the credentials in file. The file has the form of
// docker's config.json, whose credential helpers are asked too, or of the older .dockercfg: pull secrets of Kubernetes
// hold one or the other. If no entry has the registry's name, an entry with "*" for a part of the name matches, such as
// *.example.com. The file is read at each login, so that it may be replaced while the program runs.
func Credentials(file string) (auth.CredentialFunc, error) {
	data, err := diskfile.Read(file, maxSettingBytes)
	if err != nil {
		return nil, err
	}
	if _, err := entries(data); err != nil {
		return nil, fmt.Errorf("%s holds no credentials as docker's config.json has them", file) // without a quotation: the content is secret
	}
	return docker(func() (*credentials.DynamicStore, error) {
		return credentials.NewStore(file, credentials.StoreOptions{})
	}), nil
}

// docker returns the credentials of the store that open returns, and opens it anew each time.
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

// fromPullSecret looks for credentials that Kubernetes would find in a pull secret and docker would not.
func fromPullSecret(ctx context.Context, file, host string) (auth.Credential, error) {
	data, err := diskfile.Read(file, maxSettingBytes)
	if errors.Is(err, fs.ErrNotExist) { // a pull secret of the older type is mounted under its own name
		data, err = diskfile.Read(filepath.Join(filepath.Dir(file), olderFile), maxSettingBytes)
	}
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

// entries returns the credentials of a config.json or, if there are none, of a .dockercfg, by the names of registries.
func entries(data []byte) (all map[string]json.RawMessage, err error) {
	var config struct{ Auths map[string]json.RawMessage }
	if err := json.Unmarshal(data, &config); err != nil || config.Auths != nil {
		return config.Auths, err
	}
	err = json.Unmarshal(data, &all)
	return all, err
}

// fits reports whether credentials of that name are for host: a "*" matches anything within one part of the name, and
// the port has to be the same. Schemes and paths do not count.
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
