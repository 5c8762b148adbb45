package codeowners

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

const (
	// maxFiles and maxFileBytes are the bounds of package scheduler, which would not load more either.
	maxFiles     = 100_000
	maxFileBytes = 8 << 20
)

// scan collects the files of workspaces.
type scan struct {
	platform   *kinds.Platform // the given one, or the one that was found
	found      *kinds.Platform
	workspaces map[string][]string // files by workspace
	registers  map[string]bool     // workspaces that have registrations among them
	files      int
}

func (s *scan) walk(files fs.FS) error {
	s.registers = map[string]bool{}
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && name != "."
		switch ext := path.Ext(name); {
		case err != nil:
			return err
		case entry.IsDir() && hidden:
			return fs.SkipDir // wherry reads no objects of teams there
		case entry.IsDir(), ext != ".yaml" && ext != ".yml" && ext != ".json", !entry.Type().IsRegular():
			return nil
		}
		if s.files++; s.files > maxFiles {
			return fmt.Errorf("more than %d files: is this the right folder?", maxFiles)
		}
		return s.file(files, name)
	})
}

// file notes the workspace to which all objects of a file belong, if there is one.
func (s *scan) file(files fs.FS, name string) error {
	f, err := files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil || len(data) > maxFileBytes {
		return err // too large to be read, so it is nobody's but the platform team's
	}
	objects, ok := documents(name, data)
	if err := s.findPlatform(name, data, objects); err != nil {
		return err
	}
	workspace := onlyWorkspace(objects)
	if !ok || workspace == "" {
		return nil
	}
	s.workspaces[workspace] = append(s.workspaces[workspace], name)
	for _, o := range objects {
		if _, registers := o.(*kinds.WorkloadRegistration); registers {
			s.registers[workspace] = true
		}
	}
	return nil
}

// onlyWorkspace returns the workspace to which all objects belong, empty if there is no such.
func onlyWorkspace(objects []kinds.Object) string {
	if len(objects) == 0 {
		return ""
	}
	workspace := workspaceOf(objects[0])
	for _, o := range objects[1:] {
		if workspaceOf(o) != workspace {
			return ""
		}
	}
	return workspace
}

// findPlatform notes the Platform among the objects of a file. There is only one.
func (s *scan) findPlatform(name string, data []byte, objects []kinds.Object) error {
	for _, o := range objects {
		p, ok := o.(*kinds.Platform)
		if !ok {
			continue
		}
		if s.found != nil {
			return fmt.Errorf("%s: a second Platform object: the first is at %s", p.At, s.found.At)
		}
		if s.found = p; s.platform == nil {
			s.platform = p
		}
		if err := check(name, data, p); err != nil {
			return err
		}
	}
	return nil
}

// check returns the mistakes of a Platform, or of the file that holds it: owners that were read in half are wrong owners.
func check(name string, data []byte, p *kinds.Platform) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := decoder.Decode(&n); errors.Is(err, io.EOF) {
			return scheduler.CheckPlatform(p)
		} else if err != nil {
			return finding.Errorf(finding.CodeSyntax, finding.Position{File: name}, "", "%v", err)
		}
		for _, content := range n.Content {
			if kinds.StringField(content, "kind") == "Platform" {
				if d := kinds.Decode(name, content, new(kinds.Platform), false); len(d.Errs) > 0 {
					return finding.Join(d.Errs)
				}
			}
		}
	}
}

// documents returns the objects of a file, nil for a file that is not a platform's. It returns false if any part of the file is
// not understood.
func documents(name string, data []byte) (objects []kinds.Object, ok bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for ok = true; ; {
		var n yaml.Node
		if err := decoder.Decode(&n); errors.Is(err, io.EOF) {
			return objects, ok
		} else if err != nil {
			return objects, false
		}
		for _, content := range n.Content {
			more, understood := object(name, content)
			objects, ok = append(objects, more...), ok && understood
		}
	}
}

// object returns the object of a document, or those of a List.
func object(name string, n *yaml.Node) (objects []kinds.Object, ok bool) {
	apiVersion, kind := kinds.StringField(n, "apiVersion"), kinds.StringField(n, "kind")
	if n.ShortTag() == "!!null" {
		return nil, true
	}
	if apiVersion == kinds.CoreAPI && kind == "List" {
		ok = true
		for _, item := range kinds.SequenceField(n, "items") {
			more, understood := object(name, item)
			objects, ok = append(objects, more...), ok && understood
		}
		return objects, ok
	}
	into := kinds.New(apiVersion, kind)
	if into == nil {
		return nil, false
	}
	d := kinds.Decode(name, n, into, false)
	into.Base().At = finding.Position{File: name, Line: n.Line}
	return []kinds.Object{into}, len(d.Errs) == 0
}

// workspaceOf returns the workspace that alone is affected by an object, empty if there is none.
func workspaceOf(o kinds.Object) string {
	switch o := o.(type) {
	case *kinds.WorkloadRegistration:
		return o.Spec.Workspace
	case *kinds.ConfigMap:
		if !o.IsLabelled() || o.IsAzure() { // the keys of the latter carry conditions of their own
			return ""
		}
		return o.Metadata.Labels["workspace"]
	case *kinds.ConfigSchema:
		return o.Metadata.Labels["workspace"]
	}
	return ""
}
