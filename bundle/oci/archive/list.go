package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Kind is what a file in a folder holds, by the names in its index, which is not signed.
type Kind string

// The kinds of files.
const (
	KindPackage Kind = "package" // bundles, or a site package
	KindReports Kind = "reports"
	KindAcks    Kind = "acknowledgements"
	KindTrust   Kind = "trust documents"
	KindOther   Kind = "other content" // an OCI layout of others
	// KindUnknown is a file whose index cannot be read.
	KindUnknown Kind = "not readable"
)

// Listed is a file, or a file in parts, in a folder.
type Listed struct {
	// Name is the path of the file, or of the manifest of its parts.
	Name string
	Kind Kind
	// Err is why the kind is unknown, or why a package cannot be opened; nil for others. It does not name the file.
	Err error
}

// maxListed bounds the files that are looked at in one folder.
const maxListed = 1000

// List lists what a folder holds: files named *.tar, and files in parts, by their manifest. Hidden files, which some
// systems write to each medium, are passed over.
func List(fsys FS, dir string) (all []Listed, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	manifests := map[string]bool{}
	for _, e := range entries {
		if isManifest(e.Name()) {
			manifests[strings.ToLower(e.Name())] = true
		}
	}
	told := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if len(all) == maxListed {
			return nil, fmt.Errorf("%s holds more than %d files", dir, maxListed)
		}
		path := filepath.Join(dir, e.Name())
		lower := strings.ToLower(e.Name())
		whole, part := cutPart(lower)
		switch {
		case isManifest(lower):
			all = append(all, Listed{Name: path, Kind: KindPackage})
		case strings.HasSuffix(lower, ".tar"):
			kind, err := kindOf(fsys, path)
			all = append(all, Listed{path, kind, err})
		case part && strings.HasSuffix(whole, ".tar") && !manifests[whole+PartsSuffix] && !told[whole]:
			told[whole] = true
			all = append(all, Listed{path, KindUnknown, &MissingPartsError{Name: whole, Missing: []string{whole + PartsSuffix}}})
		case strings.HasSuffix(lower, ".tar.gz"), strings.HasSuffix(lower, ".tgz"), strings.HasSuffix(lower, ".tar.zst"):
			all = append(all, Listed{path, KindUnknown, fmt.Errorf("%w: it is compressed", ErrFormat)})
		}
	}
	return all, nil
}

func kindOf(fsys FS, path string) (Kind, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return KindUnknown, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return KindUnknown, err
	}
	index, err := ReadIndex(f, info.Size())
	if err != nil {
		return KindUnknown, err
	}
	return KindOf(index), nil
}

// KindOf returns the kind of a file with this index.
func KindOf(index ocispec.Index) Kind {
	kind := KindOther
	for _, d := range index.Manifests {
		switch name := d.Annotations[ocispec.AnnotationRefName]; {
		case name == "site", strings.HasPrefix(name, "bundles/"):
			return KindPackage
		case name == "reports":
			kind = KindReports
		case name == "acks":
			kind = KindAcks
		case strings.HasPrefix(name, "trust/"):
			kind = KindTrust
		}
	}
	return kind
}

// ReadIndex reads the index of a layout in a tar, without the rest if the index is at the beginning.
func ReadIndex(from io.ReaderAt, size int64) (index ocispec.Index, err error) {
	if remedy := Compressed(from); remedy != "" {
		return index, fmt.Errorf("%w: %s", ErrFormat, remedy)
	}
	tr := tar.NewReader(io.NewSectionReader(from, 0, size))
	for range 4 { // oci-layout, and perhaps folders
		h, err := tr.Next()
		if err != nil {
			break
		}
		if name, ok := EntryName(h); ok && name == ocispec.ImageIndexFile && h.Size <= MaxIndexBytes {
			data, err := io.ReadAll(tr)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = HeaderError(err)
			}
			if err != nil {
				return index, err
			}
			return ParseIndex(data)
		}
	}
	l, err := Open(from, size)
	if err != nil {
		return index, err
	}
	return l.index, nil
}
