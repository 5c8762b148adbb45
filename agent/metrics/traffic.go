package metrics

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Traffic counts what the agent asks for and receives. The zero value is ready.
type Traffic struct{ Registry, Hub Counter }

// Received is the number of bytes that have arrived from all.
func (t *Traffic) Received() int64 { return t.Registry.Bytes.Load() + t.Hub.Bytes.Load() }

// Counter counts the requests to one kind of server, and the bytes of the bodies of its answers.
type Counter struct{ Requests, Bytes atomic.Int64 }

// Wrap returns a transport that counts the traffic of next.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper { return &counting{c, next} }

type counting struct {
	*Counter
	next http.RoundTripper
}

func (c *counting) RoundTrip(req *http.Request) (*http.Response, error) {
	c.Requests.Add(1)
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		resp.Body = &countingBody{resp.Body, c.Counter}
	}
	return resp, err
}

// CloseIdleConnections is asked for by http.Client's method of that name.
func (c *counting) CloseIdleConnections() {
	if t, ok := c.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

type countingBody struct {
	io.ReadCloser
	c *Counter
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.c.Bytes.Add(int64(n))
	return n, err
}
