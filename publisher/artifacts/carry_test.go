package artifacts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

func TestWhatCannotBeCarriedFailsAlone(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	with := func(carry, object string) scheduler.Assignment {
		return scheduler.Assignment{Name: "a", Settings: scheduler.Settings{Carry: carry}, Files: []scheduler.File{{Path: "x.yaml", Data: []byte(object)}}}
	}
	pod := func(image string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: \"" + image + "\"}]\n"
	}
	const (
		git   = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: g}\nspec:\n  url: https://git.example/x\n  ref: {commit: 0123456789abcdef0123456789abcdef01234567}\n"
		moves = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: g}\nspec:\n  url: https://git.example/x\n  ref: {branch: main}\n"
		chart = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: g}\nspec:\n  source: {repoURL: https://charts.example, chart: db, targetRevision: 1.0.0}\n"
		zarf  = "apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nmetadata: {name: z}\nspec: {package: oci://registry.example/pkg:1}\n"
	)
	embedded := func(a scheduler.Assignment) scheduler.Assignment {
		a.Delivery = scheduler.Embedded
		return a
	}
	for _, c := range []struct {
		name       string
		assignment scheduler.Assignment
		pinned     bool // by the cluster type
		final      bool
		want       string
	}{
		{"nothing is carried", with("", pod("nginx:1")), false, true, ""},
		{"an image by digest", with("images", pod("nginx:1@"+digest)), false, true, ""},
		{"an image by tag", with("images", pod("nginx:1")), false, true, "carry: image docker.io/library/nginx:1 has no digest: annotate the cluster type with wherry.dev/pin: commit, use wherry.dev/delivery: embedded, or name a digest"},
		{"an image that will be pinned", with("images", pod("nginx:1")), true, false, ""},
		{"an image that was not pinned", with("images", pod("nginx:1")), true, true, "image docker.io/library/nginx:1 has no digest"},
		{"an image that will be embedded", embedded(with("images", pod("nginx:1"))), false, false, ""},
		{"an embedded image whose registry was not asked", embedded(with("images", pod("nginx:1"))), false, true, "image docker.io/library/nginx:1 has no digest, as its registry could not be asked, or lacks it: see that the registry answers here, or name a digest"},
		{"images in a branch", with("images", moves), false, true, "the images in git https://git.example/x#main are not known"},
		{"a commit, with images", with("images", git), false, true, ""},
		{"a commit, with all", with("all", git), false, true, "git https://git.example/x#0123456789abcdef0123456789abcdef01234567 is in no registry, and cannot be carried: use wherry.dev/delivery: embedded"},
		{"a commit that is embedded", embedded(with("all", git)), false, true, ""},
		{"a chart of a chart repository", with("all", chart), false, true, "chart https://charts.example/db:1.0.0 is in no registry"},
		{"a chart, with images", with("images", chart), false, true, ""},
		{"a package by tag, with all", with("all", zarf), false, true, "zarf oci://registry.example/pkg:1 has no digest"},
		{"a package by tag, with images", with("images", zarf), false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := with("", pod("nginx:1"))
			other.Name = "b"
			ct := scheduler.ClusterTypeResult{Name: "edge", Assignments: []scheduler.Assignment{c.assignment, other}}
			if c.pinned {
				ct.Annotations = map[string]string{scheduler.PinAnnotation: scheduler.PinCommit}
			}
			new(Finder).CheckCarry(&ct, c.final)
			if c.want == "" {
				require.Empty(t, ct.Failures)
				require.Len(t, ct.Assignments, 2)
				return
			}
			require.Len(t, ct.Failures, 1)
			require.ErrorContains(t, ct.Failures[0].Err, c.want)
			require.Equal(t, scheduler.CarryFailed, ct.Failures[0].Reason)
			require.Equal(t, []scheduler.Assignment{other}, ct.Assignments)
		})
	}
	types := []scheduler.ClusterTypeResult{{Name: "edge", Assignments: []scheduler.Assignment{with("images", pod("nginx:1"))}}}
	report := &lint.Report{Rendered: &scheduler.Result{ClusterTypes: types}, ClusterTypes: map[string]finding.Position{"edge": {File: "types.yaml", Line: 7}}}
	var l Linter
	l.Take(&types[0])
	found := l.Findings(report)
	require.Len(t, found, 2)
	require.Equal(t, finding.Finding{
		Code: "E1706", Position: finding.Position{File: "types.yaml", Line: 7},
		Message: "assignments of edge whose artifacts cannot be carried: 1, such as a: image docker.io/library/nginx:1 has no digest: annotate the cluster type with wherry.dev/pin: commit, use wherry.dev/delivery: embedded, or name a digest",
	}, found[1])
}
