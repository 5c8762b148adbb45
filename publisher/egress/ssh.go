package egress

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/net/proxy"
)

// sshScheme begins the URL of a proxy that stands for a function in sshDials, whose number is the host: go-git's transport for ssh
// knows no context, and takes its connections from the URL of a proxy alone.
const sshScheme = "wherry-egress"

var (
	sshDials  sync.Map // of dialFunc, by number, while their contexts last
	sshNumber atomic.Int64
)

type dialFunc func(network, addr string) (net.Conn, error)

var registerSSH = sync.OnceFunc(func() {
	proxy.RegisterDialerType(sshScheme, func(u *url.URL, _ proxy.Dialer) (proxy.Dialer, error) {
		dial, ok := sshDials.Load(u.Host)
		if !ok {
			return nil, context.Canceled
		}
		return dial.(dialFunc), nil
	})
})

func (d dialFunc) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

func (d dialFunc) DialContext(_ context.Context, network, addr string) (net.Conn, error) {
	return d(network, addr)
}

// SSHProxy returns the URL of the proxy by which go-git connects to a server by ssh, until ctx ends and closes the connections. A
// server that is not the platform's own is reached as by [Access.Dial] of an Access with nothing of its own. A port of 0 is ssh's own.
func (a *Access) SSHProxy(ctx context.Context, host string, port int) (string, error) {
	if port == 0 {
		port = 22
	}
	dial := proxy.Dial // by ALL_PROXY, if that is set
	if !a.owns(place{canonical(host), strconv.Itoa(port)}) {
		if os.Getenv("ALL_PROXY")+os.Getenv("all_proxy") == "" {
			dial = a.foreign().Dial
		} else if err := a.judgeName(&url.URL{Scheme: "ssh", Host: net.JoinHostPort(host, strconv.Itoa(port))}); err != nil {
			return "", err // the proxy resolves the name
		}
	}
	registerSSH()
	number := strconv.FormatInt(sshNumber.Add(1), 10)
	sshDials.Store(number, dialFunc(func(network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}))
	context.AfterFunc(ctx, func() { sshDials.Delete(number) })
	return fmt.Sprintf("%s://%s", sshScheme, number), nil
}

// foreign returns an Access with nothing of its own.
func (a *Access) foreign() *Access {
	foreign := New()
	a.mu.Lock()
	defer a.mu.Unlock()
	foreign.allowed = a.allowed
	return foreign
}
