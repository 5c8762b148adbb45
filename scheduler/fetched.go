package scheduler

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// ManifestsKeys are the keys of a target's manifests that may hold their location, in this order.
var ManifestsKeys = [...]string{"repo", "url", "repoURL"}

// DirectoryAdapter fetches OCI artifacts that the target's manifests name, and puts them beside the files.
const DirectoryAdapter = "directory"

var ociRepository = regexp.MustCompile(`^oci://[^/@\s]+/[^@\s]+$`)

// checkFetched returns an error if the adapter directory cannot fetch a target's manifests. A moved tag must not change
// the files of a host, so it requires a digest, or pinning, which resolves one.
func checkFetched(ct *kinds.ClusterType, t *target, adapter string) error {
	m := t.Spec.Manifests
	if adapter != DirectoryAdapter || m["chart"] != "" {
		return nil
	}
	for _, key := range ManifestsKeys {
		repo, pinned, hasDigest := strings.Cut(m[key], "@")
		isOCI := strings.HasPrefix(repo, "oci://")
		if repo == "" || !isOCI && m["type"] != "oci" {
			continue
		}
		wrong := func(hint, format string, args ...any) error {
			return finding.Errorf(finding.CodeNoDigest, t.At, hint, "%s: "+format, append([]any{t}, args...)...)
		}
		if !ociRepository.MatchString(repo) {
			return wrong("write oci://HOST/REPOSITORY", "manifests.%s: %q names no repository of a registry", key, repo)
		}
		d := cmp.Or(pinned, m["digest"])
		switch {
		case hasDigest || d != "":
			if err := digest.Digest(d).Validate(); err != nil {
				return wrong("write sha256: and 64 hexadecimal digits", "manifests: %q is not a digest", d)
			}
		case ct.Metadata.Annotations[PinAnnotation].Value != PinCommit:
			return wrong("add digest: sha256:…, or "+PinAnnotation+": "+PinCommit+" to the ClusterType",
				"manifests.%s: the adapter directory fetches %s, and only by digest", key, repo)
		}
	}
	return nil
}
