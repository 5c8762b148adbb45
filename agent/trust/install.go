package trust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// Change is the result of Install: the documents in force before and after it, nil for none.
type Change struct {
	Before, After *bundle.TrustDocument
}

// Install adds the documents in envelopes, in their order. The caller vouches for version 1, which is
// accepted as it is; later versions have to be signed by the roots before them. A version that is installed
// already is skipped if it is the same document. With version 1, pinned keys no longer count. Each version is
// on disk before the next one is verified; the change is valid even with an error. The error is a
// *bundle.Refusal if a document is not trusted, is not the next one, differs from the installed one,
// or is for another platform.
func (s *Store) Install(platform string, envelopes ...[]byte) (c Change, err error) {
	c.Before = s.InForce()
	for _, e := range envelopes {
		if err = s.install(platform, e); err != nil {
			break
		}
	}
	c.After = s.InForce()
	return c, err
}

// InForce returns the newest document, or nil.
func (s *Store) InForce() *bundle.TrustDocument {
	chain := s.Chain()
	if len(chain) == 0 {
		return nil
	}
	d := chain.Current()
	return &d
}

func (s *Store) install(platform string, envelope []byte) error {
	d, _, err := bundle.OpenTrust(envelope)
	if err != nil {
		return err
	}
	if err := d.Belongs(platform); err != nil {
		return err
	}
	chain := s.Chain()
	if n := int64(len(chain)); d.Version <= n {
		return same(chain[d.Version-1].Document, d)
	} else if d.Version > n+1 {
		return bundle.Refuse(bundle.TrustDocumentRejected, "this is version %d of the trust document, and the next one here is %d: versions are installed in their order", d.Version, n+1)
	}
	return s.believe(d.Version, envelope)
}

// Extend is Install for a document that no person vouches for: it never accepts version 1, whose roots are not
// verified.
func (s *Store) Extend(platform string, envelope []byte) error {
	if len(s.Chain()) == 0 {
		return &bundle.Refusal{Reason: bundle.TrustDocumentRejected, Message: "this agent has no trust document to begin with"}
	}
	return s.install(platform, envelope)
}

// same compares the content of documents. Further signatures are no difference.
func same(installed, d bundle.TrustDocument) error {
	a, err1 := installed.Marshal()
	b, err2 := d.Marshal()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return bundle.Refuse(bundle.TrustDocumentRejected, "another version %d of the trust document is installed", d.Version)
	}
	return nil
}

// ReadFile returns the envelopes in the file at path: that of one version, or all versions of a file of
// airgap/export. It does not verify them. The error wraps airgap.ErrFormat if the file is neither.
func ReadFile(ctx context.Context, path string) ([][]byte, error) {
	f, err := diskfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, bundle.MaxTrustBytes+1))
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return [][]byte{data}, nil
	}
	layout, err := archive.OpenFile(f)
	if err != nil {
		return nil, err
	}
	documents, err := oci.ArchiveOf(path, layout).Repository(bundle.TrustRepository)
	if err != nil {
		return nil, err
	}
	var envelopes [][]byte
	for version := int64(1); ; version++ {
		envelope, err := bundle.FetchTrust(ctx, documents, version)
		switch {
		case err == nil && version > bundle.MaxTrustVersions: // they may all be one blob
			return nil, fmt.Errorf("%s: %w: it holds more than %d versions of the trust document", path, airgap.ErrFormat, bundle.MaxTrustVersions)
		case err == nil:
			envelopes = append(envelopes, envelope)
		case !errors.Is(err, errdef.ErrNotFound):
			return nil, fmt.Errorf("%s: %w", path, err)
		case len(envelopes) == 0:
			return nil, fmt.Errorf("%s: %w: it holds no trust document", path, airgap.ErrFormat)
		default:
			return envelopes, nil
		}
	}
}
