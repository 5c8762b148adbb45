// Package certificate serves a TLS certificate from files that may change while a hub or an agent runs. Begin with Open.
package certificate

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files is a certificate and its key in files, which are read again once they change, so that the program need not be
// stopped when its certificate is renewed. It may be used by several goroutines.
type Files struct {
	certificate, key string
	log              *slog.Logger

	mu   sync.Mutex
	pair *tls.Certificate // the newest that could be used
	read [2]fileState     // when the files were last read
	late bool             // that it has expired was said
}

// fileState changes when a file does; zero if it cannot be read.
type fileState struct {
	size     int64
	modified time.Time
}

// Open reads the files for the first time.
func Open(certificate, key string, log *slog.Logger) (*Files, error) {
	c := &Files{certificate: certificate, key: key, log: log}
	c.read = c.files()
	if err := c.load(); err != nil {
		return nil, err
	}
	c.logIfExpired(time.Now())
	return c, nil
}

// Config returns a configuration that shows the certificate, for HTTP 1.1 and 2.
func (c *Files) Config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

// Current returns the certificate that is shown, with its Leaf.
func (c *Files) Current() *tls.Certificate {
	pair, _ := c.get(nil)
	return pair
}

// get is a tls.Config's GetCertificate. Files that cannot be used, such as a new certificate beside the former key,
// leave the certificate before in force.
func (c *Files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
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
	c.logIfExpired(time.Now())
	return c.pair, nil
}

func (c *Files) load() error {
	pair, err := tls.LoadX509KeyPair(c.certificate, c.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.certificate, c.key, err)
	}
	c.pair, c.late = &pair, false
	return nil
}

func (c *Files) files() (states [2]fileState) {
	for i, name := range []string{c.certificate, c.key} {
		if info, err := os.Stat(name); err == nil {
			states[i] = fileState{info.Size(), info.ModTime()}
		}
	}
	return states
}

// logIfExpired logs the expiry of each certificate once.
func (c *Files) logIfExpired(now time.Time) {
	if c.late || now.Before(c.pair.Leaf.NotAfter) {
		return
	}
	c.late = true
	c.log.Warn("the certificate has expired, and clients do not accept it; renew it where it is, and it is read again",
		"file", c.certificate, "until", c.pair.Leaf.NotAfter)
}
