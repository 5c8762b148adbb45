package hubcmd

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// servedCertificate is a certificate with its key in files, which are read again once they change: what
// renews certificates writes files, and a hub should not have to be stopped for it.
type servedCertificate struct {
	certificate, key string
	log              *slog.Logger

	mu   sync.Mutex
	pair *tls.Certificate // the newest that could be used
	read [2]fileState     // when the files were last read
	late bool             // that it has expired was said
}

// fileState changes when a file does; zero where it cannot be read.
type fileState struct {
	size     int64
	modified time.Time
}

// openCertificate reads the files for the first time.
func openCertificate(certificate, key string, log *slog.Logger) (*servedCertificate, error) {
	c := &servedCertificate{certificate: certificate, key: key, log: log}
	c.read = c.files()
	if err := c.load(); err != nil {
		return nil, cli.Fail(cli.Usage, err, "--tls-cert and --tls-key must be PEM files that belong together, and that the hub may read")
	}
	c.sayIfLate(time.Now())
	return c, nil
}

// get is a tls.Config's GetCertificate. What cannot be used, such as a new certificate while its key is
// still the former, leaves the one before in force.
func (c *servedCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.files(); now != c.read {
		c.read = now
		if err := c.load(); err != nil {
			c.log.Warn("the certificate that is there now cannot be used, and the one before is still served", "err", err)
		} else {
			c.log.Info("certificate read again", "file", c.certificate, "until", c.pair.Leaf.NotAfter)
		}
	}
	c.sayIfLate(time.Now())
	return c.pair, nil
}

func (c *servedCertificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certificate, c.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.certificate, c.key, err)
	}
	c.pair, c.late = &pair, false
	return nil
}

func (c *servedCertificate) files() (states [2]fileState) {
	for i, name := range []string{c.certificate, c.key} {
		if info, err := os.Stat(name); err == nil {
			states[i] = fileState{info.Size(), info.ModTime()}
		}
	}
	return states
}

// sayIfLate says once of each certificate that no agent accepts it any more.
func (c *servedCertificate) sayIfLate(now time.Time) {
	if c.late || now.Before(c.pair.Leaf.NotAfter) {
		return
	}
	c.late = true
	c.log.Warn("the certificate has expired, and agents do not accept it; renew it where it is, and it is read again",
		"file", c.certificate, "until", c.pair.Leaf.NotAfter)
}
