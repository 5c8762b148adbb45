package publisher

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// shortCommit is how many digits of a commit stand for a version.
	shortCommit = 12
	// maxVersionBytes bounds a version and an application's name, which are foreign and go into reports.
	maxVersionBytes = 128
	// maxDescriptorBytes bounds the files that are looked at: larger ones hold something else.
	maxDescriptorBytes = 1 << 20
)

// version is the version that an assignment's workload has in its source, and the application that it is
// part of.
func (p *pinning) version(a *scheduler.Assignment, needs []need) (version, application string, err error) {
	source := mainSource(a, needs)
	if source == nil {
		return "", "", nil
	}
	found := p.found[source.artifactSource]
	if source.kind != bundle.ArtifactGit {
		return plainWord(cmp.Or(found.annotated, found.version)), "", nil
	}
	version = found.revision[:min(len(found.revision), shortCommit)]
	dir, err := cleanPath(a.Manifests["path"])
	if err != nil {
		return version, "", nil // the engine will not find it either
	}
	d, err := p.descriptorFor(a, descriptorFolder{source.artifactSource, dir})
	if err != nil {
		return "", "", fmt.Errorf("%s: read the version in %s at %s: %w", source.place, source.reference(), version, err)
	}
	return cmp.Or(plainWord(d.Spec.WorkloadVersion.Version), version), plainWord(d.Spec.Workload.Application.Name), nil
}

// mainSource is where the workload comes from: the source that the target's manifests name, else the
// first repository, set of manifests, chart, or image.
func mainSource(a *scheduler.Assignment, needs []need) *need {
	for _, is := range []func(need) bool{
		func(n need) bool { return a.Manifests["repo"] != "" && sameRepository(n.url, a.Manifests["repo"]) },
		func(n need) bool { return n.kind == bundle.ArtifactGit },
		func(n need) bool { return n.kind != bundle.ArtifactImage },
		func(need) bool { return true },
	} {
		if i := slices.IndexFunc(needs, is); i >= 0 {
			return &needs[i]
		}
	}
	return nil
}

// descriptor is what is read of a DeploymentDescriptor of hub.kalypso.io/v1alpha1, which an app team's
// pipeline leaves beside the manifests.
type descriptor struct {
	dir        string // of its file
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Spec       struct {
		Workload struct {
			Name        string `yaml:"name"`
			Application struct {
				Name string `yaml:"name"`
			} `yaml:"application"`
		} `yaml:"workload"`
		DeploymentTarget struct {
			Name        string `yaml:"name"`
			Environment string `yaml:"environment"`
		} `yaml:"deploymentTarget"`
		WorkloadVersion struct {
			Version string `yaml:"version"`
		} `yaml:"workloadVersion"`
	} `yaml:"spec"`
}

// descriptorFolder is a folder of a source.
type descriptorFolder struct {
	source artifactSource
	dir    string
}

// descriptorFor returns the descriptor below a folder that is for a, else the only one directly in there. It
// is empty where there is none.
func (p *pinning) descriptorFor(a *scheduler.Assignment, at descriptorFolder) (descriptor, error) {
	all, known := p.descriptors[at]
	if !known {
		var err error
		if all, err = readDescriptors(p.found[at.source].tree.FS, at.dir); err != nil {
			return descriptor{}, err
		}
		p.descriptors[at] = all
	}
	isFor := func(d descriptor) bool {
		return d.Spec.DeploymentTarget.Name == a.Target && slices.Contains([]string{"", a.Workload}, d.Spec.Workload.Name)
	}
	if i := slices.IndexFunc(all, isFor); i >= 0 {
		return all[i], nil
	}
	beside := slices.DeleteFunc(slices.Clone(all), func(d descriptor) bool { return d.dir != at.dir })
	if len(beside) == 1 { // the names there are the app team's own, and need not be those of the platform
		return beside[0], nil
	}
	return descriptor{}, nil
}

func readDescriptors(fsys fs.FS, dir string) (all []descriptor, err error) {
	files := &guardedFS{FS: fsys}
	err = fs.WalkDir(files, dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == dir {
			return nil // the engine says so
		}
		if err != nil || !e.Type().IsRegular() || !slices.Contains([]string{".yaml", ".yml"}, path.Ext(name)) {
			return err
		}
		if info, err := e.Info(); err != nil || info.Size() > maxDescriptorBytes {
			return err
		}
		data, err := fs.ReadFile(files, name)
		for _, d := range descriptorsIn(data) {
			d.dir = path.Dir(name)
			all = append(all, d)
		}
		return err
	})
	return all, err
}

// descriptorsIn passes over what is no YAML, such as a chart's templates.
func descriptorsIn(data []byte) (all []descriptor) {
	if !bytes.Contains(data, []byte("DeploymentDescriptor")) {
		return nil
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var d descriptor
		err := documents.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all
		}
		var mistyped *yaml.TypeError
		if err != nil && !errors.As(err, &mistyped) {
			return all
		}
		if d.Kind == "DeploymentDescriptor" && strings.HasPrefix(d.APIVersion, "hub.kalypso.io/") {
			all = append(all, d)
		}
	}
}

// plainWord is s if people can read it on one line, else nothing.
func plainWord(s string) string {
	if len(s) > maxVersionBytes || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return s
}
