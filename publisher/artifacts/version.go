package artifacts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// shortCommit is how many digits of a commit stand for a version.
	shortCommit = 12
	// maxVersionBytes bounds a version and an application's name, which are foreign and go into reports.
	maxVersionBytes = 128
)

// describe fills in the version that a's workload has in its source, the application that it is part of, and
// what the manifests there need in turn.
func (p *pinning) describe(a *scheduler.Assignment, needs []need) error {
	source := mainSource(a, needs)
	if source == nil {
		return nil
	}
	found := p.found[source.Source]
	if source.Kind != bundle.ArtifactGit {
		a.Version = plainWord(cmp.Or(found.Annotated, found.Version))
		return nil
	}
	a.Version = found.Revision[:min(len(found.Revision), shortCommit)]
	dir, err := gitrepo.CleanPath(a.Manifests["path"])
	if err != nil {
		return nil // the engine will not find it either
	}
	content, err := p.content(sourceFolder{source.Source, dir})
	if err != nil {
		return fmt.Errorf("%s: read %s at %s: %w", source.place, source.Reference(), a.Version, err)
	}
	d := content.descriptorFor(a)
	a.Version = cmp.Or(plainWord(d.Spec.WorkloadVersion.Version), a.Version)
	a.Application, a.Inside = plainWord(d.Spec.Workload.Application.Name), content.needs
	return nil
}

// mainSource is where the workload comes from: the source that the target's manifests name, else the
// first repository, set of manifests, chart, or image.
func mainSource(a *scheduler.Assignment, needs []need) *need {
	for _, is := range []func(need) bool{
		func(n need) bool { return a.Manifests["repo"] != "" && sameRepository(n.URL, a.Manifests["repo"]) },
		func(n need) bool { return n.Kind == bundle.ArtifactGit },
		func(n need) bool { return n.Kind != bundle.ArtifactImage },
		func(need) bool { return true },
	} {
		if i := slices.IndexFunc(needs, is); i >= 0 {
			return &needs[i]
		}
	}
	return nil
}

// descriptor has the needed fields of a DeploymentDescriptor of hub.kalypso.io/v1alpha1, which an app team's
// pipeline writes beside the manifests.
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

// descriptorFor returns the descriptor that is for a, else the only one directly in the folder. It is empty
// where there is none.
func (f folderContent) descriptorFor(a *scheduler.Assignment) descriptor {
	isFor := func(d descriptor) bool {
		return d.Spec.DeploymentTarget.Name == a.Target && slices.Contains([]string{"", a.Workload}, d.Spec.Workload.Name)
	}
	if i := slices.IndexFunc(f.descriptors, isFor); i >= 0 {
		return f.descriptors[i]
	}
	beside := slices.DeleteFunc(slices.Clone(f.descriptors), func(d descriptor) bool { return d.dir != f.dir })
	if len(beside) == 1 { // the names there are the app team's own, and need not be those of the platform
		return beside[0]
	}
	return descriptor{}
}

// descriptorsIn returns the DeploymentDescriptors in a file, and none for a file that is no YAML, such as a chart's
// template.
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
