package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// Repository opens HOST/NAME to be read, which texts of teams name. Options are those of its registry, but for HTTPClient. Without
// TLS only an own registry gets a login. The services of tokens that o names are own. The errors hold no byte of an answer.
func (a *Access) Repository(repository string, o oci.Options) (oci.Target, error) {
	host, name, _ := strings.Cut(repository, "/")
	a.Own(o.AuthHosts...)
	if (o.PlainHTTP || oci.IsLoopback(host)) && !a.Owns(repository) {
		o.Credential = func(context.Context, string) (auth.Credential, error) { return auth.EmptyCredential, nil }
	}
	var err error
	o.HTTPClient, err = oci.NewHTTPClient(oci.Network{Each: func(http.RoundTripper) http.RoundTripper { return a.Transport() }})
	if err != nil {
		return nil, err
	}
	target, err := oci.Location{Host: host}.Repository(name, o)
	if err != nil {
		return nil, err
	}
	return explained{target}, nil
}

// Registries returns o for own registries, which are written to as well: with connections of their own, which go where those of a
// may, and errors as usual.
func (a *Access) Registries(o oci.Options) (oci.Options, error) {
	a.Own(o.AuthHosts...)
	var err error
	o.HTTPClient, err = oci.NewHTTPClient(oci.Network{Dial: a.Dial, Each: a.guard})
	return o, err
}

// explained is a repository whose errors hold no byte of an answer.
type explained struct{ oci.Target }

func (e explained) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := e.Target.Resolve(ctx, reference)
	return desc, explainRegistry(err)
}

func (e explained) Tags(ctx context.Context) ([]string, error) {
	tags, err := e.Target.Tags(ctx)
	return tags, explainRegistry(err)
}

func (e explained) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := e.Target.Fetch(ctx, target)
	return body, explainRegistry(err)
}

// explainRegistry is Explain for the answers of registries.
func explainRegistry(err error) error {
	var answer *errcode.ErrorResponse
	var withheld *oci.WithheldError
	switch {
	case errors.As(err, &withheld):
		return withheld
	case errors.As(err, &answer):
		return &answered{answer.StatusCode, err}
	}
	return Explain(err)
}

// answered is an answer of a registry that is an error.
type answered struct {
	status int
	err    error
}

func (e *answered) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the registry answers %d %s", e.status, http.StatusText(e.status)))
}
func (e *answered) Unwrap() error { return e.err }
