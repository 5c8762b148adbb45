package artifacts

import (
	"errors"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// Origin is the source that a target's manifests name.
type Origin struct {
	sources.Source
	// Place is the place of the reference, for messages.
	Place string
}

// OriginOf returns the source that the target's manifests name, in the state that a's rendered files name of it, which count
// more. It is the zero Origin if the manifests name no source.
func OriginOf(a *scheduler.Assignment) (Origin, error) {
	main, ok := mainNeed(a)
	if !ok {
		return Origin{}, nil
	}
	if main.unpinnable != "" {
		return Origin{}, errors.New(main.place + ": " + main.unpinnable)
	}
	return Origin{main.Source, main.place}, nil
}

// mainNeed returns the need of an assignment that its manifests name.
func mainNeed(a *scheduler.Assignment) (need, bool) {
	own := new(scanner)
	own.manifests(a)
	i := slices.IndexFunc(own.needs, func(n need) bool {
		return slices.Contains([]bundle.ArtifactType{bundle.ArtifactGit, bundle.ArtifactOCI, bundle.ArtifactChart}, n.Kind)
	})
	if i < 0 {
		return need{}, false
	}
	main := own.needs[i]
	if main.unpinnable != "" {
		return main, true
	}
	rendered, _ := needsOf(&scheduler.Assignment{Files: RenderedFiles(a)}) // what cannot be read, pinning reports
	for _, n := range rendered {
		if n.unpinnable == "" && n.isOf(main) {
			return n, true
		}
	}
	return main, true
}

// isOf reports whether n names the same repository, or chart, as main. A chart in a registry may be named as an artifact.
func (n need) isOf(main need) bool {
	if n.Kind != main.Kind && (n.Kind == bundle.ArtifactGit || main.Kind == bundle.ArtifactGit) {
		return false
	}
	return sameRepository(n.URL, main.URL) && n.Chart == main.Chart && n.Kind != bundle.ArtifactImage
}

// IsEmbeddedPath reports whether a file of an assignment is one of those that embedding adds.
func IsEmbeddedPath(name string) bool {
	return strings.HasPrefix(name, bundle.ManifestsDir+"/") || strings.HasPrefix(name, bundle.ChartsDir+"/")
}

// RenderedFiles returns a's files without those that embedding has added.
func RenderedFiles(a *scheduler.Assignment) []scheduler.File {
	if a.Delivery != scheduler.Embedded {
		return a.Files
	}
	return slices.DeleteFunc(slices.Clone(a.Files), func(f scheduler.File) bool { return IsEmbeddedPath(f.Path) })
}

// ImagePlace is a place in a file where the digest of an image belongs.
type ImagePlace struct {
	sources.Source
	// File is the index of the file. The bytes from From to To are replaced by Before, the digest and After.
	File, From, To int
	Before, After  string
}

// ImagePlaces returns where the digests of images belong in files of objects, in the order of the files, and all images. Images that
// have a digest have no place. Missed says of each other image that has none where it is, and why.
func ImagePlaces(files []scheduler.File) (places []ImagePlace, images []sources.Source, missed []string) {
	found, _ := scan(&scheduler.Assignment{Files: files}) // files that are no YAML have no images
	texts := map[int]*yamltext.File{}
	missed, images = found.missed, imagesOf(found.needs)
	for _, n := range found.needs {
		if n.Kind != bundle.ArtifactImage || n.Revision != "" {
			continue
		}
		if n.unpinnable != "" {
			missed = append(missed, n.place+": "+n.unpinnable)
			continue
		}
		if n.edit == nil {
			missed = append(missed, n.notInPlace())
			continue
		}
		if texts[n.file] == nil {
			texts[n.file] = yamltext.Open(files[n.file].Data)
		}
		const mark = "\x00"
		s, err := spliceOf(texts[n.file], write{n.edit, mark})
		if err != nil {
			missed = append(missed, n.notInPlace())
			continue
		}
		p := ImagePlace{Source: n.Source, File: n.file, From: s.From, To: s.To}
		p.Before, p.After, _ = strings.Cut(s.Text, mark)
		places = append(places, p)
	}
	return places, images, missed
}

// Images lists the images that files of objects name, each once.
func Images(files []scheduler.File) []sources.Source {
	var images []sources.Source
	needs, _ := needsOf(&scheduler.Assignment{Files: files}) // files that are no YAML have no images
	for _, n := range needs {
		if n.Kind == bundle.ArtifactImage && n.URL != "" && !slices.Contains(images, n.Source) {
			images = append(images, n.Source)
		}
	}
	return images
}

// WriteDigests returns files with the digests of images at their places, as far as found has them, and the images with
// digest and size.
func WriteDigests(files []scheduler.File, places []ImagePlace, found map[sources.Source]*sources.Resolution) ([]scheduler.File, []scheduler.Pinned) {
	splices := map[int][]yamltext.Splice{}
	var pinned []scheduler.Pinned
	for _, p := range places {
		known := found[p.Source]
		if known == nil || known.Err != nil {
			continue
		}
		splices[p.File] = append(splices[p.File], yamltext.Splice{From: p.From, To: p.To, Text: p.Before + known.Revision + p.After})
		now := p.Source
		now.Revision = known.Revision
		artifact := now.Artifact()
		line := scheduler.Pinned{Type: string(artifact.Type), Name: artifact.Name, Reference: artifact.Reference, Digest: artifact.Digest, Size: known.Size}
		if !slices.Contains(pinned, line) {
			pinned = append(pinned, line)
		}
	}
	if len(splices) == 0 {
		return files, nil
	}
	files = slices.Clone(files)
	for i, all := range splices {
		if data, err := yamltext.Open(files[i].Data).Splice(all); err == nil { // else two places overlap, which no YAML has
			files[i].Data = data
		}
	}
	return files, pinned
}

// Names reports whether a reference of an engine's object, with a chart or without, is to o's repository.
func (o Origin) Names(repo, chart string) bool {
	repo = strings.TrimPrefix(repo, sources.Scheme)
	if o.Chart == "" && o.Kind != bundle.ArtifactGit && chart != "" { // a chart in a registry
		repo, chart = strings.TrimSuffix(repo, "/")+"/"+chart, ""
	}
	return o.URL != "" && sameRepository(o.URL, repo) && o.Chart == chart
}
