package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Server answers over TLS, by HTTP/2 where the client can, and counts requests.
type Server struct {
	// Authority is the certificate, in PEM, that the server's own leads to by one between them.
	Authority []byte
	// ChainBytes is how long the certificates are that a handshake without a session sends.
	ChainBytes int

	server   *http.Server
	requests atomic.Int64
	open     atomic.Int64
	ended    chan struct{}
}

// Serve answers requests on l, with a certificate for the given address. The caller calls Close.
func Serve(l net.Listener, address net.IP, handler http.Handler) (*Server, error) {
	return ServeKnown(l, address, handler, nil)
}

// ServeKnown is Serve for clients that show a certificate of one of these authorities. Nil asks for none.
func ServeKnown(l net.Listener, address net.IP, handler http.Handler, clients *x509.CertPool) (*Server, error) {
	s := &Server{ended: make(chan struct{})}
	chain, err := s.newChain(address)
	if err != nil {
		return nil, err
	}
	s.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			s.requests.Add(1)
			handler.ServeHTTP(w, req)
		}),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{chain}, MinVersion: tls.VersionTLS12, ClientCAs: clients},
		ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.open.Add(1)
			case http.StateClosed:
				s.open.Add(-1)
			}
		},
		ErrorLog: log.New(io.Discard, "", 0), // connections are cut on purpose
	}
	if clients != nil {
		s.server.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
	}
	go func() {
		defer close(s.ended)
		_ = s.server.ServeTLS(l, "", "") // Close ends it
	}()
	return s, nil
}

// Requests is how many were made so far, those of clients that ask for a token or find that they need one included.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Open returns the number of open connections.
func (s *Server) Open() int64 { return s.open.Load() }

// Close ends the server with all its connections.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.ended
	return err
}

// newChain makes what certificates of public authorities are: one of the server by one that a root has signed.
func (s *Server) newChain(address net.IP) (chain tls.Certificate, err error) {
	var issuer *x509.Certificate
	var issuerKey, key *ecdsa.PrivateKey
	for i, name := range []string{"wherry root", "wherry issuer", "wherry server"} {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return chain, err
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		}
		if i == 2 {
			template.KeyUsage, template.IsCA = x509.KeyUsageDigitalSignature, false
			template.ExtKeyUsage, template.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{address}
		}
		if issuer == nil {
			issuer, issuerKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
		if err != nil {
			return chain, err
		}
		if issuer, err = x509.ParseCertificate(der); err != nil {
			return chain, err
		}
		issuerKey = key
		if i == 0 {
			s.Authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			continue
		}
		chain.Certificate = append([][]byte{der}, chain.Certificate...)
		s.ChainBytes += len(der)
	}
	chain.PrivateKey = key
	return chain, nil
}
