package ansible

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// The files and folders of an assignment's folder.
const (
	stateFile  = "state.json"
	varsFile   = "vars.yaml"
	contentDir = "content" // the playbooks that were run last
	nextDir    = "next"    // the staged playbooks, for the next run
	oldDir     = "old"     // for the moment between two renames
	runDir     = "run"     // the programs' records of the run, and below of the check; see package program
	checkDir   = "check"
)

// maxPlaybookBytes bounds a playbook. A larger file counts as data.
const maxPlaybookBytes = 1 << 20

// place is the folder of one assignment.
type place string

func (p place) path(elements ...string) string {
	return filepath.Join(append([]string{string(p)}, elements...)...)
}

// standing is the record of an assignment that survives a restart.
type standing struct {
	// Content is the content of the last Apply; Ended is true once its run has ended. A run that has not ended was cut
	// off, unless this process is running it.
	Content digest.Digest `json:"content"`
	Ended   bool          `json:"ended"`
	// State, Reason and Message are the result of that run.
	State   bundle.State `json:"state,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	// Drifted is true since a check has found something to change.
	Drifted bool `json:"drifted,omitempty"`
}

// load returns the zero standing if there is no record or a damaged one: then the playbooks are run again, for which they
// have to be idempotent.
func (p place) load() (s standing, err error) {
	data, err := os.ReadFile(p.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if json.Unmarshal(data, &s) != nil {
		return standing{}, nil
	}
	return s, nil
}

// save is durable when it returns nil.
func (p place) save(s standing) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return err
	}
	return diskfile.WriteFile(p.path(stateFile), data)
}

// stage copies the assignment's files to the next folder, so that they survive while the agent prunes its trees, and
// checks that the copy has the digest of the verified content.
func (p place) stage(ctx context.Context, a reconcilers.Assignment) error {
	next := p.path(nextDir)
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := copyTree(ctx, a.Dir, next); err != nil {
		return err
	}
	got, err := bundle.ContentDigestOf(os.DirFS(string(p)), nextDir)
	if err != nil {
		return err
	}
	if got != a.Content {
		return &reconcilers.Error{Reason: FilesUnreadable, Err: fmt.Errorf("%s holds %s, which is not what was verified", a.Dir, got)}
	}
	return nil
}

// take makes the staged content the current one.
func (p place) take() error {
	if err := os.RemoveAll(p.path(oldDir)); err != nil {
		return err
	}
	if err := os.Rename(p.path(contentDir), p.path(oldDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(p.path(nextDir), p.path(contentDir)); err != nil {
		return err
	}
	return errors.Join(diskfile.SyncDir(string(p)), os.RemoveAll(p.path(oldDir)))
}

// applied returns the folder of the playbooks that were run last, and their names. Both are empty if there are none.
func (p place) applied() (dir string, names []string, err error) {
	for _, dir := range []string{contentDir, oldDir} { // the latter after a crash between two renames
		names, err := playbooks(p.path(dir))
		if !errors.Is(err, fs.ErrNotExist) {
			return p.path(dir), names, err
		}
	}
	return "", nil, nil
}

// playbooks lists the playbooks in dir in the order in which they are run: namespace.yaml, which prepares for the others,
// the others by name, and reconciler.yaml.
func playbooks(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		ext := path.Ext(e.Name())
		if e.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		is, err := isPlaybook(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if is {
			found = append(found, e.Name())
		}
	}
	rank := func(name string) int {
		return map[string]int{"namespace": -1, "reconciler": 1}[strings.TrimSuffix(name, path.Ext(name))]
	}
	slices.SortStableFunc(found, func(a, b string) int { return rank(a) - rank(b) })
	return found, nil
}

// isPlaybook reports whether a file is a list of plays. A file that cannot be parsed counts as one: Ansible explains the
// error best.
func isPlaybook(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPlaybookBytes+1))
	if err != nil || len(data) > maxPlaybookBytes || yamlvalues.Check(data) != nil {
		return false, err
	}
	var document any
	if yaml.Unmarshal(data, &document) != nil {
		return true, nil
	}
	plays, _ := document.([]any)
	return slices.ContainsFunc(plays, func(p any) bool {
		play, _ := p.(map[string]any)
		for _, key := range []string{"hosts", "import_playbook", "ansible.builtin.import_playbook"} {
			if _, ok := play[key]; ok {
				return true
			}
		}
		return false
	}), nil
}

// copyTree copies regular files and folders, syncs them to disk, and refuses everything else. Other users cannot read the
// copies.
func copyTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular():
			return failure(InvalidAssignment, "%s is not a regular file", rel)
		}
		return copyFile(name, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|info.Mode()&0o100)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
