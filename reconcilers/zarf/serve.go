package zarf

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	headerTime = 10 * time.Second
	user       = "wherry"
)

// The validity of the certificate. It lives for minutes, and has to outlast a clock that is years off.
var (
	validFrom = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	validTo   = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// registry is a registry with one artifact. Close it when its reader has ended.
type registry struct {
	host     string
	ca       []byte
	password string
	server   *http.Server
	ended    chan struct{}
}

// Serve begins to answer requests for the artifact, as that of repository, on a free port of loopback.
func (a *storedArtifact) Serve(repository string) (*registry, error) {
	certificate, ca, err := selfSigned()
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &registry{host: listener.Addr().String(), ca: ca, password: rand.Text(), ended: make(chan struct{})}
	s.server = &http.Server{
		Handler: s.guarded(a.handler(repository)), ReadHeaderTimeout: headerTime, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(s.ended)
		_ = s.server.ServeTLS(listener, "", "") // ErrServerClosed; before that, the reader says what failed
	}()
	return s, nil
}

// Host returns HOST:PORT.
func (s *registry) Host() string { return s.host }

// CA returns the certificate by which readers verify the registry, in PEM.
func (s *registry) CA() []byte { return s.ca }

// DockerConfig returns a config.json with the credentials for the registry.
func (s *registry) DockerConfig() []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + s.password))
	data, err := json.Marshal(map[string]any{"auths": map[string]any{s.host: map[string]string{"auth": auth}}})
	if err != nil {
		panic(err) // strings in maps
	}
	return data
}

// Close ends all requests, and returns when they have ended.
func (s *registry) Close() error {
	err := s.server.Close()
	<-s.ended
	return err
}

// guarded answers nobody but the reader: the store of an agent may have what other users of the machine may not read.
func (s *registry) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="wherry"`)
			http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// handler answers the requests of OCI distribution-spec v1.1 for pulling by digest.
func (a *storedArtifact) handler(repository string) http.Handler {
	known := map[string]ocispec.Descriptor{}
	for _, d := range a.graph.Manifests {
		known["/v2/"+repository+"/manifests/"+d.Digest.String()] = d
	}
	for _, d := range a.graph.Blobs {
		known["/v2/"+repository+"/blobs/"+d.Digest.String()] = ocispec.Descriptor{MediaType: "application/octet-stream", Digest: d.Digest, Size: d.Size}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		d, ok := known[r.URL.Path]
		if !ok {
			if strings.TrimSuffix(r.URL.Path, "/") != "/v2" {
				http.NotFound(w, r)
			}
			return
		}
		w.Header().Set("Content-Type", d.MediaType)
		w.Header().Set("Docker-Content-Digest", d.Digest.String())
		a.write(w, r, d.Digest)
	})
}

func (a *storedArtifact) write(w http.ResponseWriter, r *http.Request, d digest.Digest) {
	if data, ok := a.manifests[d]; ok {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return
	}
	f, err := os.Open(a.path(d))
	if errors.Is(err, os.ErrNotExist) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	http.ServeContent(w, r, "", time.Time{}, f)
}

// selfSigned returns a certificate for loopback, with a key that is only in memory.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "wherry-agent"}, NotBefore: validFrom, NotAfter: validTo,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
