// Package roster keeps the clusters of an environment in its folder, as Cluster objects, for platforms without a hub.
//
// Begin with Add, which returns the changes for an agent's request, or with NewReview, which reads the reports of the clusters
// and answers them. The package writes nothing.
package roster

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/scheduler"
)

// maxBytes bounds a file of Cluster objects, as the scheduler does.
const maxBytes = 8 << 20

// Error is an error with a hint for people.
type Error struct {
	Err  error
	Hint string
	// Conflict is true if the roster contradicts the request, and false if the folder or the request is
	// wrong.
	Conflict bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func wrong(hint string, err error) error { return &Error{Err: err, Hint: hint} }

func conflict(hint, format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint, Conflict: true}
}

// Read returns the Cluster objects of a folder and of the folders in it. Its errors are of type *Error.
func Read(ctx context.Context, dir string) ([]scheduler.Cluster, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, wrong("give the folder of one environment, which has to be there", err)
	}
	m := scheduler.NewModel("")
	if err := m.Load(ctx, scheduler.Source{FS: os.DirFS(dir)}); err != nil {
		return nil, wrong("give the folder of one environment; \"wherry lint\" says what is wrong with it", fmt.Errorf("%s: %w", dir, err))
	}
	return m.Clusters(), nil
}

// Change is a file of the roster as it is to be.
type Change struct {
	File string
	Data []byte // nil if the file has the cluster already
	Text string // for people
}

// Add returns the change that brings the cluster of a request into its roster: the folder of file. The object of a new
// cluster goes into file, which need not exist, with now as its time of registration, in whole seconds; a request for another key
// changes the file that has the cluster.
// Errors that the person can mend are of type *Error.
func Add(ctx context.Context, file string, r bundle.EnrollmentRequest, now time.Time) (Change, error) {
	if problems := validation.IsDNS1123Subdomain(r.Cluster.Name); len(problems) > 0 {
		return Change{}, wrong("give another name as the second argument", fmt.Errorf("no object can be called %q: %s", r.Cluster.Name, problems[0]))
	}
	dir := filepath.Dir(file)
	known, err := Read(ctx, dir)
	if err != nil {
		return Change{}, err
	}
	for _, c := range known {
		switch {
		case c.UID == r.Cluster.UID && r.Former != "" && c.PublicKey == r.Former:
			return replaceKey(filepath.Join(dir, c.File), c, r)
		case c.UID == r.Cluster.UID && c.PublicKey == r.Key:
			there := filepath.Join(dir, c.File)
			return Change{File: there, Text: fmt.Sprintf("%s: cluster %s is there already", there, c.Name)}, nil
		case c.UID == r.Cluster.UID || c.PublicKey == r.Key || c.Name == r.Cluster.Name:
			return Change{}, conflict("change it there, or take it away first; after a copy of a disk, see wherry-agent enroll --new-identity",
				"%s: cluster %s has the same name, uid or key, and differs otherwise", c.Position, c.Name)
		}
	}
	if r.Former != "" {
		return Change{}, conflict("add it with a request of enroll without --rotate", "no Cluster has uid %s and the key that is to be replaced", r.Cluster.UID)
	}
	object, err := marshal(r, now)
	if err != nil {
		return Change{}, err
	}
	before, err := diskfile.Read(file, maxBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, err
	}
	if len(before) > 0 {
		before = append(bytes.TrimRight(before, "\n"), "\n---\n"...)
	}
	return Change{file, append(before, object...), fmt.Sprintf("%s: cluster %s (uid %s) added", file, r.Cluster.Name, r.Cluster.UID)}, nil
}

// cluster is a Cluster object as it is written.
type cluster struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		ClusterType  string            `yaml:"clusterType"`
		UID          string            `yaml:"uid"`
		Ring         string            `yaml:"ring,omitempty"`
		Labels       map[string]string `yaml:"labels,omitempty"`
		PublicKey    string            `yaml:"publicKey"`
		Reporting    string            `yaml:"reporting"`
		RegisteredAt string            `yaml:"registeredAt"`
	} `yaml:"spec"`
}

func marshal(r bundle.EnrollmentRequest, now time.Time) ([]byte, error) {
	o := cluster{APIVersion: "wherry.dev/v1alpha1", Kind: "Cluster"}
	o.Metadata.Name = r.Cluster.Name
	o.Spec.ClusterType, o.Spec.UID, o.Spec.Ring, o.Spec.Labels = r.Cluster.Type, r.Cluster.UID, r.Cluster.Ring, r.Cluster.Labels
	o.Spec.PublicKey, o.Spec.Reporting, o.Spec.RegisteredAt = r.Key, "expected", now.UTC().Format(time.RFC3339)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err := enc.Encode(o)
	return out.Bytes(), errors.Join(err, enc.Close())
}

// replaceKey changes the one line of a key that differs, and nothing else of the file.
func replaceKey(file string, c scheduler.Cluster, r bundle.EnrollmentRequest) (Change, error) {
	data, err := diskfile.Read(file, maxBytes)
	if err != nil {
		return Change{}, err
	}
	before, after := keyLine(r.Former), keyLine(r.Key)
	if before == nil || after == nil || bytes.Count(data, before) != 1 {
		return Change{}, conflict("put the new key there by hand", "%s: the key of cluster %s is not written as one line of base64", c.Position, c.Name)
	}
	return Change{file, bytes.Replace(data, before, after, 1), fmt.Sprintf("%s: cluster %s has a new key", file, c.Name)}, nil
}

// keyLine is the body of an Ed25519 key in PEM, which is one line; nil of other keys.
func keyLine(text string) []byte {
	block, _ := pem.Decode([]byte(text))
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	if block == nil || len(lines) != 3 {
		return nil
	}
	return lines[1]
}
