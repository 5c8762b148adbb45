package config

import (
	"bytes"
	"crypto"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
)

func readKeys(paths []string) (bundle.Keys, error) {
	var keys bundle.Keys
	for _, path := range paths {
		k, err := readKey(path)
		if err != nil {
			return nil, invalid(fmt.Errorf("--key: %w", err), `a public key is what "wherry keys generate" writes as cosign.pub`)
		}
		keys = append(keys, k...)
	}
	return keys, nil
}

// maxKeyBytes bounds a file of public keys.
const maxKeyBytes = 64 << 10

// readKey does not repeat the file's content in its error: it might be the private half.
func readKey(path string) (bundle.Keys, error) {
	data, err := diskfile.Read(path, maxKeyBytes)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return nil, fmt.Errorf("%s holds a private key: an agent needs the public one, and should not have the other", path)
	}
	keys, err := bundle.ParsePublicKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// HubKey returns the pinned key of the hub; nil where none is pinned.
func (c *Config) HubKey() (crypto.PublicKey, error) {
	if c.Reports.HubKey == "" {
		return nil, nil
	}
	keys, err := readKey(c.Reports.HubKey)
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%s holds %d keys, a hub has one", c.Reports.HubKey, len(keys))
	}
	if err != nil {
		return nil, invalid(fmt.Errorf("--hub-key: %w", err), `"wherry hub keys show" prints the key`)
	}
	return keys[0], nil
}
