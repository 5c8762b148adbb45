package browser

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hostile are texts that somebody could want a page to take for more than text.
var hostile = []string{
	`"><script>owned=1</script>`,
	`'"><img src=x onerror=owned=1>`,
	`javascript:owned=1//</title></textarea><svg onload=owned=1>`,
	`{{.}}<a href="javascript:owned=1" autofocus onfocus=owned=1>`,
	`?environment=x&asOf=24h#../../..`,
	strings.Repeat("long", 60),
}

// Hostile text of clusters and people stays text on each page: it runs nothing, makes no element, leads nowhere else and breaks no link.
func TestHostileText(t *testing.T) {
	folder := t.TempDir()
	hub := serve(t, folder, "--data", "data", "--anonymous")
	token, err := os.ReadFile(filepath.Join(folder, "data", "admin.token"))
	require.NoError(t, err)
	p := newTab(t, chromium(t), hub, strings.TrimSpace(string(token)))
	for i, text := range hostile {
		report(p, i, text)
		p.ask("/v1/decisions", map[string]any{"action": "pause", "platform": text, "environment": text, "reason": text})
	}
	seen := ""
	p.each(func(path string) {
		require.Empty(p, script[[]string](p, `[...document.querySelectorAll("script:not([src='/keys.js'], [src='/live.js']), img, svg:not(.bar, .logo), iframe, object, embed, base, link:not([href='/style.css'], [href='/icon.svg']), meta[http-equiv]")]
			.concat([...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => a.name.startsWith("on") || a.name === "style" || a.name === "autofocus")))
			.filter(e => !location.pathname.startsWith("/docs/")).map(e => e.outerHTML)`), path)
		require.False(p, script[bool](p, `"owned" in window`), path)
		p.fits(path)
		seen += p.text("main")
	}, "/", "/search?q=owned", "/search?q=long")
	for _, text := range hostile {
		require.Contains(p, seen, text, "the pages show it")
	}
}

// report registers a cluster whose names, labels and messages are a text, and sends a report of it.
func report(p tab, number int, text string) {
	p.Helper()
	seed := sha256.Sum256([]byte(text))
	key := ed25519.NewKeyFromSeed(seed[:])
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(p, err)
	id := sha256.Sum256(der)
	cluster := map[string]any{
		"uid": fmt.Sprint("uid-", number), "name": fmt.Sprint("plant-", number, strings.Repeat("7", 40*number)), "platform": text, "type": text, "environment": text, "ring": text,
		"labels": map[string]string{text: text},
	}
	now := time.Now().UTC()
	item := map[string]any{
		"assignment": text, "workspace": text, "application": text, "workload": text, "target": text, "adapter": text, "state": "failed", "reason": text, "message": text,
		"since": now, "version": text, "revision": text, "failures": 3,
	}
	body, err := json.Marshal(map[string]any{
		"schema": 1, "cluster": cluster, "agent": map[string]any{"version": text, "incarnation": 1, "seq": 1, "instance": text}, "kind": "snapshot", "occurredAt": now,
		"state": "failed", "reason": text, "message": text, "items": []any{item},
	})
	require.NoError(p, err)
	const payloadType = "application/vnd.wherry.report.v1+json"
	signature := ed25519.Sign(key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(body), body))
	cluster["key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	p.ask("/v1/clusters", cluster)
	receipt := p.ask("/v1/clusters/"+fmt.Sprint("uid-", number)+"/reports", map[string]any{"reports": []any{map[string]any{
		"payloadType": payloadType, "payload": base64.StdEncoding.EncodeToString(body),
		"signatures": []any{map[string]any{"keyid": hex.EncodeToString(id[:]), "sig": base64.StdEncoding.EncodeToString(signature)}},
	}}})
	require.Contains(p, receipt, `"accepted":1`)
}
