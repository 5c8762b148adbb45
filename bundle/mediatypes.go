package bundle

import (
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of wherry's content in registries, OCI layouts and DSSE envelopes.
const (
	// MediaTypeBundle is the artifactType of a bundle's manifest.
	MediaTypeBundle = "application/vnd.wherry.bundle.v1+json"
	// MediaTypeRelease is the config blob of a bundle: its release document.
	MediaTypeRelease = "application/vnd.wherry.release.v1+json"
	// MediaTypeTree is the bundle's first layer, the whole tree. It is the generic OCI layer type because
	// Flux takes the first layer and Argo CD accepts this type, so that both read a bundle as it is.
	MediaTypeTree = ocispec.MediaTypeImageLayerGzip
	// MediaTypeEnvironment is the artifactType and the config of an environment record.
	MediaTypeEnvironment = "application/vnd.wherry.environment.v1+json"
	// MediaTypeLedger is the first layer of an environment record; see package ledger.
	MediaTypeLedger = "application/vnd.wherry.ledger.v1+gzip"
	// MediaTypeTrust is the artifactType and the config of a trust document, and its DSSE payload type.
	MediaTypeTrust = "application/vnd.wherry.trust.v1+json"
	// MediaTypeSimpleSigning is the layer type of a cosign signature in the simple signing format.
	MediaTypeSimpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"

	// PayloadTypeReport and PayloadTypeAck are DSSE payload types.
	PayloadTypeReport = "application/vnd.wherry.report.v1+json"
	PayloadTypeAck    = "application/vnd.wherry.ack.v1+json"
	// PayloadTypeEnrollmentRequest and PayloadTypeEnrollment are DSSE payload types as well.
	PayloadTypeEnrollmentRequest = "application/vnd.wherry.enrolment-request.v1+json"
	PayloadTypeEnrollment        = "application/vnd.wherry.enrolment.v1+json"
)

// isNewer reports whether a media type is a later version of known, one of ours: they differ in the number alone.
func isNewer(mediaType, known string) bool {
	name, n := versionOf(mediaType)
	wanted, least := versionOf(known)
	return name == wanted && n > least
}

// versionOf splits "application/vnd.wherry.trust.v1+json" into the kind and the version 1. The version is 0 if the media
// type has none.
func versionOf(mediaType string) (kind string, version int) {
	head, suffix, _ := strings.Cut(mediaType, "+")
	i := strings.LastIndex(head, ".v")
	if i < 0 {
		return mediaType, 0
	}
	n, err := strconv.Atoi(head[i+len(".v"):])
	if err != nil || n < 0 {
		return mediaType, 0
	}
	return head[:i] + "+" + suffix, n
}

// Bounds on content that is read before, and while, it is verified. Sizes are in bytes.
const (
	// MaxManifestBytes bounds a manifest, a signature manifest and a signature payload.
	MaxManifestBytes = 64 << 10
	// MaxReleaseBytes bounds a release document, which also travels in its descriptor's data field.
	MaxReleaseBytes = 1 << 10
	// MaxEnvironmentBytes bounds an environment record: about 20,000 cluster types.
	MaxEnvironmentBytes = 4 << 20
	// MaxTrustBytes bounds a trust document in its envelope: two roles of maxRoleKeys keys. In a descriptor's
	// data field, a third larger, it still fits a manifest.
	MaxTrustBytes = 40 << 10
	// MaxFiles bounds the entries of a tree.
	MaxFiles = 100_000
	// MaxPathBytes bounds the name of one entry of a tree.
	MaxPathBytes = 512
	// MaxTreeBytes bounds an uncompressed tree.
	MaxTreeBytes = 2 << 30
	// MaxListBytes bounds the list of a tree's assignments, which is read into memory: some 100,000 of them.
	MaxListBytes = 64 << 20
	// MaxReportBytes bounds one report envelope.
	MaxReportBytes = 1 << 20
	// MaxEnrollmentBytes bounds the envelope of an enrollment, and of the request for one: 64 labels of 512 bytes
	// and three signatures.
	MaxEnrollmentBytes = 64 << 10
)

// LatestTag is the moving tag of releases that name every ring.
const LatestTag = "latest"

// RingTagPrefix begins the moving tags of rings.
const RingTagPrefix = "ring-"

// MovingTag returns the tag that agents in the given ring follow: LatestTag for an empty ring.
func MovingTag(ring string) string {
	if ring == "" {
		return LatestTag
	}
	return RingTagPrefix + ring
}
