package keys

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/usage"
)

const (
	// cosignTimeout bounds one run of cosign: a key service that is far away answers within seconds, and
	// a token that waits to be touched, within a minute.
	cosignTimeout = 2 * time.Minute
	// maxCosignOutput bounds what a run of cosign may say: a signature or a public key, and its messages.
	maxCosignOutput = 64 << 10
	// maxCosignMessage bounds what an error repeats of that, in bytes.
	maxCosignMessage = 1 << 10
	// PINVariable and PasswordVariable name the environment variables by which cosign takes secrets.
	PINVariable      = "COSIGN_PKCS11_PIN"
	PasswordVariable = "COSIGN_PASSWORD"
)

// CosignOptions configures runs of cosign. The zero value runs the cosign on PATH, with no PIN but the
// environment's.
type CosignOptions struct {
	// Program is the path of cosign 2.6 or a later 2.x; for PKCS#11, one that was built with the tag pkcs11key.
	Program string
	// PIN opens a PKCS#11 token. Empty is that in the URI, else that in COSIGN_PKCS11_PIN.
	PIN string
}

// ErrNoCosign is wrapped by OpenCosign's error when there is no such program.
var ErrNoCosign = errors.New("cosign cannot be run")

// OpenCosign returns the key that cosign knows by uri, such as pkcs11:token=release;object=key?module-path=…
// or awskms:///alias/release. The private half stays where it is: cosign is run once here, for the public
// half, and once for each signature, until ctx ends. No error has a PIN in it.
func OpenCosign(ctx context.Context, uri string, opts CosignOptions) (*Key, error) {
	c, err := newCosign(ctx, uri, opts)
	if err != nil {
		return nil, err
	}
	out, err := c.run(ctx, nil, "public-key", "--key", c.uri)
	if err != nil {
		return nil, fmt.Errorf("public key of %s: %w", c.name, err)
	}
	keys, err := bundle.ParsePublicKeys(out)
	if err != nil || len(keys) != 1 {
		return nil, fmt.Errorf("public key of %s: what cosign printed is not one public key", c.name)
	}
	key, err := newKey(c, keys[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if c.verifier, err = signature.LoadVerifier(keys[0], crypto.SHA256); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return key, nil
}

// cosignProgram signs by running cosign.
type cosignProgram struct {
	ctx      context.Context // signature.Signer has no room for one
	program  string
	uri, pin string
	name     string // the URI as it may be shown
	verifier signature.Verifier
	signing  sync.Mutex
}

var cosignURI = lazyregexp.New(`^[a-z][a-z0-9+.-]*:`)

func newCosign(ctx context.Context, uri string, opts CosignOptions) (*cosignProgram, error) {
	if !cosignURI.MatchString(uri) {
		return nil, usage.Errorf("%q is not a URI of a key, such as pkcs11:… or awskms://…", uri)
	}
	c := &cosignProgram{ctx: ctx, uri: uri, name: uri, pin: opts.PIN}
	if pin, ok := PINInURI(uri); ok {
		// Arguments are there for everybody to see, and an environment is not.
		c.uri, c.pin = withoutPIN(uri), cmp.Or(opts.PIN, pin)
		c.name = c.uri
	}
	if u, err := url.Parse(uri); err == nil && u.User != nil {
		c.name = u.Redacted()
	}
	c.pin = cmp.Or(c.pin, os.Getenv(PINVariable))
	var err error
	if c.program, err = exec.LookPath(cmp.Or(opts.Program, "cosign")); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCosign, err)
	}
	return c, nil
}

var pinValue = lazyregexp.New(`([?&;])pin-value=([^&;]*)`)

// PINInURI returns the PIN that a URI of PKCS#11 gives as pin-value, which is not empty where ok.
func PINInURI(uri string) (pin string, ok bool) {
	m := pinValue.FindStringSubmatch(uri)
	if m == nil || !strings.HasPrefix(uri, "pkcs11:") {
		return "", false
	}
	pin, err := url.QueryUnescape(m[2])
	if err != nil {
		pin = m[2]
	}
	return pin, pin != ""
}

func withoutPIN(uri string) string {
	uri = pinValue.ReplaceAllString(uri, "$1")
	return strings.TrimRight(strings.NewReplacer("?&", "?", "?;", "?", "&&", "&", ";;", ";").Replace(uri), "?&;")
}

// PublicKey is a part of signature.Signer.
func (c *cosignProgram) PublicKey(opts ...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return c.verifier.PublicKey(opts...)
}

// SignMessage is a part of signature.Signer. What cosign answers is verified, so that nothing is released
// with a signature that is of another key, or none.
func (c *cosignProgram) SignMessage(message io.Reader, _ ...signature.SignOption) ([]byte, error) {
	data, err := io.ReadAll(message)
	if err != nil {
		return nil, err
	}
	c.signing.Lock() // a token may have one session only
	defer c.signing.Unlock()
	// Neither a log of signatures nor a key service of Sigstore is asked, whatever this cosign would do by itself.
	out, err := c.run(c.ctx, data, "sign-blob", "--yes", "--tlog-upload=false", "--new-bundle-format=false", "--use-signing-config=false",
		"--key", c.uri, "-")
	if err != nil {
		return nil, fmt.Errorf("sign with %s: %w", c.name, err)
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(out)))
	if err != nil || len(sig) == 0 {
		return nil, fmt.Errorf("sign with %s: what cosign printed is not a signature", c.name)
	}
	if err := c.verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("sign with %s: cosign's signature is not by the key that it named: %w", c.name, err)
	}
	return sig, nil
}

// run returns what cosign prints.
func (c *cosignProgram) run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, cosignTimeout)
	defer cancel()
	cmd := exec.Command(c.program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &child.Head{W: &stdout, Left: maxCosignOutput + 1}, &child.Head{W: &stderr, Left: maxCosignOutput}
	if c.pin != "" {
		cmd.Env = append(os.Environ(), PINVariable+"="+c.pin)
	}
	err := child.Run(limited, cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, fmt.Errorf("cosign has not answered within %s", cosignTimeout)
	case err != nil:
		return nil, c.failure(err, stderr.String())
	case stdout.Len() > maxCosignOutput:
		return nil, fmt.Errorf("cosign printed more than %d bytes", maxCosignOutput)
	}
	return stdout.Bytes(), nil
}

// failure returns an error with cosign's message, without the PIN.
func (c *cosignProgram) failure(err error, output string) error {
	output = strings.ToValidUTF8(strings.TrimSpace(output), "?")
	if _, after, ok := strings.Cut(output, "Error: "); ok {
		output, _, _ = strings.Cut(after, "\n") // the other lines repeat it
	}
	if c.pin != "" {
		output = strings.NewReplacer(c.pin, "***", url.QueryEscape(c.pin), "***").Replace(output)
	}
	if len(output) > maxCosignMessage {
		output = strings.ToValidUTF8(output[:maxCosignMessage], "") + "…"
	}
	if output == "" {
		return fmt.Errorf("cosign: %w", err)
	}
	return fmt.Errorf("cosign: %s", output)
}
