package publisher

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// push sends all parts of a. Nothing of it is visible before settle, except the signature, which is found
// by the manifest's digest alone.
func push(ctx context.Context, repo oci.Target, a artifact) error {
	for _, b := range append(a.blobs, a.manifest) {
		if err := releases.PushBlob(ctx, repo, b); err != nil {
			return err
		}
	}
	return pushSignatures(ctx, repo, a.signed, bundle.SignatureTag(a.manifest.Descriptor.Digest))
}
