package zarf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// phase is the progress of an assignment's package.
type phase string

const (
	phaseDeploying phase = "deploying" // without a job of this process: an agent was killed while it deployed
	phaseDeployed  phase = "deployed"
	phaseFailed    phase = "failed"
	phaseRemoving  phase = "removing"
)

// record is an assignment's state on disk, as far as the cluster does not have it.
type record struct {
	Package string `json:"package,omitempty"` // its name; empty until it is known
	// Previous is the name of the earlier package until that is removed.
	Previous string        `json:"previous,omitempty"`
	Content  digest.Digest `json:"content"`
	Phase    phase         `json:"phase"`
	// Reason, Message and Waiting describe a failure.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Waiting bool   `json:"waiting,omitempty"`
	// Archive is the package's file, kept for packages that need no cluster: Zarf has no record of these.
	Archive string `json:"archive,omitempty"`
	// Checksum is the checksum of a prebuilt package's parts, which identifies it on the cluster.
	Checksum string `json:"checksum,omitempty"`
	// Components are the package's. After an interrupted deploy, the cluster may have no record of them.
	Components []component `json:"components,omitempty"`
}

const recordFile = "record.json"

// folder is an assignment's place on disk.
func (r *Reconciler) folder(assignment string) string {
	return filepath.Join(r.opts.Dir, "assignments", assignment)
}

// loadRecord returns nil if there is no record.
func (r *Reconciler) loadRecord(assignment string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(r.folder(assignment), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, local(err)
	}
	rec := &record{}
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, nil // as if it were lost: the packages are found again on the cluster
	}
	return rec, nil
}

// saveRecord saves rec, and returns once it is on disk.
func (r *Reconciler) saveRecord(assignment string, rec record) error {
	data, err := json.Marshal(rec)
	if err == nil {
		err = os.MkdirAll(r.folder(assignment), 0o700)
	}
	if err == nil {
		err = diskfile.WriteFile(filepath.Join(r.folder(assignment), recordFile), data)
	}
	if err != nil {
		return local(err)
	}
	return nil
}

// claimant returns the assignment that has deployed a package of this name from here; empty if none has.
func (r *Reconciler) claimant(name string) string {
	entries, err := os.ReadDir(filepath.Dir(r.folder("x")))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if rec, err := r.loadRecord(e.Name()); err == nil && rec != nil && rec.Package == name && rec.Phase == phaseDeployed {
			return e.Name()
		}
	}
	return ""
}

// stage makes a private copy of an assignment's files, in which the package's configuration has the file name
// that Zarf requires.
func stage(from, to string, zarfYAML []byte) error {
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700)); err != nil {
		return err
	}
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	err = fs.WalkDir(source.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir():
			return target.Mkdir(name, 0o700)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", name)
		}
		return copyFile(source, target, name, d)
	})
	if err != nil {
		return err
	}
	return target.WriteFile("zarf.yaml", zarfYAML, 0o600)
}

func copyFile(source, target *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	in, err := source.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|info.Mode()&0o100)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
