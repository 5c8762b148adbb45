package oci

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// CertificateHint returns advice for a person about an error that refused a server's certificate, in terms of the flags
// that fill a Network. It returns "" for other errors.
func CertificateHint(err error) string {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "name the authority's certificate with --tls-ca, if this is the right server"
	case errors.As(err, new(x509.HostnameError)):
		return "the certificate is for other names: use one of these as the address, or have it made anew for this one"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "have the server's certificate renewed, or set this machine's clock"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "have the server's certificate made anew; no authority vouches for it as it is"
	}
	return ""
}
