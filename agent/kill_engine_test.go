package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// fileEngine keeps its cluster in a folder, with a folder for each assignment. It writes in place, so that
// half-applied content is visible.
type fileEngine struct {
	dir    string
	ledger reconcilers.Ledger
	moment func(string)
}

// rejected is content that the engine does not get to run.
const rejected = "bad"

func (e *fileEngine) Apply(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.moment("engine: apply")
	want, err := readFolder(a.Dir)
	if err != nil {
		return reconcilers.Failure("Unreadable", err)
	}
	if err := e.ledger.Save(a.Name, []byte(a.Content)); err != nil {
		return reconcilers.Failure("Ledger", err)
	}
	own := filepath.Join(e.dir, a.Name)
	have, _ := readFolder(own)
	for i, name := range sortedKeys(want) {
		if err := writeInPlace(filepath.Join(own, name), want[name], func() { e.moment("engine: half applied") }); err != nil {
			return reconcilers.Failure("Disk", err)
		}
		if i == 0 && strings.HasPrefix(want[name], rejected) {
			e.moment("engine: failed")
			return reconcilers.Failure("Crashes", errors.New("it does not start"))
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			err = errors.Join(err, os.Remove(filepath.Join(own, name)))
		}
	}
	if err != nil {
		return reconcilers.Failure("Disk", err)
	}
	e.moment("engine: applied")
	return reconcilers.Result{State: bundle.Compliant, Revision: string(a.Content)}
}

func (e *fileEngine) Observe(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.moment("engine: observe")
	want, err1 := readFolder(a.Dir)
	have, err2 := readFolder(filepath.Join(e.dir, a.Name))
	switch {
	case err1 != nil:
		return reconcilers.Failure("Unreadable", err1)
	case err2 != nil, !equalFiles(want, have):
		return reconcilers.Result{State: bundle.Drifted, Reason: "Differs"}
	}
	return reconcilers.Result{State: bundle.Compliant, Revision: string(a.Content)}
}

func (e *fileEngine) Remove(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.moment("engine: remove")
	own := filepath.Join(e.dir, a.Name)
	have, err := readFolder(own)
	for _, name := range sortedKeys(have) {
		err = errors.Join(err, os.Remove(filepath.Join(own, name)))
		e.moment("engine: half removed")
	}
	if err = errors.Join(err, os.RemoveAll(own)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return reconcilers.Failure("Disk", err)
	}
	e.moment("engine: removed")
	return reconcilers.Result{State: bundle.Removed}
}

func writeInPlace(path, content string, half func()) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == content {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content[:len(content)/2])
	half()
	if err == nil {
		_, err = f.WriteString(content[len(content)/2:])
	}
	return errors.Join(err, f.Close())
}

// readFolder returns the files of a folder by name.
func readFolder(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	files := map[string]string{}
	for _, e := range entries {
		data, bad := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, bad)
		files[e.Name()] = string(bytes.Clone(data))
	}
	return files, err
}
