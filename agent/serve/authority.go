package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// CAFile is the file in the state folder with the endpoint's own CA: its certificate and its key, in PEM.
const CAFile = "serve-ca.pem"

const (
	caLife       = 10 * 365 * 24 * time.Hour
	caRenew      = 30 * 24 * time.Hour // before its end a CA is replaced
	leafLife     = 90 * 24 * time.Hour
	leafRenew    = leafLife / 3
	maxCAFile    = 64 << 10
	caName       = "wherry-agent endpoint"
	pemKey       = "PRIVATE KEY"
	pemCert      = "CERTIFICATE"
	serialLength = 127 // bits
)

// validFrom is the beginning of all certificates that are made here, so that a machine whose clock was once ahead has none
// that is not valid yet. A clock that is earlier counts as this.
var validFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// authority is the endpoint's own CA. The certificates that it signs are made anew by each process, and before they end.
type authority struct {
	dir   string
	names []string
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	root root
	leaf *tls.Certificate
}

// root is the CA's certificate with its key.
type root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority reads the CA in the state folder, or makes one, and a certificate for these names.
func openAuthority(dir string, names []string, now func() time.Time, log *slog.Logger) (*authority, error) {
	a := &authority{dir: dir, names: names, now: now, log: log}
	r, err := readAuthority(dir)
	switch {
	case err == nil:
		a.root = r
	case errors.Is(err, fs.ErrNotExist):
	default:
		return nil, err
	}
	return a, a.renew()
}

// get is a tls.Config's GetCertificate.
func (a *authority) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.current(), nil }

// current returns the certificate that is shown, and makes another before it ends.
func (a *authority) current() *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaf.Leaf.NotAfter.Sub(a.now()) < leafRenew {
		if err := a.renewLocked(); err != nil {
			a.log.Warn("the endpoint's certificate cannot be renewed, and the one before is still shown", "until", a.leaf.Leaf.NotAfter, "err", err)
		}
	}
	return a.leaf
}

func (a *authority) ca() *x509.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.root.cert
}

func (a *authority) pem() []byte { return encode(pemCert, a.ca().Raw) }

func (a *authority) renew() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.renewLocked()
}

// renewLocked makes a CA where there is none, prolongs one that ends soon, and makes a certificate of it. The key of a CA
// stays: the clock may be wrong, and clients that have its earlier certificate accept what it signs as long as that is valid by
// their clocks.
func (a *authority) renewLocked() error {
	now := a.now()
	if validFrom.After(now) {
		now = validFrom
	}
	if a.root.cert == nil || a.root.cert.NotAfter.Sub(now) < caRenew {
		r, err := a.root.prolong(now)
		if err == nil {
			err = r.write(a.dir)
		}
		if err != nil {
			return err
		}
		if a.root.cert != nil {
			a.log.Warn("the certificate of the endpoint's CA is renewed with the same key: clients that have the one before need the new one when that ends", "before", a.root.cert.NotAfter, "until", r.cert.NotAfter)
		}
		a.root = r
	}
	leaf, err := a.root.sign(a.names, now)
	if err != nil {
		return err
	}
	a.leaf = leaf
	return nil
}

// prolong returns a CA with the key, the subject and the beginning of r, and another end; a new one if r has none.
func (r root) prolong(now time.Time) (root, error) {
	serial, err := newSerial()
	if err != nil {
		return root{}, err
	}
	host, _ := os.Hostname()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: caName + " CA", Organization: []string{host}},
		NotBefore: validFrom, NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := r.key
	if r.cert != nil {
		template.RawSubject, template.SubjectKeyId, template.NotBefore = r.cert.RawSubject, r.cert.SubjectKeyId, r.cert.NotBefore
	} else if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return root{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return root{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return root{cert, key}, err
}

// sign makes a certificate for these names and addresses. It ends no later than the CA.
func (r root) sign(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: caName}, NotBefore: validFrom, NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(r.cert.NotAfter) {
		template.NotAfter = r.cert.NotAfter
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, r.cert, key.Public(), r.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, r.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialLength))
}

func (r root) pem() []byte { return encode(pemCert, r.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write replaces the file of the CA. Certificate and key are in one file, so that they belong to each other whenever the
// power is cut.
func (r root) write(dir string) error {
	der, err := x509.MarshalPKCS8PrivateKey(r.key)
	if err != nil {
		return err
	}
	return diskfile.Replace(filepath.Join(dir, CAFile), 0o600, append(encode(pemCert, r.cert.Raw), encode(pemKey, der)...))
}

// readAuthority reads the CA in a state folder. The error wraps fs.ErrNotExist where there is none.
func readAuthority(dir string) (root, error) {
	path := filepath.Join(dir, CAFile)
	f, err := diskfile.Open(path)
	if err != nil {
		return root{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCAFile))
	if err != nil {
		return root{}, err
	}
	r, err := parseRoot(data)
	if err != nil {
		return root{}, fmt.Errorf("%s: %w: remove the file to have another CA made", path, err)
	}
	return r, nil
}

func parseRoot(data []byte) (r root, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case pemCert:
			r.cert, err = x509.ParseCertificate(block.Bytes)
		case pemKey:
			var key any
			if key, err = x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				r.key, _ = key.(*ecdsa.PrivateKey)
			}
		}
		if err != nil {
			return r, err
		}
	}
	if r.cert == nil || r.key == nil {
		return r, errors.New("it does not hold a certificate and its key")
	}
	public, ok := r.cert.PublicKey.(*ecdsa.PublicKey)
	if !ok || !public.Equal(r.key.Public()) {
		return r, errors.New("the key is not that of the certificate")
	}
	return r, nil
}
