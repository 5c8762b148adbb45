package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxName bounds each name before it is fitted into namespaces.
const maxName = 40

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:2])
}

// slug returns a text as a DNS label: small letters, digits and hyphens.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), "-")
	if name == "" {
		return "x-" + shortHash(s)
	}
	if len(name) > maxName {
		return shorten(name, maxName)
	}
	return name
}

// shorten returns a name of at most n bytes, with a hash of the whole at its end.
func shorten(name string, n int) string {
	if len(name) <= n {
		return name
	}
	return strings.TrimRight(name[:n-5], "-") + "-" + shortHash(name)
}

// namer gives unique names.
type namer map[string]bool

// name returns a valid name for a text, which is the text itself where that can be.
func (n namer) name(text string) string {
	name := slug(text)
	for unique := name; ; unique = shorten(name, maxName-5) + "-" + shortHash(unique+text) {
		if !n[unique] {
			n[unique] = true
			return unique
		}
	}
}

// labelValue returns a text as the value of a label. Different texts stay different.
func labelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	return slug(text) + "-" + shortHash(text)
}

// reservedLabels are labels of targets that the scheduler sets, and the one that names imported cluster types.
var reservedLabels = []string{"workload", "workspace", typeLabel, variantLabel, "kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace"}

// labelKey returns a text as the key of a label.
func labelKey(text string) string {
	for _, reserved := range reservedLabels {
		if text == reserved {
			return "imported-" + slug(text)
		}
	}
	if len(validation.IsQualifiedName(text)) == 0 {
		return text
	}
	return slug(text) + "-" + shortHash(text)
}
