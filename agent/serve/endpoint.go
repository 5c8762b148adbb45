package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/certificate"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Options configures an endpoint.
type Options struct {
	// Address is the TCP address to listen at, such as :5001 or 127.0.0.1:5001.
	Address string
	// URL is what engines and people are told. Empty is https://HOST:PORT with the host of Address, or, where that names
	// none, this machine's name.
	URL string
	// CertFile and KeyFile are the certificate with its chain, and its key. They are read again when they change. Without
	// them the endpoint has a certificate of a CA of its own, which is in the state folder.
	CertFile, KeyFile string
	// Plain serves HTTP without TLS, on a loopback address only.
	Plain bool
	// StateDir is the agent's state folder.
	StateDir string
	// Now is the clock; nil means time.Now. Log is nil for silence.
	Now func() time.Time
	Log *slog.Logger
}

// Served has the addresses and certificates by which an engine reaches the endpoint.
type Served struct {
	// URL has the scheme, the host and the port, such as https://first-box:5001.
	URL string
	// Host is the host with its port, as references to images and artifacts begin: oci://HOST/PLATFORM/….
	Host string
	// CA are the certificates in PEM by which the endpoint is known. It is empty for plain HTTP, and for a given
	// certificate whose authority is not in its file: those clients have to know it.
	CA []byte
	// Plain means HTTP without TLS.
	Plain bool
}

// Endpoint is an endpoint that can listen. It may be used by several goroutines.
type Endpoint struct {
	// Counters are those of all its servers.
	Counters Counters

	opts  Options
	url   *url.URL
	tls   *tls.Config        // nil for plain HTTP
	given *certificate.Files // nil without CertFile
	own   *authority         // nil with CertFile, and for plain HTTP
}

// Open checks the options and reads the certificates, or makes them on the first start.
func Open(o Options) (*Endpoint, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{opts: o}
	var err error
	if e.url, err = o.Check(); err != nil {
		return nil, err
	}
	switch {
	case o.Plain:
	case o.CertFile != "":
		if e.given, err = certificate.Open(o.CertFile, o.KeyFile, o.Log); err != nil {
			return nil, err
		}
		e.tls = e.given.Config()
	default:
		if e.own, err = openAuthority(o.StateDir, o.names(e.url), o.Now, o.Log); err != nil {
			return nil, fmt.Errorf("certificates of the endpoint: %w", err)
		}
		e.tls = &tls.Config{GetCertificate: e.own.get, MinVersion: tls.VersionTLS12}
	}
	if e.tls != nil {
		e.tls.NextProtos = []string{"http/1.1"}
	}
	return e, nil
}

// Check returns the URL of the endpoint, or an error if the options contradict each other. It reads no file.
func (o Options) Check() (*url.URL, error) {
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("address %q: expected HOST:PORT, such as :5001", o.Address)
	}
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("a certificate needs its key, and a key its certificate")
	case o.Plain && o.CertFile != "":
		return nil, errors.New("plain HTTP shows no certificate: give one or the other")
	case o.Plain && !oci.IsLoopback(host):
		return nil, fmt.Errorf("plain HTTP is served at a loopback address only, such as 127.0.0.1:%s, and not at %s", port, o.Address)
	}
	scheme := "https"
	if o.Plain {
		scheme = "http"
	}
	if o.URL == "" {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			if host, err = os.Hostname(); err != nil {
				return nil, fmt.Errorf("this machine's name: %w", err)
			}
		}
		return &url.URL{Scheme: scheme, Host: net.JoinHostPort(strings.ToLower(host), port)}, nil
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil: // the error of the parser quotes the URL, which may have a password
		return nil, fmt.Errorf("invalid URL: expected one such as %s://first-box:5001", scheme)
	case u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return nil, fmt.Errorf("URL %q: expected only a host and a port, such as %s://first-box:5001", withoutUser(u), scheme)
	case u.Scheme != scheme:
		return nil, fmt.Errorf("URL %q: the scheme is %s, but the endpoint serves %s", o.URL, u.Scheme, scheme)
	}
	return &url.URL{Scheme: scheme, Host: u.Host}, nil
}

// withoutUser returns the text of u without a name and a password.
func withoutUser(u *url.URL) string {
	plain := *u
	plain.User = nil
	return plain.String()
}

// names are those that a certificate of ours has.
func (o Options) names(u *url.URL) []string {
	names := []string{u.Hostname(), "localhost", "127.0.0.1", "::1"}
	host, _, _ := net.SplitHostPort(o.Address)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		names = append(names, host)
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, strings.ToLower(host))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Served returns how engines reach the endpoint.
func (e *Endpoint) Served() Served {
	s := Served{URL: e.url.String(), Host: e.url.Host, Plain: e.opts.Plain}
	switch {
	case e.own != nil:
		s.CA = e.own.pem()
	case e.given != nil:
		s.CA = authorities(e.given.Current().Certificate)
	}
	return s
}

// CA returns the certificates in PEM by which an endpoint with these options is known, as Served has them. It makes none:
// the error wraps fs.ErrNotExist where the agent has not served yet.
func (o Options) CA() ([]byte, error) {
	if o.CertFile == "" {
		ca, err := readAuthority(o.StateDir)
		if err != nil {
			return nil, err
		}
		return ca.pem(), nil
	}
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	return authorities(pair.Certificate), nil
}

// authorities returns, in PEM, the certificates of a chain that others can be signed by, and a single one that has signed
// itself.
func authorities(chain [][]byte) []byte {
	var out []byte
	for _, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			continue
		}
		if c.IsCA || bytes.Equal(c.RawIssuer, c.RawSubject) {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
		}
	}
	return out
}

// Fingerprint returns the SHA-256 fingerprint of the first certificate in PEM, in hexadecimal; empty without one.
func Fingerprint(certificates []byte) string {
	block, _ := pem.Decode(certificates)
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:])
}

// Status describes an endpoint for people.
type Status struct {
	URL     string `json:"url"`
	Address string `json:"address"`
	// CA is the SHA-256 fingerprint of the certificate by which clients know the endpoint, in hexadecimal; empty for plain
	// HTTP, and for a given certificate whose authority is not in its file.
	CA string `json:"ca,omitempty"`
	// CertificateExpires is the end of the certificate that is shown now, and CAExpires that of the endpoint's own CA.
	CertificateExpires *time.Time `json:"certificateExpires,omitempty"`
	CAExpires          *time.Time `json:"caExpires,omitempty"`
	// Waiting is the reason why the newest accepted release is not served yet; empty if it is served.
	Waiting string `json:"waiting,omitempty"`
}

// Status returns the present state of the endpoint.
func (e *Endpoint) Status() Status {
	s := Status{URL: e.url.String(), Address: e.opts.Address}
	s.CA = Fingerprint(e.Served().CA)
	switch {
	case e.own != nil:
		leaf, ca := e.own.current().Leaf.NotAfter, e.own.ca().NotAfter
		s.CertificateExpires, s.CAExpires = &leaf, &ca
	case e.given != nil:
		leaf := e.given.Current().Leaf.NotAfter
		s.CertificateExpires = &leaf
	}
	return s
}

// CheckNames returns an error if the certificate that is shown is not valid for the host of the URL, or has expired.
func (e *Endpoint) CheckNames() error {
	leaf := (*x509.Certificate)(nil)
	switch {
	case e.own != nil:
		leaf = e.own.current().Leaf
	case e.given != nil:
		leaf = e.given.Current().Leaf
	}
	switch {
	case leaf == nil:
		return nil
	case e.opts.Now().After(leaf.NotAfter):
		return fmt.Errorf("the certificate expired at %s", leaf.NotAfter.Format(time.RFC3339))
	}
	return leaf.VerifyHostname(e.url.Hostname())
}
