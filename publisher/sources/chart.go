package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// maxChartIndex bounds the index of a chart repository. The largest public ones have some 20 MiB.
const maxChartIndex = 64 << 20

// chart looks a chart up in the index of its repository.
func (r *Resolver) chart(ctx context.Context, s Source, found *Resolution) error {
	index, err := chartIndex(ctx, s.URL)
	if err != nil {
		return err
	}
	var versions []string
	for _, c := range index.Entries[s.Chart] {
		versions = append(versions, c.Version)
	}
	if len(versions) == 0 {
		return fmt.Errorf("the repository has no chart %q", s.Chart)
	}
	if found.Version, err = newestOf(versions, s.Semver); err != nil {
		return err
	}
	for _, c := range index.Entries[s.Chart] {
		if c.Version == found.Version && c.Digest != "" {
			found.Revision = "sha256:" + strings.TrimPrefix(c.Digest, "sha256:")
			return nil
		}
	}
	return fmt.Errorf("the repository gives no digest for version %s", found.Version)
}

// chartRepositoryIndex has the fields of an index.yaml that are needed.
type chartRepositoryIndex struct {
	Entries map[string][]struct {
		Version string `yaml:"version"`
		Digest  string `yaml:"digest"`
	} `yaml:"entries"`
}

func chartIndex(ctx context.Context, repository string) (*chartRepositoryIndex, error) {
	at, err := url.Parse(strings.TrimSuffix(repository, "/") + "/index.yaml")
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, errors.New("is not the URL of a chart repository: use https, http or oci")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	if user, password := gitrepo.Netrc(at.Hostname()); at.User == nil && user != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, gitrepo.Plain(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("index.yaml: the server answers %d", response.StatusCode)
	}
	index := new(chartRepositoryIndex)
	body := gitrepo.LimitReader(response.Body, maxChartIndex)
	if err := yaml.NewDecoder(body).Decode(index); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("index.yaml: %w", gitrepo.Plain(err))
	}
	return index, nil
}
