package zarf

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxRelease bounds a release when it is unpacked: an API server takes 1 MiB of it packed.
const maxRelease = 64 << 20

// revisions are the Secrets in which Helm keeps the revisions of a release, oldest first.
type revisions []*corev1.Secret

func readRevisions(ctx context.Context, c client.Client, rel release) (revisions, error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(rel.namespace), client.MatchingLabels{"owner": "helm", "name": rel.name}); err != nil {
		return nil, err
	}
	out := make(revisions, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	slices.SortFunc(out, func(a, b *corev1.Secret) int { return cmp.Compare(revision(a), revision(b)) })
	return out, nil
}

func revision(s *corev1.Secret) int {
	n, _ := strconv.Atoi(s.Labels["version"])
	return n
}

// pending returns the newest revision if Helm was interrupted at it, else nil.
func (rs revisions) pending() *corev1.Secret {
	if len(rs) == 0 || !strings.HasPrefix(rs[len(rs)-1].Labels["status"], "pending-") {
		return nil
	}
	return rs[len(rs)-1]
}

// deployed returns the newest revision that was deployed; nil if none was.
func (rs revisions) deployed() *corev1.Secret {
	for i := len(rs) - 1; i >= 0; i-- {
		if rs[i].Labels["status"] == "deployed" {
			return rs[i]
		}
	}
	return nil
}

// stored is a revision as Helm keeps it, with all the fields that it has.
type stored map[string]json.RawMessage

// unpack reads a revision, which is JSON in base64, mostly compressed.
func unpack(s *corev1.Secret) (stored, error) {
	packed, err := base64.StdEncoding.DecodeString(string(s.Data["release"]))
	if err != nil {
		return nil, err
	}
	var in io.Reader = bytes.NewReader(packed)
	if bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(in, maxRelease))
	if err != nil {
		return nil, err
	}
	var r stored
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("secret %s/%s is not a release of Helm's: %w", s.Namespace, s.Name, err)
	}
	return r, nil
}

// pack is unpack's other direction.
func (r stored) pack() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression) // as Helm does, so that it fits again
	if err != nil {
		return nil, err
	}
	_, _ = w.Write(data) // into memory
	if err := w.Close(); err != nil {
		return nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(packed.Bytes())), nil
}

// manifestOf returns the manifests of a revision, after all templates.
func manifestOf(s *corev1.Secret) (manifest string, err error) {
	r, err := unpack(s)
	if err == nil && r["manifest"] != nil {
		err = json.Unmarshal(r["manifest"], &manifest)
	}
	return manifest, err
}

// failPending marks revisions at which Helm was cut off as failed, as Helm does itself with those that it gives up. It goes
// on from there: it compares the next one with the last that was deployed, or where none is, as when it was cut off
// between its two last writes, with the failed one. What a failed one alone has brought, dropLeftovers deletes.
//
// No deploy of the package may be running.
func failPending(ctx context.Context, c client.Client, def *definition) error {
	for _, comp := range def.selected() {
		for _, rel := range releases(def.Name, comp) {
			revs, err := readRevisions(ctx, c, rel)
			if err != nil {
				return err
			}
			if pending := revs.pending(); pending != nil {
				if err := fail(ctx, c, pending); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fail marks a revision as failed, where Helm looks for it: in a label, and in what it has stored.
func fail(ctx context.Context, c client.Client, s *corev1.Secret) error {
	const failed = "failed"
	r, err := unpack(s)
	if err != nil {
		return err
	}
	var info map[string]json.RawMessage
	if err := json.Unmarshal(r["info"], &info); err != nil {
		return fmt.Errorf("secret %s/%s is not a release of Helm's: %w", s.Namespace, s.Name, err)
	}
	if info == nil {
		return fmt.Errorf("secret %s/%s is not a release of Helm's: it has no info", s.Namespace, s.Name)
	}
	info["status"] = json.RawMessage(`"` + failed + `"`)
	if r["info"], err = json.Marshal(info); err != nil {
		return err
	}
	s.Labels["status"] = failed
	if s.Data["release"], err = r.pack(); err != nil {
		return err
	}
	return c.Update(ctx, s)
}
