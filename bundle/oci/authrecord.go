package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// authRecordName is wherry's own file beside docker's config.json.
const authRecordName = "wherry-auth-hosts.json"

// AuthRecord returns the path of the file in which Login records the hosts of token services, for Options.AuthRecord. It
// is in the folder of credentials, the path of the file with the credentials.
func AuthRecord(credentials string) string {
	return filepath.Join(filepath.Dir(credentials), authRecordName)
}

// authRecord is the content of that file.
type authRecord struct {
	// AuthHosts are the hosts of token services, HOST or HOST:PORT, by the registry's host.
	AuthHosts map[string]string `json:"authHosts"`
}

// readAuthRecord returns an empty record where there is no file, or no name for one.
func readAuthRecord(file string) (r authRecord, err error) {
	if file == "" {
		return r, nil
	}
	data, err := diskfile.Read(file, maxSettingBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf(`%s is damaged: delete it and run "wherry login" again`, file)
	}
	return r, nil
}

// recordedAuthHost returns the host that Login has met at the registry; empty where it has met none.
func recordedAuthHost(file, registry string) (string, error) {
	r, err := readAuthRecord(file)
	return r.AuthHosts[registry], err
}

// recordAuthHost writes that the registry's token service is at host; empty takes that back.
func recordAuthHost(file, registry, host string) error {
	r, err := readAuthRecord(file)
	if err != nil || r.AuthHosts[registry] == host {
		return err
	}
	if r.AuthHosts == nil {
		r.AuthHosts = map[string]string{}
	}
	if r.AuthHosts[registry] = host; host == "" {
		delete(r.AuthHosts, registry)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return diskfile.Replace(file, 0o600, append(data, '\n'))
}
