package airgap_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// Reports leave a site that has no network as one file. Whoever takes them verifies them; the file says nothing of trust.
// Export and Open carry bundles the other way.
func Example() {
	dir, err := os.MkdirTemp("", "airgap-")
	check(err)
	defer os.RemoveAll(dir)
	agent, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)

	// At the site.
	report, err := bundle.SealEnvelope("application/json", []byte(`{"state":"Compliant"}`), agent)
	check(err)
	var file bytes.Buffer
	check(airgap.WriteReports(&file, [][]byte{report}))
	medium := filepath.Join(dir, "reports.tar")
	check(os.WriteFile(medium, file.Bytes(), 0o600))

	// At the hub, which knows the agent's key.
	envelopes, err := airgap.ReadReports(medium)
	check(err)
	for _, e := range envelopes {
		body, _, err := bundle.OpenEnvelope("application/json", e, agent.Public())
		check(err)
		fmt.Println(string(body))
	}
	// Output: {"state":"Compliant"}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
