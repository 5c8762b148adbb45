//go:build e2e

package promotion

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

// delivered are the workloads of two teams. Team shop has menu, which moves by its folders, and cart, which moves by the image behind a tag and
// whose folder for prod lies on a branch of its own. Team till has till, a chart by a range of versions.
var delivered = []string{"menu", "cart", "till"}

// What teams deliver goes from dev to all rings of prod as the clusters prove it, workload by workload, at one base commit.
func TestWhatTeamsDeliverReachesProductionOnceItIsProved(t *testing.T) {
	for name, withHub := range map[string]bool{"with a hub": true, "with the registry alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contentStory(t, withHub)
		})
	}
}

func contentStory(t *testing.T, withHub bool) {
	w := newWorld(t)
	w.teams()
	w.settle(withHub)
	all := w.of("prod")
	canary, early := w.of("prod", "canary"), w.of("prod", "early")
	w.have("one", "one", "1.0.0", all...)

	// All of them deliver. Nothing moves before dev has it.
	w.menu("two")
	w.image("two")
	w.chart("1.1.0")
	w.killed(places, 0, w.publish("dev")...)
	require.Regexp(t, `waits: menu [0-9a-f]{12} waits for dev: `, w.said(w.promote("stage")))
	w.visit(w.of("dev")...)
	w.killed(places, 0, w.promote("stage")...)
	w.killed(places, 0, w.promote("prod")...) // stage has not got it yet

	// menu fails on one cluster of stage, which holds nobody else.
	mend := w.block(w.of("stage")[0], "menu-s")
	w.visit(w.of("stage")...)
	w.killed(places, 0, w.promote("prod")...)
	require.Regexp(t, `waits: menu [0-9a-f]{12} waits for stage: `, w.said(w.promote("prod")))
	w.visit(all...)
	w.have("one", "two", "1.1.0", canary...)
	w.have("one", "one", "1.0.0", early...)

	// It is mended, and enters prod when the batch before is through.
	mend()
	w.visit(w.of("stage")...)
	require.Contains(t, w.said(w.promote("prod")), "has to reach ring stable first")
	w.through()
	w.have("one", "two", "1.1.0", all...)
	w.killed(places, 0, w.promote("prod")...)
	w.visit(all...)
	w.have("two", "two", "1.1.0", canary...)
	w.through()
	w.have("two", "two", "1.1.0", all...)

	// The team of cart decides about its branch for prod. An image that only that branch names waits.
	w.oracle.allow("prod", "cart", "hotfix")
	w.cart("hotfix", "1")
	w.killed(places, 0, w.promote("prod")...)
	w.visit(all...)
	require.Contains(t, w.parts(canary[0], "cart"), "hotfix")
	w.push("images/cart", "2", ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip, []byte("image of nobody"))
	w.cart("hotfix", "2")
	require.Contains(t, w.said(w.promote("prod")), "waits: cart waits: stage has not proved image ")
	w.cart("hotfix", "1")

	// So does the team of menu about its folder for prod. It comes with the commit that the environments below were read at.
	w.oracle.allow("prod", "menu", "wide")
	w.menuOf("two", "wide")
	w.killed(places, 0, w.promote("prod")...)
	w.killed(places, 0, w.publish("dev")...)
	w.killed(places, 0, w.promote("stage")...)
	w.killed(places, 0, w.promote("prod")...)
	w.visit(all...)
	require.Contains(t, w.parts(canary[0], "menu"), "wide")

	// A person signs for what only dev has.
	w.menu("three")
	w.must(w.publish("dev")...)
	w.oracle.allow("prod", "menu", "three")
	w.killed(places, 0, w.publish("prod", "--unproved", "orders fail", "--unproved-workload", "shop/menu")...)
	w.visit(all...)
	require.Contains(t, w.parts(canary[0], "menu"), "three")
	require.Contains(t, w.parts(early[0], "menu"), "two")
	w.oracle.check()

	// The oracle sees what nobody has signed for.
	var wrong []string
	w.oracle.wrong = func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	w.menu("four")
	w.must(w.publish("prod", "--unproved", "the oracle has to see it", "--unproved-workload", "shop/menu")...)
	w.oracle.check()
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "menu-p has four")
}

// have requires that sites run these parts of menu, cart and till.
func (w *world) have(menu, cart, till string, sites ...*site) {
	w.t.Helper()
	image := w.images[cart]
	for _, s := range sites {
		require.Contains(w.t, w.parts(s, "menu"), menu, s.name)
		require.Contains(w.t, w.parts(s, "cart"), image, s.name)
		require.Contains(w.t, w.parts(s, "till"), till, s.name)
	}
}

// said runs a command that ends well, and returns what it says to people.
func (w *world) said(args []string) string {
	w.t.Helper()
	r := w.run(0, args...)
	require.Zero(w.t, r.code, "%s%s", r.stdout, r.stderr)
	w.oracle.check()
	return r.stderr
}

// through brings what the first ring has to the last one.
func (w *world) through() {
	w.t.Helper()
	for range 2 {
		w.visit(w.of("prod")...)
		w.must(w.advance()...)
		w.oracle.check()
	}
	w.visit(w.of("prod")...)
}

// parts returns what distinguishes the revision of a workload that a site runs.
func (w *world) parts(s *site, workload string) (all []string) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.root(s), workload+"-*", bundle.ManifestsDir, "*"))
	require.NoError(w.t, err)
	more, err := filepath.Glob(filepath.Join(w.root(s), workload+"-*", bundle.ManifestsDir, "templates", "*.yaml"))
	require.NoError(w.t, err)
	for _, name := range append(files, more...) {
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			data, err := os.ReadFile(name)
			require.NoError(w.t, err)
			all = append(all, partsOf(data)...)
		}
	}
	return all
}

// block puts somebody else's file in the place of an assignment at a site, so that it fails there.
func (w *world) block(s *site, assignment string) (mend func()) {
	folder := filepath.Join(w.root(s), assignment)
	require.NoError(w.t, os.RemoveAll(folder))
	require.NoError(w.t, os.WriteFile(folder, []byte("of somebody else\n"), 0o644))
	return func() { require.NoError(w.t, os.RemoveAll(folder)) }
}

const deliveredObject = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: %[1]s, annotations: {wherry.dev/delivery: embedded}}
spec:
  deploymentTargets:
    - {name: d, environment: dev, manifests: {%[2]s}}
    - {name: s, environment: stage, manifests: {%[2]s}}
    - {name: p, environment: prod, manifests: {%[3]s}}
`

const textObject = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-text}\ndata: {is: %q}\n"

// teams makes the repositories of two teams, an image and a chart, and has the platform register them.
func (w *world) teams() {
	w.t.Helper()
	w.images = map[string]string{}
	for _, team := range []string{"shop", "till"} {
		w.main[team+".yaml"] = fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: %[1]s}\nspec: {workload: {repo: %[2]q, branch: main, path: .}, workspace: %[1]s}\n",
			team, "https://git.example/"+team)
	}
	w.image("one")
	w.chart("1.0.0")
	w.menu("one")
	w.cart("own", "1")
	w.oracle.allow("prod", "cart", "own")
	charts := fmt.Sprintf(`repo: "%s/charts", chart: till, version: "1.x"`, w.to)
	gittest.CommitFiles(w.t, w.path("till.git"), "main", map[string]string{"workload.yaml": fmt.Sprintf(deliveredObject, "till", charts, charts)})
	w.oracle.begin(w.change("one"))
}

// menu has team shop commit another text to the folders of menu.
func (w *world) menu(text string) {
	w.t.Helper()
	w.menuOf(text, text)
}

// menuOf is menu with a text of its own for the folder of prod.
func (w *world) menuOf(text, prod string) {
	w.t.Helper()
	own := fmt.Sprintf("repo: %q, branch: prod, path: cart", "https://git.example/shop")
	gittest.CommitFiles(w.t, w.path("shop.git"), "main", map[string]string{
		".sourceignore":    "menu\nmenu-prod\ncart\n",
		"workloads.yaml":   fmt.Sprintf(deliveredObject, "menu", "path: ./menu", "path: ./menu-prod") + "---\n" + fmt.Sprintf(deliveredObject, "cart", "path: ./cart", own),
		"menu/text.yaml":   fmt.Sprintf(textObject, "menu", text),
		"menu-prod/t.yaml": fmt.Sprintf(textObject, "menu", prod),
		"cart/deploy.yaml": w.deployment("1"),
	})
}

// cart has team shop commit another text, and the tag of an image, to the branch for prod.
func (w *world) cart(text, tag string) {
	w.t.Helper()
	gittest.CommitFiles(w.t, w.path("shop.git"), "prod", map[string]string{"cart/text.yaml": fmt.Sprintf(textObject, "cart", text), "cart/deploy.yaml": w.deployment(tag)})
}

func (w *world) deployment(tag string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: "%s/images/cart:%s"}]}
`, strings.TrimPrefix(w.to, "oci://"), tag)
}

// image has team shop push another image under the same tag.
func (w *world) image(text string) {
	w.t.Helper()
	w.images[text] = w.push("images/cart", "1", ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip, []byte("image "+text)).Digest.String()
}

// chart has team till push a version of its chart.
func (w *world) chart(version string) {
	w.t.Helper()
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	for _, f := range [][2]string{
		{"till/Chart.yaml", "apiVersion: v2\nname: till\nversion: " + version + "\n"},
		{"till/templates/config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: till-text}\ndata: {is: {{ .Chart.Version | quote }}}\n"},
	} {
		require.NoError(w.t, files.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := files.Write([]byte(f[1]))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, errors.Join(files.Close(), packed.Close()))
	w.push("charts/till", version, "application/vnd.cncf.helm.config.v1+json", "application/vnd.cncf.helm.chart.content.v1.tar+gzip", archive.Bytes())
}

// push pushes an artifact of one layer to the registry, and moves a tag to it.
func (w *world) push(name, tag, config, layer string, data []byte) ocispec.Descriptor {
	w.t.Helper()
	repository, err := w.oracle.store.Repository(name)
	require.NoError(w.t, err)
	put := func(mediaType string, data []byte) ocispec.Descriptor {
		d := content.NewDescriptorFromBytes(mediaType, data)
		if err := repository.Push(w.t.Context(), d, bytes.NewReader(data)); !errors.Is(err, errdef.ErrAlreadyExists) {
			require.NoError(w.t, err)
		}
		return d
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: put(config, []byte("{}")), Layers: []ocispec.Descriptor{put(layer, data)},
	})
	require.NoError(w.t, err)
	d := put(ocispec.MediaTypeImageManifest, manifest)
	require.NoError(w.t, repository.Tag(w.t.Context(), d, tag))
	return d
}
