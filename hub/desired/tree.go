package desired

import (
	"context"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
)

// readLists reads the assignments and artifacts of a tree from its layer, and nothing else into memory. All of the layer is
// checked against want, the signed content: the error is a *bundle.Refusal if it differs.
func readLists(ctx context.Context, src bundle.Source, layer ocispec.Descriptor, want bundle.Content) ([]bundle.Assignment, []bundle.Artifact, error) {
	body, err := src.Fetch(ctx, layer)
	if err != nil {
		return nil, nil, err
	}
	defer body.Close()
	lists := map[string][]byte{}
	u := bundle.Unpacker{
		Have: func(folder string) bool { return folder != bundle.MetaDir },
		Take: func(f bundle.File) error {
			if len(f.Data) > bundle.MaxListBytes {
				return bundle.Refuse(bundle.TooLarge, "file %s of the tree has %d bytes, at most %d are allowed", f.Path, len(f.Data), bundle.MaxListBytes)
			}
			if strings.HasPrefix(f.Path, bundle.MetaDir+"/") {
				lists[f.Path] = f.Data
			}
			return nil
		},
	}
	if err := u.Gzip(body, want); err != nil {
		return nil, nil, err
	}
	data, ok := lists[bundle.AssignmentsPath]
	if !ok {
		return nil, nil, bundle.Refuse(bundle.BadContent, "the tree has no %s", bundle.AssignmentsPath)
	}
	assignments, err := bundle.ParseAssignments(data)
	if err != nil {
		return nil, nil, err
	}
	artifacts, err := bundle.ParseArtifacts(lists[bundle.ArtifactsPath])
	return assignments, artifacts, err
}
