package cli

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen listens at the address that is the value of a flag.
func Listen(flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	err = fmt.Errorf("--%s: %w", flag, err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, Fail(Failed, err, "stop what listens there, or choose another --"+flag)
	case errors.As(err, new(*net.AddrError)) || errors.As(err, new(*net.DNSError)):
		return nil, Fail(Usage, err, "it looks like 127.0.0.1:8080, or :8080 for all addresses")
	}
	return nil, Fail(Failed, err, "choose another --"+flag)
}
