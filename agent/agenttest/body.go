package agenttest

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
)

// Body reads the body of a request, as a hub does: it may be compressed.
func Body(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(z)
	return body, errors.Join(err, z.Close())
}
