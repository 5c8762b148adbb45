package archive

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

const (
	// PartsSuffix follows the name of a file, in the name of the manifest of its parts.
	PartsSuffix = ".parts.json"
	// SumsSuffix follows the name of a file, in the name of the file by which "sha256sum -c" compares its parts.
	SumsSuffix = ".sha256"
	// PartsSchema is the version of that manifest that this code writes.
	PartsSchema = 1
	// MaxParts bounds the parts of a file: their names end in .001 to .999.
	MaxParts = 999
	// MaxPartsBytes bounds the manifest.
	MaxPartsBytes = 1 << 20
)

// Parts is the manifest of a file that is cut into parts: NAME.parts.json.
type Parts struct {
	Schema int `json:"schema"`
	// Name is the name of the whole file, without a folder.
	Name string `json:"name"`
	// Bytes and Digest are those of the whole file.
	Bytes  int64         `json:"bytes"`
	Digest digest.Digest `json:"digest"`
	// Parts are in the order in which they make up the file.
	Parts []Part `json:"parts"`
}

// Part is one part of a file.
type Part struct {
	Name   string        `json:"name"` // without a folder
	Bytes  int64         `json:"bytes"`
	Digest digest.Digest `json:"digest"`
}

// PartName is the name of part n of a file, from 1 on.
func PartName(name string, n int) string { return fmt.Sprintf("%s.%03d", name, n) }

var partSuffix = lazyregexp.New(`\.[0-9]{3}$`)

// cutPart returns the name of the whole file if name is that of a part.
func cutPart(name string) (whole string, ok bool) {
	at := partSuffix.FindStringIndex(name)
	if at == nil || at[0] == 0 {
		return name, false
	}
	return name[:at[0]], true
}

// Marshal returns the document.
func (p Parts) Marshal() ([]byte, error) {
	p.Schema = PartsSchema
	data, err := json.MarshalIndent(p, "", "  ")
	return append(data, '\n'), err
}

// ParseParts reads and checks a manifest. The error wraps ErrFormat.
func ParseParts(data []byte) (p Parts, err error) {
	bad := func(format string, args ...any) (Parts, error) {
		return Parts{}, fmt.Errorf("%w: manifest of parts: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if len(data) > MaxPartsBytes {
		return bad("it has %d bytes, at most %d are allowed", len(data), MaxPartsBytes)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return bad("%v", err)
	}
	if p.Schema < 1 || p.Schema > PartsSchema {
		return bad("version %d is not known here, only up to %d: use a newer wherry", p.Schema, PartsSchema)
	}
	if len(p.Parts) == 0 || len(p.Parts) > MaxParts {
		return bad("it names %d parts, 1 to %d are allowed", len(p.Parts), MaxParts)
	}
	if !isFileName(p.Name) || !isDigest(p.Digest) {
		return bad("it names no file with its digest")
	}
	left, seen := p.Bytes, map[string]bool{}
	for _, part := range p.Parts {
		key := strings.ToLower(part.Name)
		switch {
		case !isFileName(part.Name) || !isDigest(part.Digest) || part.Bytes <= 0:
			return bad("%.100q is no part with a size and a digest", part.Name)
		case seen[key]:
			return bad("it names %.100q twice", part.Name)
		case part.Bytes > left:
			return bad("the parts are larger than the file of %d bytes", p.Bytes)
		}
		seen[key], left = true, left-part.Bytes
	}
	if left != 0 || p.Bytes == math.MaxInt64 {
		return bad("the parts are smaller than the file of %d bytes", p.Bytes)
	}
	return p, nil
}

// isFileName reports whether name is that of a file without a folder, and fit for a message.
func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r < ' ' || r == 0x7f || strings.ContainsRune(`/\:*?"<>|`, r) || r == '\uFFFD'
		})
}

func isDigest(d digest.Digest) bool { return d.Validate() == nil && d.Algorithm() == digest.SHA256 }
