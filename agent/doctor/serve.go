package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"time"

	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

// soon is the time before the end of a certificate in which people are to hear of it.
const soon = 30 * 24 * time.Hour

// checkServe looks at the endpoint's address and certificate. It makes no CA.
func checkServe(_ context.Context, e *examination) diagnosis.Finding {
	o := e.Serve
	if o.Address == "" {
		return diagnosis.Finding{}
	}
	url, err := o.Check()
	if err != nil {
		return diagnosis.Failf("change the settings of serve", "%v", err)
	}
	if !e.live {
		l, err := net.Listen("tcp", o.Address)
		if err != nil {
			return diagnosis.Failf("end what has the address, or name another with --serve", "%v", err)
		}
		_ = l.Close() // nobody has connected
	}
	if o.Plain {
		return diagnosis.Okf("%s, without TLS", url)
	}
	if o.CertFile == "" {
		ca, err := o.CA()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return diagnosis.Okf("%s; the CA is made when the agent first runs", url)
		case err != nil:
			return diagnosis.Failf("remove the file, and give clients the CA that the agent then makes", "%v", err)
		}
		return diagnosis.Okf("%s, which clients know by the CA %s", url, serve.Fingerprint(ca)[:16])
	}
	endpoint, err := serve.Open(o)
	if err != nil {
		return diagnosis.Failf("renew the certificate, or leave it to the agent, without --serve-cert", "%v", err)
	}
	if err := endpoint.CheckNames(); err != nil {
		return diagnosis.Failf("give a certificate for "+url.Hostname()+" with --serve-cert, or another --serve-url", "%v", err)
	}
	s := endpoint.Status()
	if s.CertificateExpires != nil && time.Until(*s.CertificateExpires) < soon {
		return diagnosis.Warnf("renew it where it is: the agent reads it again", "%s: the certificate expires at %s", url, s.CertificateExpires.Format(time.RFC3339))
	}
	return diagnosis.Okf("%s, with the certificate in %s", url, o.CertFile)
}
