package artifacts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// rendered is an assignment with one file.
func rendered(file string) scheduler.Assignment {
	return scheduler.Assignment{
		Name: "app-t1", Workload: "app", Target: "t1",
		Files: []scheduler.File{{Path: "namespace.yaml"}, {Path: "reconciler.yaml", Data: []byte(file)}},
	}
}

// listOf is what an assignment needs, one to a line.
func listOf(a scheduler.Assignment) string {
	var lines []string
	for _, n := range Of([]scheduler.Assignment{a}) {
		line := string(n.Type) + " " + n.Name + " " + n.Reference
		if n.Digest != "" {
			line += " " + n.Digest
		}
		if n.Unresolved {
			line += " unresolved"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestArtifactsAreFoundInWhatIsRendered(t *testing.T) {
	const sha = "0123456789012345678901234567890123456789"
	for name, c := range map[string]struct{ file, want string }{
		"nothing":    {"", ""},
		"plain text": {"a: b\n---\n- c\n", ""},
		"a pod's containers and volumes": {
			`{apiVersion: v1, kind: Pod, spec: {initContainers: [{image: busybox}], containers: [{image: "ghcr.io/x/y:1"}, {image: "z@` + someDigest +
				`"}], ephemeralContainers: [{image: quay.io/d}], volumes: [{name: m, image: {reference: "host:5000/model:2"}}]}}`,
			"image docker.io/library/busybox docker.io/library/busybox:latest unresolved\nimage docker.io/library/z docker.io/library/z@" + someDigest + " " + someDigest +
				"\nimage ghcr.io/x/y ghcr.io/x/y:1 unresolved\nimage host:5000/model host:5000/model:2 unresolved\nimage quay.io/d quay.io/d:latest unresolved",
		},
		"in a list, at any depth": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: batch/v1\n  kind: CronJob\n  spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: a/b:1}]}}}}}\n",
			"image docker.io/a/b docker.io/a/b:1 unresolved",
		},
		"a custom resource's image, not one of its words": {
			"apiVersion: x.io/v1\nkind: Runner\nimage: not/spec:1\nspec: {image: a.io/b:1, other: {image: plain}, values: {image: c.io/d:1}}\n",
			"image a.io/b a.io/b:1 unresolved",
		},
		"not in data":            {"apiVersion: v1\nkind: ConfigMap\ndata: {spec: {containers: [{image: a/b}]}}\n", ""},
		"no image at all":        {"apiVersion: v1\nkind: Pod\nspec: {containers: [{image: \"{{ x }}\"}, {image: ''}, {image: [a]}, {}]}\n", ""},
		"one image twice":        {"apiVersion: v1\nkind: Pod\nspec: {containers: [{image: nginx}, {image: docker.io/library/nginx:latest}]}\n", "image docker.io/library/nginx docker.io/library/nginx:latest unresolved"},
		"what stands before bad": {"apiVersion: v1\nkind: Pod\nspec: {containers: [{image: nginx}]}\n---\n{{{\n", "image docker.io/library/nginx docker.io/library/nginx:latest unresolved"},
		"Flux from git": {
			fluxGit("https://user:secret@example.com/app.git", "branch: dev"), "git example.com/app https://example.com/app.git#dev unresolved",
		},
		"Flux from git, pinned": {fluxGit("ssh://git@example.com/app", "branch: dev\n    commit: "+sha), "git example.com/app ssh://example.com/app#dev sha1:" + sha},
		"Flux from git's default": {
			"apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nspec: {url: https://example.com/app}\n", "git example.com/app https://example.com/app#master unresolved",
		},
		"Flux from a registry": {
			"apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nspec: {url: oci://registry:5000/app, ref: {semver: '>=1'}}\n", "oci registry:5000/app oci://registry:5000/app:>=1 unresolved",
		},
		"Flux's charts": {
			"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: r}\nspec: {url: https://charts.example.com/}\n---\n" +
				"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chart: {spec: {chart: db, version: 1.2.3, sourceRef: {kind: HelmRepository, name: r}}}}\n---\n" +
				"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nspec: {chart: mq, sourceRef: {kind: HelmRepository, name: r}}\n---\n" +
				"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nspec: {chart: ./charts/x, sourceRef: {kind: GitRepository, name: g}}\n",
			"chart db https://charts.example.com/db:1.2.3 unresolved\nchart mq https://charts.example.com/mq:* unresolved",
		},
		"Argo CD": {
			"apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec:\n  sources:\n  - {repoURL: https://example.com/app, targetRevision: HEAD, path: .}\n" +
				"  - {repoURL: https://example.com/b, targetRevision: " + sha + "}\n  - {repoURL: ghcr.io/charts, chart: c, targetRevision: 1.0.0}\n" +
				"  - {repoURL: https://charts.example.com, chart: d, targetRevision: 2.x}\n  - {repoURL: 'oci://ghcr.io/m', targetRevision: v1}\n",
			"chart d https://charts.example.com/d:2.x unresolved\nchart ghcr.io/charts/c oci://ghcr.io/charts/c:1.0.0 unresolved\n" +
				"git example.com/app https://example.com/app unresolved\ngit example.com/b https://example.com/b#" + sha + " sha1:" + sha + "\noci ghcr.io/m oci://ghcr.io/m:v1 unresolved",
		},
		"a prebuilt Zarf package": {
			"apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nspec: {package: 'oci://ghcr.io/pkg:1.0.0'}\n---\n" +
				"apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nspec: {package: 'oci://ghcr.io/b@" + someDigest + "'}\n",
			"zarf ghcr.io/b oci://ghcr.io/b@" + someDigest + " " + someDigest + "\nzarf ghcr.io/pkg oci://ghcr.io/pkg:1.0.0 unresolved",
		},
		"a Zarf package's parts": {
			"kind: ZarfPackageConfig\ncomponents:\n- images: [nginx:1]\n  charts: [{name: c, url: https://charts.example.com, version: 1.0.0}, {name: d, url: 'oci://ghcr.io/d', version: 2.0.0}]\n" +
				"  repos: ['https://example.com/r.git@v1']\n  import: {url: 'oci://ghcr.io/pkg:1.0.0'}\n",
			"chart c https://charts.example.com/c:1.0.0 unresolved\nchart ghcr.io/d oci://ghcr.io/d:2.0.0 unresolved\ngit example.com/r https://example.com/r.git#v1 unresolved\n" +
				"image docker.io/library/nginx docker.io/library/nginx:1 unresolved\nzarf ghcr.io/pkg oci://ghcr.io/pkg:1.0.0 unresolved",
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, listOf(rendered(c.file))) })
	}
}

func fluxGit(url, ref string) string {
	return "apiVersion: source.toolkit.fluxcd.io/v1beta2\nkind: GitRepository\nmetadata:\n  name: app\nspec:\n  url: " + url + "\n  ref:\n    " + ref + "\n"
}

func TestArtifactsAreFoundInTheTargetsManifests(t *testing.T) {
	for name, c := range map[string]struct {
		manifests map[string]string
		adapter   string
		want      string
	}{
		"git":                  {map[string]string{"repo": "https://example.com/app", "branch": "dev", "path": "./x"}, "ansible", "git example.com/app https://example.com/app#dev unresolved"},
		"a registry":           {map[string]string{"repo": "oci://ghcr.io/app", "tag": "v1"}, "flux", "oci ghcr.io/app oci://ghcr.io/app:v1 unresolved"},
		"a chart":              {map[string]string{"repo": "https://charts.example.com", "chart": "db", "version": "1.0.0"}, "flux", "chart db https://charts.example.com/db:1.0.0 unresolved"},
		"a Zarf package":       {map[string]string{"package": "oci://ghcr.io/pkg@" + someDigest}, "zarf", "zarf ghcr.io/pkg oci://ghcr.io/pkg@" + someDigest + " " + someDigest},
		"Zarf's adapter":       {map[string]string{"repo": "oci://ghcr.io/pkg:1"}, "zarf", "zarf ghcr.io/pkg oci://ghcr.io/pkg:1 unresolved"},
		"an image":             {map[string]string{"image": "nginx:1.29"}, "", "image docker.io/library/nginx docker.io/library/nginx:1.29 unresolved"},
		"other people's words": {map[string]string{"repo": "app", "storage": "git", "image": "Not An Image", "package": "x.tar"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := rendered("")
			a.Manifests, a.Adapter = c.manifests, c.adapter
			require.Equal(t, c.want, listOf(a))
		})
	}
	a := rendered(fluxGit("https://example.com/app.git", "branch: prod"))
	a.Manifests = map[string]string{"repo": "https://example.com/app", "branch": "dev"}
	require.Equal(t, "git example.com/app https://example.com/app.git#prod unresolved", listOf(a), "what is rendered counts")
}

func TestArtifactsSayWhoUsesThem(t *testing.T) {
	a, b := rendered(fluxGit("https://example.com/app", "branch: dev")), rendered(fluxGit("https://example.com/app", "branch: dev"))
	b.Name = "app-t0"
	b.Pinned = []scheduler.Pinned{{Type: "git", Reference: "https://example.com/app#dev", Digest: "sha1:12", Size: 4}}
	require.Equal(t, []bundle.Artifact{
		{Type: "git", Name: "example.com/app", Reference: "https://example.com/app#dev", Unresolved: true, UsedBy: []string{"app-t1"}},
		{Type: "git", Name: "example.com/app", Reference: "https://example.com/app#dev", Digest: "sha1:12", Size: 4, UsedBy: []string{"app-t0"}},
	}, Of([]scheduler.Assignment{a, b}))
}

func TestImagesAreReadAsEnginesReadThem(t *testing.T) {
	for text, want := range map[string]string{
		"nginx": "docker.io/library/nginx:latest", "nginx:1.29": "docker.io/library/nginx:1.29", "org/app": "docker.io/org/app:latest",
		"localhost/app": "localhost/app:latest", "localhost:5000/a/b:c": "localhost:5000/a/b:c", "registry.k8s.io/pause:3.10": "registry.k8s.io/pause:3.10",
		"index.docker.io/nginx": "docker.io/library/nginx:latest", "ghcr.io/a/b:1@" + someDigest: "ghcr.io/a/b:1", "a@" + someDigest: "docker.io/library/a@" + someDigest,
	} {
		src, err := sources.ParseImage(text)
		require.NoError(t, err, text)
		require.Equal(t, want, src.Reference(), text)
	}
	for _, text := range []string{"", "Nginx", "nginx:", "a b", "nginx@sha256:12", "https://example.com/x", "${IMAGE}", "/x"} {
		_, err := sources.ParseImage(text)
		require.Error(t, err, text)
	}
}

// TestWhatFollowsAnUnlistedSource: of some sources no artifact tells, so that their assignments count as floating.
func TestWhatFollowsAnUnlistedSource(t *testing.T) {
	const source = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: https://git/app, ref: {commit: 0123456789012345678901234567890123456789}}\n---\n"
	const kustomization = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: app}\nspec: {sourceRef: {kind: GitRepository, name: app}}\n"
	for _, c := range []struct {
		name, file string
		want       bool
	}{
		{"plain objects", "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: a/b:1}]}\n", false},
		{"a source of its own", source + kustomization, false},
		{"a source of its own, after it", kustomization + "---\n" + strings.TrimSuffix(source, "---\n"), false},
		{"a source of somebody else", kustomization, true},
		{"a source of the name, of another kind", strings.Replace(source, "GitRepository", "OCIRepository", 1) + kustomization, true},
		{"an object of the kind and name of another group", strings.Replace(source, "source.toolkit.fluxcd.io", "example.com", 1) + kustomization, true},
		{"a bucket", "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: b}\nspec: {}\n", true},
		{"a set of applications", "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: b}\nspec: {}\n", true},
		{"a release of a chart of somebody else", "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chartRef: {kind: OCIRepository, name: x}}\n", true},
		{"a release of a chart in somebody else's repository", "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chart: {spec: {chart: ./c, sourceRef: {kind: GitRepository, name: x}}}}\n", true},
		{"a release whose chart is listed", "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chart: {spec: {chart: c, sourceRef: {kind: HelmRepository, name: x}}}}\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, unlisted := new(Finder).Find([]scheduler.Assignment{rendered(c.file)})
			require.Equal(t, []bool{c.want}, unlisted)
		})
	}
}
