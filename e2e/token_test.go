//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// A key in a PKCS#11 token, which is SoftHSM's, signs by way of the real cosign.

const (
	tokenPIN = "271828"
	wrongPIN = "161803"
)

func TestAKeyInATokenSignsReleases(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cosign, err := harness.Tool("cosign")
	require.NoError(t, err)
	signer := "cosign:" + s.tokenKey()
	publish := func(signer string) ran {
		return s.wherry("publish", "platform", "--environment", s.environment, "--workload", "shop=workloads/shop",
			"--to", "oci://"+s.prefix, "--signer", signer, "--cosign", cosign)
	}

	refused := publish(signer + "&pin-value=" + wrongPIN)
	require.Equal(t, 3, refused.code)
	require.Regexp(t, `^wherry: --signer: public key of pkcs11:.*: cosign: .*CKR_PIN_INCORRECT\nhint: are the token and the key there\? The PIN comes from .*\n$`, refused.stderr)
	require.NotContains(t, refused.stderr, wrongPIN)
	nobody := publish(signer)
	require.Equal(t, 3, nobody.code, "there is no terminal to ask at")
	require.Contains(t, nobody.stderr, "The PIN comes from ")
	require.Equal(t, 3, s.wherry("verify", "oci://"+s.prefix+"/bundles/"+s.environment+"/"+clusterType, "--key", "cosign.pub").code, "nothing is there")

	published := publish(signer + "&pin-value=" + tokenPIN)
	require.Zero(t, published.code, published.stderr)
	require.NotContains(t, published.stdout+published.stderr, tokenPIN)
	reference := s.prefix + "/bundles/" + s.environment + "/" + clusterType + ":latest"
	require.Zero(t, s.wherry("verify", "oci://"+reference, "--key", "cosign.pub").code)
	verified := s.cosignVerify("cosign.pub", reference)
	require.Zero(t, verified.code, verified.stderr)
	s.once(0)
	require.Equal(t, bundle.Compliant, s.status().State)

	s.env = append(s.env, "COSIGN_PKCS11_PIN="+tokenPIN)
	again := publish(signer)
	require.Zero(t, again.code, again.stderr)
	require.Contains(t, again.stderr, "unchanged, nothing was pushed", "it knows its own releases again")
}

// tokenKey makes a token with a key in it, whose public half is cosign.pub, and returns the key's URI.
func (s *site) tokenKey() string {
	s.t.Helper()
	util, err := harness.Tool("softhsm2-util")
	if err != nil {
		util, err = exec.LookPath("softhsm2-util")
	}
	require.NoError(s.t, err)
	module := softHSM(s.t, util)
	require.NoError(s.t, os.Mkdir(s.path("tokens"), 0o700))
	configuration := s.path("softhsm2.conf")
	require.NoError(s.t, os.WriteFile(configuration, fmt.Appendf(nil, "directories.tokendir = %s\n", s.path("tokens")), 0o600))
	s.env = append(s.env, "SOFTHSM2_CONF="+configuration)

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(s.t, err)
	s.writePEM("imported.pem", "PRIVATE KEY", private, x509.MarshalPKCS8PrivateKey)
	s.writePEM("cosign.pub", "PUBLIC KEY", private.Public(), x509.MarshalPKIXPublicKey)
	for _, args := range [][]string{
		{"--init-token", "--free", "--label", "release", "--so-pin", "a person's", "--pin", tokenPIN},
		{"--import", "imported.pem", "--token", "release", "--label", "signing", "--id", "01", "--pin", tokenPIN},
	} {
		r := s.execute(util, append([]string{"--module", module}, args...)...)
		require.Zero(s.t, r.code)
	}
	require.NoError(s.t, os.Remove(s.path("imported.pem")))
	require.NoError(s.t, os.Remove(s.path("cosign.key")))
	return "pkcs11:token=release;object=signing?module-path=" + module
}

func (s *site) writePEM(name, kind string, key any, marshal func(any) ([]byte, error)) {
	s.t.Helper()
	der, err := marshal(key)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// softHSM returns the library that is the token: beside an unpacked program, or where systems install it.
func softHSM(t *testing.T, util string) string {
	t.Helper()
	prefix := filepath.Dir(filepath.Dir(util))
	for _, pattern := range []string{
		filepath.Join(filepath.Dir(util), "lib", "libsofthsm2.so"),
		filepath.Join(prefix, "lib*", "softhsm", "libsofthsm2.so"), filepath.Join(prefix, "lib", "*", "softhsm", "libsofthsm2.so"),
	} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		if len(found) > 0 {
			return found[0]
		}
	}
	require.FailNow(t, "libsofthsm2.so is not installed", "beside %s", util)
	return ""
}
