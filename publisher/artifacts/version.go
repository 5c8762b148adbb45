package artifacts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
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
		a.Version = cmp.Or(PlainWord(cmp.Or(found.Annotated, found.Version)), VersionIn(a.Files, imagesOf(needs)))
		return nil
	}
	a.Version = found.Revision[:min(len(found.Revision), shortCommit)]
	dir, err := gitrepo.CleanPath(a.Manifests["path"])
	if err != nil {
		return nil // the engine will not find it either
	}
	a.Origin = scheduler.Place{Repo: gitrepo.Redact(source.URL), Ref: source.gitRef(), Commit: found.Revision, Path: dir}
	content, err := p.content(sourceFolder{source.Source, dir})
	if err != nil {
		return fmt.Errorf("%s: read %s at %s: %w", source.place, source.Reference(), a.Version, err)
	}
	d := DescriptorFor(a, content.dir, content.descriptors)
	a.Version = cmp.Or(d.Version, content.version, a.Version)
	a.Application, a.Inside, a.Origin.ID = d.Application, content.needs, content.id
	return nil
}

// gitRef is the branch, tag or range that a need names of a git repository.
func (n *need) gitRef() string { return cmp.Or(n.RefName, n.Tag, n.Semver, n.Branch) }

// PlaceOf returns the place of what a's manifests name: the one that was read, else what they say.
func PlaceOf(a *scheduler.Assignment) scheduler.Place {
	if a.Origin != (scheduler.Place{}) || a.Manifests["repo"] == "" {
		return a.Origin
	}
	return scheduler.Place{Repo: gitrepo.Redact(a.Manifests["repo"]), Ref: a.Manifests["branch"], Path: a.Manifests["path"]}
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

// Descriptor is what a DeploymentDescriptor of hub.kalypso.io/v1alpha1 says, which an app team's pipeline writes beside the
// manifests.
type Descriptor struct {
	Dir                                    string // of its file
	Workload, Target, Version, Application string
}

// DescriptorFor returns the descriptor that is for a, else the only one directly in dir. It is empty where there is none.
func DescriptorFor(a *scheduler.Assignment, dir string, all []Descriptor) Descriptor {
	isFor := func(d Descriptor) bool {
		return d.Target == a.Target && slices.Contains([]string{"", a.Workload}, d.Workload)
	}
	if i := slices.IndexFunc(all, isFor); i >= 0 {
		return all[i]
	}
	beside := slices.DeleteFunc(slices.Clone(all), func(d Descriptor) bool { return d.Dir != dir })
	if len(beside) == 1 { // the names there are the app team's own, and need not be those of the platform
		return beside[0]
	}
	return Descriptor{}
}

// descriptorFile has the needed fields of a DeploymentDescriptor.
type descriptorFile struct {
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
			Name string `yaml:"name"`
		} `yaml:"deploymentTarget"`
		WorkloadVersion struct {
			Version string `yaml:"version"`
		} `yaml:"workloadVersion"`
	} `yaml:"spec"`
}

// DescriptorsIn returns the DeploymentDescriptors in a file, and none for a file that is no YAML, such as a chart's
// template. Versions and names that no line of a report can show are empty. Only is true if the file has nothing else.
func DescriptorsIn(f scheduler.File) (all []Descriptor, only bool) {
	if !bytes.Contains(f.Data, []byte("DeploymentDescriptor")) {
		return nil, false
	}
	documents := yamlvalues.NewDecoder(f.Data)
	for only = true; ; {
		var d descriptorFile
		err := documents.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all, only && len(all) > 0
		}
		var mistyped *yamlvalues.TypeError
		if err != nil && !errors.As(err, &mistyped) {
			return all, false
		}
		if d.Kind != "DeploymentDescriptor" || !strings.HasPrefix(d.APIVersion, "hub.kalypso.io/") {
			only = false
			continue
		}
		all = append(all, Descriptor{
			Dir: path.Dir(f.Path), Workload: d.Spec.Workload.Name, Target: d.Spec.DeploymentTarget.Name,
			Version: PlainWord(d.Spec.WorkloadVersion.Version), Application: PlainWord(d.Spec.Workload.Application.Name),
		})
	}
}

// VersionIn returns the version that manifests say of what they run: the label app.kubernetes.io/version if all objects that have it
// agree, else the tag of their only image. It is empty if neither is known. Images are all that files name.
func VersionIn(files []scheduler.File, images []sources.Source) string {
	labels := labelsIn(files)
	slices.Sort(labels)
	if labels = slices.Compact(labels); len(labels) == 1 {
		return labels[0]
	}
	differs := func(s sources.Source) bool { return s.URL != images[0].URL || s.Tag != images[0].Tag }
	if len(images) == 0 || slices.ContainsFunc(images, differs) || images[0].Tag == oci.DefaultTag {
		return ""
	}
	return VersionOf(images[0].Tag)
}

// VersionOf is s if people can read it as a version, else nothing.
func VersionOf(s string) string { return PlainWord(bundle.ShownVersion(s)) }

const versionLabel = "app.kubernetes.io/version"

// imagesOf lists the images among needs.
func imagesOf(needs []need) (images []sources.Source) {
	for _, n := range needs {
		if n.Kind == bundle.ArtifactImage {
			images = append(images, n.Source)
		}
	}
	return images
}

// chartIn returns what the chart in a folder says of its version; empty if the folder has none.
func chartIn(files []scheduler.File, dir string) string {
	i := slices.IndexFunc(files, func(f scheduler.File) bool { return f.Path == path.Join(dir, "Chart.yaml") })
	var c struct {
		Version    string `yaml:"version"`
		AppVersion string `yaml:"appVersion"`
	}
	if i < 0 || yamlvalues.NewDecoder(files[i].Data).Decode(&c) != nil {
		return "" // the engine says so
	}
	return cmp.Or(VersionOf(c.AppVersion), VersionOf(c.Version))
}

// labelsIn returns the versions that labels of objects give.
func labelsIn(files []scheduler.File) (labels []string) {
	for _, f := range files {
		if !bytes.Contains(f.Data, []byte(versionLabel)) {
			continue
		}
		objects, _ := parseValues(f.Data) // what is no YAML, such as a chart's template, has none
		for _, o := range objects {
			if label := VersionOf(text(o, "metadata", "labels", versionLabel)); label != "" {
				labels = append(labels, label)
			}
		}
	}
	return labels
}

// PlainWord is s if people can read it on one line, else nothing.
func PlainWord(s string) string {
	if len(s) > maxVersionBytes || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return s
}
