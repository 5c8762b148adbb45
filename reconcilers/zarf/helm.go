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

// manifestOf returns the manifests of a revision, after all templates.
func manifestOf(s *corev1.Secret) (string, error) {
	packed, err := base64.StdEncoding.DecodeString(string(s.Data["release"]))
	if err != nil {
		return "", err
	}
	var in io.Reader = bytes.NewReader(packed)
	if bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			return "", err
		}
	}
	data, err := io.ReadAll(io.LimitReader(in, maxRelease))
	if err != nil {
		return "", err
	}
	var content struct {
		Manifest string `json:"manifest"`
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return "", fmt.Errorf("secret %s/%s is not a release of Helm's: %w", s.Namespace, s.Name, err)
	}
	return content.Manifest, nil
}

// clearPending makes interrupted releases deployable again, and reports whether there was one. Helm cannot
// recover from an interrupted first install: clearPending deletes its Secret, and the next install adopts the objects,
// which name the release. After an interrupted upgrade, the next one fails and is rolled back by Zarf, and the one after
// that succeeds.
//
// No deploy of the package may be running.
func clearPending(ctx context.Context, c client.Client, def *definition) (retry bool, err error) {
	for _, comp := range def.selected() {
		for _, rel := range releases(def.Name, comp) {
			revs, err := readRevisions(ctx, c, rel)
			if err != nil {
				return false, err
			}
			pending := revs.pending()
			switch {
			case pending == nil:
			case revs.deployed() != nil:
				retry = true
			default:
				if err := client.IgnoreNotFound(c.Delete(ctx, pending, client.Preconditions{UID: &pending.UID})); err != nil {
					return false, err
				}
			}
		}
	}
	return retry, nil
}
