package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// chart looks a chart up in the index of its repository.
func (r *Resolver) chart(ctx context.Context, s Source, found *Resolution) error {
	all, err := chartVersions(ctx, r.access, s.URL, s.Chart)
	if err != nil {
		return err
	}
	var versions []string
	for _, c := range all {
		versions = append(versions, c.Version)
	}
	if len(versions) == 0 {
		return fmt.Errorf("the repository has no chart %q", s.Chart)
	}
	if found.Version, err = newestOf(versions, cmp.Or(s.Version, s.Semver)); err != nil {
		return err
	}
	for _, c := range all {
		if c.Version == found.Version && c.Digest != "" {
			found.archives = c.URLs
			found.Revision = "sha256:" + strings.TrimPrefix(c.Digest, "sha256:")
			return nil
		}
	}
	return fmt.Errorf("the repository gives no digest for version %s", found.Version)
}

// chartVersions requests the index of a repository, and returns the versions of one chart in it.
func chartVersions(ctx context.Context, access *egress.Access, repository, chart string) ([]chartVersion, error) {
	at, err := url.Parse(strings.TrimSuffix(repository, "/") + "/index.yaml")
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, errors.New("is not the URL of a chart repository: use https, http or oci")
	}
	body, err := get(ctx, access.Client(at), at)
	if err != nil {
		return nil, fmt.Errorf("index.yaml: %w", err)
	}
	defer func() { _ = body.Close() }()
	versions, err := versionsOf(body, chart)
	if err != nil {
		return nil, fmt.Errorf("index.yaml: %w", egress.Explain(err, gitrepo.ErrTooLarge, errIndexForm))
	}
	return versions, nil
}

// get requests a file of a chart repository. The caller closes it.
func get(ctx context.Context, client *http.Client, at *url.URL) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, egress.Explain(err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the server answers %d", response.StatusCode)
	}
	return response.Body, nil
}

// archive fetches a chart from its repository and compares it with the digest of the index. An archive elsewhere gets no login.
func (r *Resolver) archive(ctx context.Context, s Source, found *Resolution) ([]byte, error) {
	if len(found.archives) == 0 {
		return nil, fmt.Errorf("the repository gives no URL for version %s", found.Version)
	}
	repository, err := url.Parse(strings.TrimSuffix(s.URL, "/") + "/")
	if err != nil {
		return nil, errors.New("is not the URL of a chart repository")
	}
	at, err := repository.Parse(found.archives[0])
	if err != nil || at.Scheme != "http" && at.Scheme != "https" {
		return nil, fmt.Errorf("the repository gives no https or http URL for version %s", found.Version)
	}
	at.User = nil
	body, err := get(ctx, r.access.Client(repository), at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(gitrepo.LimitReader(body, MaxChartBytes))
	if err != nil {
		return nil, egress.Explain(err, gitrepo.ErrTooLarge)
	}
	if got := digest.FromBytes(data).String(); got != found.Revision {
		return nil, fmt.Errorf("the archive of version %s does not have the digest that the repository's index says", found.Version)
	}
	return data, nil
}
