package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/reconcilers"
)

// InvalidManifest is the reason why no artifact can be made of a folder.
const InvalidManifest = "InvalidManifest"

// manifestsType is the artifact type of embedded manifests.
const manifestsType = "application/vnd.wherry.manifests.v1"

// chartConfigType is the type of the config of a chart in a registry. It holds the fields of Chart.yaml as JSON.
const chartConfigType = "application/vnd.cncf.helm.config.v1+json"

// maxChartFile bounds Chart.yaml, in bytes, which travels in the config.
const maxChartFile = 1 << 20

// derive makes the artifacts of a folder, and pushes them into the store.
func derive(ctx context.Context, repo oci.Target, w Wanted) (made Made, err error) {
	root, err := open(w.Dir)
	if err != nil {
		return Made{}, err
	}
	defer root.Close()
	made.Folder = w.Folder
	files, err := w.manifests(root.FS())
	if err != nil {
		return Made{}, err
	}
	packed, err := bundle.Pack(files)
	if err != nil {
		return Made{}, invalid(err)
	}
	if made.Manifests, err = push(ctx, repo, manifestsType, []byte("{}"), ocispec.MediaTypeEmptyJSON, packed.Gzip, ocispec.MediaTypeImageLayerGzip); err != nil {
		return Made{}, err
	}
	charts, err := fs.Glob(root.FS(), bundle.ChartsDir+"/*.tgz")
	if err != nil {
		return Made{}, err
	}
	for _, name := range charts {
		name = path.Base(name)
		chart, err := pushChart(ctx, repo, root.FS(), name)
		if err != nil {
			return Made{}, fmt.Errorf("chart %s: %w", name, err)
		}
		if made.Charts == nil {
			made.Charts = map[string]Artifact{}
		}
		made.Charts[name] = chart
	}
	return made, nil
}

// manifests returns the files of bundle.ManifestsDir as the engine gets them.
func (w Wanted) manifests(folder fs.FS) ([]bundle.File, error) {
	var changed map[string][]byte
	var err error
	if w.Changed != nil {
		changed, err = w.Changed(w.Assignment, folder)
	}
	switch {
	case err != nil && reconcilers.Known(err) != nil:
		return nil, err
	case err != nil:
		return nil, invalid(err)
	}
	var files []bundle.File
	err = fs.WalkDir(folder, bundle.ManifestsDir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == bundle.ManifestsDir {
			return nil // nothing is embedded
		}
		if err != nil || d.IsDir() {
			return err
		}
		file := bundle.File{Path: strings.TrimPrefix(name, bundle.ManifestsDir+"/")}
		if data, ok := changed[file.Path]; ok {
			file.Data = data
		} else if file.Data, err = fs.ReadFile(folder, name); err != nil {
			return err
		}
		files = append(files, file)
		return nil
	})
	if err != nil {
		return nil, state.Local("artifact: %w", err)
	}
	return files, nil
}

func invalid(err error) error {
	return &reconcilers.Error{Reason: InvalidManifest, Fault: reconcilers.FaultRelease, Err: err}
}

// push writes an artifact with one layer.
func push(ctx context.Context, repo oci.Target, artifactType string, config []byte, configType string, layer []byte, layerType string) (Artifact, error) {
	blobs := []ocispec.Descriptor{describe(configType, config), describe(layerType, layer)}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType,
		Config: blobs[0], Layers: blobs[1:],
	})
	if err != nil {
		return Artifact{}, err
	}
	a := Artifact{Manifest: describe(ocispec.MediaTypeImageManifest, manifest), Blobs: blobs}
	for i, data := range [][]byte{config, layer, manifest} {
		d := append(blobs[:2:2], a.Manifest)[i]
		if err := repo.Push(ctx, d, bytes.NewReader(data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return Artifact{}, state.Local("artifact: %w", err)
		}
	}
	return a, nil
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// pushChart writes a chart as Helm does.
func pushChart(ctx context.Context, repo oci.Target, folder fs.FS, name string) (Artifact, error) {
	data, err := fs.ReadFile(folder, path.Join(bundle.ChartsDir, name))
	if err != nil {
		return Artifact{}, state.Local("artifact: %w", err)
	}
	config, err := chartConfig(data)
	if err != nil {
		return Artifact{}, invalid(err)
	}
	return push(ctx, repo, "", config, chartConfigType, data, reconcilers.ChartMediaType)
}

// chartConfig returns Chart.yaml of a packed chart as JSON.
func chartConfig(chart []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(chart))
	if err != nil {
		return nil, err
	}
	defer zip.Close()
	for archive := tar.NewReader(io.LimitReader(zip, bundle.MaxTreeBytes)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("has no Chart.yaml")
		}
		if err != nil {
			return nil, err
		}
		if folder, file := path.Split(path.Clean(h.Name)); file != "Chart.yaml" || strings.Count(folder, "/") != 1 {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(archive, maxChartFile+1))
		if err != nil {
			return nil, err
		}
		if len(data) > maxChartFile {
			return nil, fmt.Errorf("its Chart.yaml has more than %d bytes", maxChartFile)
		}
		if err := yamlvalues.Check(data); err != nil {
			return nil, fmt.Errorf("its Chart.yaml: %w", err)
		}
		return yaml.YAMLToJSON(data)
	}
}
