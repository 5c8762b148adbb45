package outbox

import (
	"net"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// HubTime bounds one request to the hub, body and answer.
const HubTime = hubapi.MaxBodyTime + 5*time.Minute

// NewHTTPClient returns a client for a hub. It gives up soon where nobody answers, and lets a full request take its time: a megabyte
// over a modem is several minutes.
func NewHTTPClient() *http.Client {
	return &http.Client{
		Timeout: HubTime,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: time.Minute,
			IdleConnTimeout:       90 * time.Second,
			ForceAttemptHTTP2:     true,
		},
	}
}
