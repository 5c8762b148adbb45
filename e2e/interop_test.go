//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// startDistribution runs the registry that most people run, and returns HOST:PORT.
func startDistribution(t *testing.T) string {
	t.Helper()
	return startDistributionFor(t, "")
}

func startDistributionFor(t *testing.T, password string) string {
	t.Helper()
	r, err := harness.StartDistribution(t.Context(), password)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Stop()) })
	return r.Prefix
}

// logIn has all tools that read docker's configuration know the password of a registry.
func logIn(t *testing.T, host, password string) {
	t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte("edge:" + password))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host, auth), 0o600))
	t.Setenv("DOCKER_CONFIG", dir)
}

// serveGo serves the registry of go-containerregistry, which is also that of "crane registry serve".
func serveGo(t *testing.T, opts ...ggcr.Option) string {
	t.Helper()
	server := httptest.NewServer(ggcr.New(append(opts, ggcr.Logger(log.New(io.Discard, "", 0)))...))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestRegistriesOfOthersKeepWhatAgentsNeed(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"distribution": startDistribution,
		"distribution, with a password": func(t *testing.T) string {
			host := startDistributionFor(t, password)
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			denied := program(t, t.TempDir(), "wherry", "bundle", "ls", "oci://"+host+"/edge")
			require.Equal(t, 4, denied.code)
			require.Contains(t, denied.stderr, "wherry login "+host)
			logIn(t, host, password)
			return host
		},
		"go-containerregistry":                 func(t *testing.T) string { return serveGo(t, ggcr.WithReferrersSupport(false)) },
		"go-containerregistry, with referrers": func(t *testing.T) string { return serveGo(t, ggcr.WithReferrersSupport(true)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.prefix = start(t) + "/" + s.environment
			s.publish()
			first := s.newest()
			s.requireWhole(first)
			s.once(0)
			require.Equal(t, first, s.status().Release.Running.Digest)

			s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
			s.publish()
			second := s.newest()
			require.NotEqual(t, first, second)
			s.requireWhole(second)
			s.once(0)
			require.Equal(t, second, s.status().Release.Running.Digest)
			require.Equal(t, "debug", s.settings("shop-web")["LOG_LEVEL"])
			listed := s.wherry("bundle", "ls", "oci://"+s.prefix, "--environment", s.environment)
			require.Contains(t, listed.stdout, " ("+second.Encoded()[:8]+") ")
		})
	}
}

// copying is what a tool does, from a repository's tag to a repository.
type copying func(s *site, from, to, tag string)

func TestCopiesByOtherTools(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		one  copying                  // copies one tag
		all  func(s *site, to string) // copies all tags of the site's bundle, as this tool does it best
	}{
		{"crane", (*site).crane, func(s *site, to string) {
			s.tool("crane", "copy", "--all-tags", s.repositoryName(s.prefix), s.repositoryName(to))
		}},
		{"skopeo", (*site).skopeo, func(s *site, to string) {
			parent, _ := filepath.Split(s.repositoryName(to)) // it adds the last part of the name itself
			s.tool("skopeo", "--insecure-policy", "sync", "--src", "docker", "--dest", "docker", "--src-tls-verify=false", "--dest-tls-verify=false",
				s.repositoryName(s.prefix), strings.TrimSuffix(parent, "/"))
		}},
		{"oras", (*site).oras, func(s *site, to string) {
			for _, tag := range s.tags(s.prefix) {
				s.oras(s.repositoryName(s.prefix), s.repositoryName(to), tag)
			}
		}},
	}
	mirror := startDistribution(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.publish()
			published, source := s.newest(), s.prefix
			one, all := mirror+"/one/"+s.environment, mirror+"/all/"+s.environment

			test.one(s, s.repositoryName(source), s.repositoryName(one), "latest")
			test.all(s, all)
			require.Equal(t, s.tags(source), s.tags(all))

			// One tag is a release without its signature: nobody takes it.
			s.prefix = one
			require.Equal(t, published, s.newest(), "the digest is the same")
			require.Equal(t, []string{"latest"}, s.tags(one))
			require.Contains(t, s.cosignVerify("cosign.pub", s.bundle(published)).stderr, "no signatures found")
			require.Equal(t, 4, s.wherry("verify", "oci://"+s.bundle(published), "--key", "cosign.pub").code)
			require.Contains(t, s.once(4).stderr, string(bundle.Unsigned))

			// With the signature's tag, which carries the digest in its name, it is whole.
			signature := mirror + "/signature/" + s.environment
			for _, tag := range []string{"latest", bundle.SignatureTag(published)} {
				test.one(s, s.repositoryName(source), s.repositoryName(signature), tag)
			}
			s.prefix = signature
			s.requireWhole(published)

			// wherry copies only the missing content.
			s.prefix = source
			s.bundleCopy(source, one, map[string]string{"bundle": "updated"})
			s.bundleCopy(source, one, map[string]string{"bundle": "unchanged"})
			s.prefix = one
			s.requireWhole(published)
			require.Equal(t, s.tags(source), s.tags(one))
			s.once(0)
			require.Equal(t, published, s.status().Release.Running.Digest)

			// All tags are all of a bundle, and not of an environment.
			s.prefix = all
			s.requireWhole(published)
			s.once(0, "--state-dir", "another agent")
			require.NotZero(t, s.wherry("verify", "oci://"+all+"/environments/"+s.environment, "--key", "cosign.pub").code)
			done := s.wherry("bundle", "copy", "oci://"+source, "oci://"+all, "--environment", s.environment, "--key", "cosign.pub")
			require.Zero(t, done.code, done.stderr)
			require.Contains(t, done.stderr, "2 copied, 0 updated, 1 unchanged") // the other type, and the record
			require.Zero(t, s.wherry("verify", "oci://"+all+"/environments/"+s.environment, "--key", "cosign.pub").code)
		})
	}
}

func TestABundleGoesThroughAFolderOfAnotherTool(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	published := s.newest()
	name := bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
	for _, tag := range []string{"latest", bundle.SignatureTag(published)} {
		s.tool("skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://"+s.repositoryName(s.prefix)+":"+tag, "oci:medium:"+name+"/"+tag)
	}
	converted := s.runTool("skopeo", "--insecure-policy", "copy", "--format", "v2s2", "oci:medium:"+name+"/latest", "dir:converted")
	require.NotZero(t, converted.code, "a bundle is not an image that could be converted")
	s.prefix = startDistribution(t) + "/site"
	copied := s.wherry("bundle", "copy", "oci-layout:medium/"+name, "oci://"+s.prefix, "--key", "cosign.pub")
	require.Zero(t, copied.code, copied.stderr)
	s.requireWhole(published)
	s.once(0)
	require.Equal(t, published, s.status().Release.Running.Digest)

	s.generateKey("mallory")
	refused := s.wherry("bundle", "copy", "oci-layout:medium/"+name, "oci-layout:refused", "--key", "mallory.pub")
	require.Equal(t, 4, refused.code)
	require.Contains(t, refused.stderr, string(bundle.UntrustedKey))
	require.NoDirExists(t, s.path("refused"))
}

func TestThePageOnRegistriesSaysWhatWorks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.edit("platform/cluster-types.yaml", "name: edge", "name: drone")
	s.publish()
	registry := startDistribution(t)
	bin := s.path("programs")
	require.NoError(t, os.Mkdir(bin, 0o755))
	for _, name := range []string{"crane", "skopeo"} {
		path, env := s.toolPath(name)
		script := "#!/bin/sh\nexec env " + env + " " + path + ` "$@"` + "\n"
		childtest.WriteProgram(t, filepath.Join(bin, name), script)
	}
	page, err := os.ReadFile("../docs/registry.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```sh[^\n]*\n([^`]*(?:bundle copy|crane|skopeo).*?)^```$").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 4)
	blocks = blocks[1:] // the first is about the registry that is there
	for i, found := range blocks {
		mirror := fmt.Sprintf("%s/site-%d", registry, i)
		s.shell("PATH=" + bin + ":$PATH\n" + strings.NewReplacer(
			"registry.example/edge", s.prefix,
			"registry.plant-7:5000/edge", mirror,
			"bundles/dev", "bundles/"+s.environment,
			"--environment dev", "--environment "+s.environment,
			"skopeo sync", "skopeo --insecure-policy sync --src-tls-verify=false --dest-tls-verify=false",
		).Replace(found[1]))
		ref := "oci://" + mirror + "/bundles/" + s.environment + "/drone"
		require.Zero(t, s.wherry("verify", ref, "--key", "cosign.pub").code)
	}
}

// repositoryName is where a prefix has the bundles of the site's type.
func (s *site) repositoryName(prefix string) string {
	return prefix + "/" + bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
}

// newest is the digest that latest names.
func (s *site) newest() digest.Digest {
	s.t.Helper()
	desc, err := s.repository(s.prefix, clusterType).Resolve(s.t.Context(), "latest")
	require.NoError(s.t, err)
	return desc.Digest
}

func (s *site) tags(prefix string) []string {
	s.t.Helper()
	tags, err := s.repository(prefix, clusterType).Tags(s.t.Context())
	require.NoError(s.t, err)
	return tags
}

// requireWhole asks cosign and wherry whether the bundle is signed and complete.
func (s *site) requireWhole(d digest.Digest) {
	s.t.Helper()
	verified := s.cosignVerify("cosign.pub", s.bundle(d))
	require.Zero(s.t, verified.code, verified.stderr)
	require.Equal(s.t, d, s.claim(verified))
	r := s.wherry("verify", "oci://"+s.bundle(d), "--key", "cosign.pub")
	require.Zero(s.t, r.code, r.stderr)
}

// bundleCopy copies the site's bundle and requires a result for each kind of thing.
func (s *site) bundleCopy(from, to string, want map[string]string) {
	s.t.Helper()
	r := s.wherry("bundle", "copy", "oci://"+s.repositoryName(from), "oci://"+to, "--key", "cosign.pub", "-o", "json")
	require.Zero(s.t, r.code, r.stderr)
	var done struct {
		Items []struct{ Kind, Result string }
	}
	require.NoError(s.t, json.Unmarshal([]byte(r.stdout), &done))
	got := map[string]string{}
	for _, i := range done.Items {
		got[i.Kind] = i.Result
	}
	require.Equal(s.t, want, got)
}

// toolPath finds a program that copies, and returns the variables that it needs.
func (s *site) toolPath(name string) (path, env string) {
	s.t.Helper()
	path, err := harness.Tool(name)
	if err != nil {
		path, err = exec.LookPath(name)
		require.NoError(s.t, err, `install %s, or run "make e2e-tools" on Debian`, name)
	}
	return path, "LD_LIBRARY_PATH=" + filepath.Join(filepath.Dir(path), "lib")
}

// tool runs such a program, with an empty home.
func (s *site) tool(name string, args ...string) {
	s.t.Helper()
	r := s.runTool(name, args...)
	require.Zero(s.t, r.code, r.stderr)
}

func (s *site) runTool(name string, args ...string) ran {
	s.t.Helper()
	path, env := s.toolPath(name)
	return executeWith(s.t, append([]string{"HOME=" + s.path("home"), env}, s.env...), s.dir, path, args...)
}

func (s *site) crane(from, to, tag string) { s.tool("crane", "copy", from+":"+tag, to+":"+tag) }

func (s *site) skopeo(from, to, tag string) {
	s.tool("skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "--dest-tls-verify=false",
		"docker://"+from+":"+tag, "docker://"+to+":"+tag)
}

// oras is what "oras copy --recursive" does: ExtendedCopy brings referrers, and signatures are none.
func (s *site) oras(from, to, tag string) {
	s.t.Helper()
	open := func(name string) *remote.Repository {
		repo, err := remote.NewRepository(name)
		require.NoError(s.t, err)
		repo.PlainHTTP = true
		return repo
	}
	_, err := oras.Copy(s.t.Context(), open(from), tag, open(to), tag, oras.DefaultCopyOptions)
	require.NoError(s.t, err)
	_, err = oras.ExtendedCopy(s.t.Context(), open(from), tag, open(to), tag, oras.DefaultExtendedCopyOptions)
	require.NoError(s.t, err)
}
