package zarf

import (
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/graph"
)

const (
	mountedDir = "mounted" // in an assignment's folder, for the time of a run that gets its package from this machine
	keptDir    = "kept"    // there, an OCI layout with what a removal needs of a package
	cacheDir   = "cache"   // of zarf
	imagesDir  = "images"  // there, the OCI layout of the parts of packages
)

// definitionFiles are the parts of a package that zarf reads to remove it: its metadata, and the files of signatures.
var definitionFiles = []string{"zarf.yaml", "checksums.txt", "zarf.bundle.sig", "zarf.yaml.sig", "values.yaml", "values.schema.json"}

// systemTrust has the folders of certificates that zarf, a program in Go, reads without SSL_CERT_DIR.
const systemTrust = "/etc/ssl/certs:/etc/pki/tls/certs"

// mounted is a package that zarf gets from this machine, by way of a registry on loopback.
type mounted struct {
	source string // for zarf, in place of the package's own reference
	cache  string // zarf's cache folder for it
	env    []string

	artifact *storedArtifact
	server   *registry
	dir      string
}

// open returns the parts of a package in an OCI layout; nil if manifests are missing.
func open(layout, ref string) (*storedArtifact, error) {
	_, pinned, _ := strings.Cut(ref, "@")
	a, err := openStored(layout, digest.Digest(pinned), graph.ThisMachine())
	var invalid *graph.InvalidError
	switch {
	case errors.Is(err, errIncomplete):
		return nil, nil
	case errors.As(err, &invalid):
		return nil, failure(InvalidPackage, "package %s: %w", ref, err)
	case err != nil:
		return nil, local(err)
	}
	return a, nil
}

// mount has zarf take the package of a reference from the store from now on, if all of it is there.
func (j *job) mount(ref string) error {
	if j.r.opts.Store == "" {
		return nil
	}
	a, err := open(j.r.opts.Store, ref)
	if err != nil || a == nil {
		return err
	}
	if err := a.Whole(); errors.Is(err, errIncomplete) {
		return nil
	} else if err != nil {
		return local(err)
	}
	return j.lend(a, ref)
}

// lend has zarf take the package from a registry on loopback. Zarf reads no package from a folder, and a file of it would be
// another copy of everything: zarf unpacks packages before it deploys them. A registry gives it the parts one by one, and
// zarf's cache has them as hard links.
func (j *job) lend(a *storedArtifact, ref string) error {
	name, pinned, _ := strings.Cut(strings.TrimPrefix(ref, "oci://"), "@")
	repository, _, _ := strings.Cut(path.Base(name), ":")
	l := &mounted{artifact: a, dir: j.path(mountedDir)}
	err := l.prepare(repository, pinned)
	if err != nil {
		return local(errors.Join(err, l.close()))
	}
	if err := a.Link(filepath.Join(l.cache, imagesDir)); err != nil { // a file system without links, or parts that are not there
		j.r.opts.Log.Debug("zarf's cache has copies of the package's parts", "package", ref, "err", err)
	}
	j.mounted = l
	return nil
}

// prepare starts the registry, and writes what zarf needs to read from it.
func (l *mounted) prepare(repository, pinned string) (err error) {
	if err := os.RemoveAll(l.dir); err != nil { // of a killed agent
		return err
	}
	if l.server, err = l.artifact.Serve(repository); err != nil {
		return err
	}
	trust, docker := filepath.Join(l.dir, "trust"), filepath.Join(l.dir, "docker")
	for file, data := range map[string][]byte{filepath.Join(trust, "agent.pem"): l.server.CA(), filepath.Join(docker, "config.json"): l.server.DockerConfig()} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	l.source, l.cache = "oci://"+l.server.Host()+"/"+repository+"@"+pinned, filepath.Join(l.dir, cacheDir)
	l.env = []string{"DOCKER_CONFIG=" + docker, "SSL_CERT_DIR=" + trust + ":" + cmp.Or(os.Getenv("SSL_CERT_DIR"), systemTrust)}
	return nil
}

// giveBack ends the loan, if there is one.
func (j *job) giveBack() error {
	l := j.mounted
	j.mounted = nil
	return l.close()
}

// keep stores what a removal needs of a mounted package for which Zarf has no record: its definition and its signature. By the
// time of the removal, the store need not have the package any more.
func (j *job) keep() error {
	if j.mounted == nil {
		return nil
	}
	err := os.RemoveAll(j.path(keptDir))
	if err == nil {
		err = j.mounted.artifact.Keep(j.path(keptDir), definitionFiles...)
	}
	if err != nil {
		return local(err)
	}
	return nil
}

// mountKept is mount for a removal.
func (j *job) mountKept(ref string) error {
	a, err := open(j.path(keptDir), ref)
	if err != nil {
		return err
	}
	if a == nil {
		return j.mount(ref)
	}
	return j.lend(a, ref)
}

// close ends the registry, and deletes the cache. Nil has nothing to end.
func (l *mounted) close() error {
	if l == nil {
		return nil
	}
	var err error
	if l.server != nil {
		err = l.server.Close()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}
