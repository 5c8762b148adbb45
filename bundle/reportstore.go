package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// In a registry, each cluster has one repository for reports. The reports of one push are an artifact with an empty
// config and one layer, which holds their envelopes, one a line. The hub's acknowledgement has the same form.
const (
	// ReportsRepository is the common first part of those repositories' names.
	ReportsRepository = "reports"
	// AckTag names the hub's last acknowledgement.
	AckTag = "ack"
	// MaxStoredReports bounds the envelopes of one artifact.
	MaxStoredReports = 500
	// MaxStoredBytes bounds them together: one of the largest size, or many small ones.
	MaxStoredBytes = MaxReportBytes + 4<<10

	mediaTypeLines = "application/x-ndjson"
)

// uidComponent matches a uid that can be part of a repository's name as it is.
var uidComponent = lazyregexp.New(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*$`)

// ReportRepository returns the repository, below a registry's prefix, for the reports of the cluster uid. A uid that
// cannot be part of a name is replaced by its digest.
func ReportRepository(uid string) string {
	if len(uid) <= 128 && uidComponent.MatchString(uid) {
		return ReportsRepository + "/" + uid
	}
	sum := sha256.Sum256([]byte(uid))
	return ReportsRepository + "/x-" + hex.EncodeToString(sum[:16])
}

// ReportTag returns the tag of a report with that incarnation and seq, which is also the tag of the artifact whose newest
// report it is.
func ReportTag(incarnation, seq int64) string { return fmt.Sprintf("r%d-%d", incarnation, seq) }

// reportTag matches a ReportTag. Part of a digest may follow it, where two artifacts claim the same tag.
var reportTag = lazyregexp.New(`^r([0-9]{1,18})-([0-9]{1,18})(-[0-9a-f]{12})?$`)

// ParseReportTag parses the output of ReportTag. Plain is true if no part of a digest follows; ok is false for another
// tag.
func ParseReportTag(tag string) (incarnation, seq int64, plain, ok bool) {
	m := reportTag.FindStringSubmatch(tag)
	if m == nil {
		return 0, 0, false, false
	}
	incarnation, err1 := strconv.ParseInt(m[1], 10, 64)
	seq, err2 := strconv.ParseInt(m[2], 10, 64)
	return incarnation, seq, m[3] == "", err1 == nil && err2 == nil
}

// StoredReports returns the artifact for envelopes of reports, and StoredAcks the one for acknowledgements: blobs in the
// order in which to push them, the manifest last. The same envelopes make the same artifact.
func StoredReports(envelopes [][]byte) ([]Blob, error) { return stored(PayloadTypeReport, envelopes) }

// StoredAcks is described with StoredReports.
func StoredAcks(envelopes [][]byte) ([]Blob, error) { return stored(PayloadTypeAck, envelopes) }

func stored(artifactType string, envelopes [][]byte) ([]Blob, error) {
	var lines bytes.Buffer
	for _, e := range envelopes {
		if err := json.Compact(&lines, e); err != nil {
			return nil, fmt.Errorf("envelope: %w", err)
		}
		lines.WriteByte('\n')
	}
	config, layer := NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}")), NewBlob(mediaTypeLines, lines.Bytes())
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	})
	return []Blob{config, layer, NewBlob(ocispec.MediaTypeImageManifest, data)}, err
}

// FetchReports returns the envelopes of an artifact that StoredReports made, and FetchAcks those of StoredAcks.
// Their signatures are not checked. The error is a *Refusal if the artifact is of another kind or too large.
func FetchReports(ctx context.Context, src Source, manifest ocispec.Descriptor) ([][]byte, error) {
	return fetchStored(ctx, src, manifest, PayloadTypeReport)
}

// FetchAcks is described with FetchReports.
func FetchAcks(ctx context.Context, src Source, manifest ocispec.Descriptor) ([][]byte, error) {
	return fetchStored(ctx, src, manifest, PayloadTypeAck)
}

func fetchStored(ctx context.Context, src Source, manifest ocispec.Descriptor, artifactType string) ([][]byte, error) {
	data, err := ReadBlob(ctx, src, manifest, MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, Refuse(BadContent, "manifest %s: %v", manifest.Digest, err)
	}
	if m.ArtifactType != artifactType || len(m.Layers) != 1 {
		return nil, Refuse(BadContent, "manifest %s holds %q in %d layers, want one of %s", manifest.Digest, m.ArtifactType, len(m.Layers), artifactType)
	}
	lines, err := ReadBlob(ctx, src, m.Layers[0], MaxStoredBytes)
	if err != nil {
		return nil, err
	}
	var envelopes [][]byte
	for line := range bytes.Lines(lines) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(envelopes) == MaxStoredReports {
			return nil, Refuse(TooLarge, "manifest %s holds more than %d envelopes", manifest.Digest, MaxStoredReports)
		}
		envelopes = append(envelopes, line)
	}
	return envelopes, nil
}
