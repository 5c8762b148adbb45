package oci_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     oci.Location
	}{
		{"a registry with port and prefix", "oci://registry.plant-7:5000/line/a", oci.Location{Host: "registry.plant-7:5000", Prefix: "line/a"}},
		{"a registry alone", "oci://127.0.0.1:5000", oci.Location{Host: "127.0.0.1:5000"}},
		{"an IPv6 address", "oci://[::1]:5000/edge", oci.Location{Host: "[::1]:5000", Prefix: "edge"}},
		{"a slash at the end", "oci://ghcr.io/acme/", oci.Location{Host: "ghcr.io", Prefix: "acme"}},
		{"a folder", "oci-layout:./out", oci.Location{Dir: "./out"}},
		{"an archive", "oci-archive:/media/usb/site.tar", oci.Location{Archive: "/media/usb/site.tar"}},
		{"an archive in parts", "oci-archive:a/site.tar.001,b/site.tar.002", oci.Location{Archive: "a/site.tar.001,b/site.tar.002"}},
		{"a folder with a colon", "oci-layout:/media/usb:1", oci.Location{Dir: "/media/usb:1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := oci.Parse(tc.in)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			again, err := oci.Parse(got.String())
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", "write oci://HOST/PREFIX for a registry, oci-layout:DIR for a folder"},
		{"no scheme", "registry.plant-7/edge", "write oci://HOST/PREFIX"},
		{"another scheme", "https://registry.plant-7/edge", "write oci://HOST/PREFIX"},
		{"no host", "oci:///edge", "no registry host"},
		{"a space in the host", "oci://reg istry/edge", "is not a registry host"},
		{"credentials", "oci://me:secret@registry/edge", "use wherry login"},
		{"a prefix in upper case", "oci://registry/Edge", "lower case only"},
		{"a tag", "oci://registry/edge:latest", "is not a repository name"},
		{"an empty part", "oci://registry/a//b", "is not a repository name"},
		{"dots", "oci://registry/../b", "is not a repository name"},
		{"no folder", "oci-layout:", "names no folder"},
		{"no file", "oci-archive:", "names no file"},
		{"a part without a name", "oci-archive:site.tar.001,", "names no file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := oci.Parse(tc.in)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestParseReference(t *testing.T) {
	d := digest.FromString("manifest")
	registry, layout := oci.Location{Host: "registry:5000"}, oci.Location{Dir: "/srv/out"}
	for _, tc := range []struct {
		name, in string
		want     oci.Reference
	}{
		{"a repository", "oci://registry:5000/edge/bundles/dev/drone", oci.Reference{Location: registry, Repository: "edge/bundles/dev/drone"}},
		{"a tag", "oci://registry:5000/edge/bundles/dev/drone:s0-17", oci.Reference{Location: registry, Repository: "edge/bundles/dev/drone", Tag: "s0-17"}},
		{"a digest", "oci://registry:5000/edge/bundles/dev/drone@" + d.String(), oci.Reference{Location: registry, Repository: "edge/bundles/dev/drone", Digest: d}},
		{"a layout's repository", "oci-layout:/srv/out/bundles/dev/drone", oci.Reference{Location: layout, Repository: "bundles/dev/drone"}},
		{"a layout's repository after a colon", "oci-layout:/srv/out:bundles/dev/drone:latest", oci.Reference{Location: layout, Repository: "bundles/dev/drone", Tag: "latest"}},
		{"a layout's ref name", "oci-layout:/srv/out:bundles/dev/drone/latest", oci.Reference{Location: layout, Repository: "bundles/dev/drone/latest"}},
		{"an archive's repository", "oci-archive:site.tar/bundles/dev/drone:12", oci.Reference{Location: oci.Location{Archive: "site.tar"}, Repository: "bundles/dev/drone", Tag: "12"}},
		{"an archive's ref name", "oci-archive:site.tar:bundles/dev/drone/latest", oci.Reference{Location: oci.Location{Archive: "site.tar"}, Repository: "bundles/dev/drone/latest"}},
		{"a layout's digest", "oci-layout:/srv/out/environments/dev@" + d.String(), oci.Reference{Location: layout, Repository: "environments/dev", Digest: d}},
		{
			"a layout below folders of that name", "oci-layout:/srv/bundles/x/bundles/dev/drone:latest",
			oci.Reference{Location: oci.Location{Dir: "/srv/bundles/x"}, Repository: "bundles/dev/drone", Tag: "latest"},
		},
		{
			"a layout in a folder with a colon and an at sign", "oci-layout:a:b@c/bundles/dev/drone",
			oci.Reference{Location: oci.Location{Dir: "a:b@c"}, Repository: "bundles/dev/drone"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := oci.ParseReference(tc.in)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			again, err := oci.ParseReference(got.String())
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

func TestParseReferenceSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"a registry alone", "oci://registry:5000", "names no repository"},
		{"a layout alone", "oci-layout:out", "names no repository"},
		{"a layout's folder", "oci-layout:/srv/out", "names no repository"},
		{"a short digest", "oci://registry/edge/bundles/dev/drone@sha256:12", "invalid checksum digest length"},
		{"a tag with a slash", "oci://registry/edge:a/b", "is not a repository name"},
		{"a tag with a plus", "oci://registry/edge/x:a+b", "is not a tag"},
		{"a file", "site.tar", "write oci://HOST/PREFIX"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := oci.ParseReference(tc.in)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add("oci://registry:5000/edge/bundles/dev/drone:s0-17")
	f.Add("oci-layout:/srv/out:bundles/dev/drone/latest")
	f.Add("oci-layout:a:b@c/environments/dev@sha256:" + digest.FromString("x").Encoded())
	f.Fuzz(func(t *testing.T, s string) {
		r, err := oci.ParseReference(s)
		if err != nil {
			return
		}
		again, err := oci.ParseReference(r.String())
		require.NoError(t, err, "printed as %q", r)
		require.Equal(t, r, again)
	})
}

func TestCopiesOfOtherRegistriesHaveNames(t *testing.T) {
	for repository, want := range map[string]string{
		"ghcr.io/acme/app":              "ghcr.io/acme/app",
		"registry.plant-7:5000/team/x":  "registry.plant-7_5000/team/x",
		"Registry.example/app":          "registry.example/app",
		"docker.io/library/nginx":       "docker.io/library/nginx",
		"[::1]:5000/app":                "", // no name of a repository
		"app":                           "",
		"registry.example/not a name/x": "",
	} {
		got, err := oci.MirrorName(repository)
		if want == "" {
			require.Error(t, err, repository)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
