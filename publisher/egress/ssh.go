package egress

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"

	"golang.org/x/net/proxy"
)

// sshScheme begins the URL of the proxy that stands for [Access.Dial] of an Access with nothing of its own: go-git's transport
// for ssh takes its connections from a proxy's URL alone.
const sshScheme = "wherry-egress"

var registerSSH = sync.OnceFunc(func() {
	proxy.RegisterDialerType(sshScheme, func(u *url.URL, _ proxy.Dialer) (proxy.Dialer, error) {
		a := New()
		a.Allow(u.Query()["allow"]...)
		return sshDialer{a}, nil
	})
})

type sshDialer struct{ access *Access }

func (d sshDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.access.Dial(ctx, network, addr)
}

func (d sshDialer) Dial(network, addr string) (net.Conn, error) {
	return d.access.Dial(context.Background(), network, addr)
}

// SSHProxy returns the URL of the proxy by which go-git connects to a server by ssh; empty for the usual way. A port of 0 is
// ssh's own.
func (a *Access) SSHProxy(host string, port int) (string, error) {
	if port == 0 {
		port = 22
	}
	if a.owns(place{canonical(host), strconv.Itoa(port)}) {
		return "", nil
	}
	if os.Getenv("ALL_PROXY")+os.Getenv("all_proxy") != "" { // it resolves the name
		return "", a.judgeName(&url.URL{Scheme: "ssh", Host: net.JoinHostPort(host, strconv.Itoa(port))})
	}
	registerSSH()
	query := url.Values{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.allowed {
		query.Add("allow", e.entry)
	}
	return fmt.Sprintf("%s://direct?%s", sshScheme, query.Encode()), nil
}
