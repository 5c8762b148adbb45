package scaffold

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/publisher/author"
	"github.com/wherry-dev/wherry/publisher/findings"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

func start(t *testing.T, flavour string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "My Fleet")
	plan, err := Init(t.Context(), dir, Start{Flavour: flavour, Environments: []string{"dev", "prod"}, Repo: ".", Branch: "main"})
	require.NoError(t, err)
	require.NoDirExists(t, dir)
	require.NoError(t, plan.Apply())
	return dir
}

func requireClean(t *testing.T, dir string) {
	t.Helper()
	result, err := findings.Collect(t.Context(), []platform.Source{{Platform: dir}}, findings.Options{})
	require.NoError(t, err)
	for _, f := range result.Findings {
		require.Equal(t, "note", f.Severity, "%s:%d: %s: %s", f.File, f.Line, f.Code, f.Message)
	}
	require.Equal(t, []string{"dev", "prod"}, result.Environments[:2])
}

func add(t *testing.T, dir string, r Request) string {
	t.Helper()
	p, err := author.Open(t.Context(), dir)
	require.NoError(t, err)
	plan, name, err := New(t.Context(), p, r)
	require.NoError(t, err)
	require.Empty(t, plan.Warnings)
	require.NoError(t, plan.Apply())
	return name
}

// Whatever the expression is, the file has it as it was given: it is refused with its place, or the platform lints and renders.
func TestAChecksExpressionIsKeptOrRefused(t *testing.T) {
	dir := start(t, "empty")
	add(t, dir, Request{Kind: "Workload", Name: "hello", Environments: []string{"dev"}, Manifests: map[string]string{"image": "registry.example/hello:1.0"}})
	values := []string{"a: b # c", `\\'`, "{a}", "*a", "|", "%", "- a", "null", "\u2028\ufeff", "{{ .A }}", "\t"}
	var written []string
	for i, value := range values {
		for j, expression := range []string{
			`object.metadata.name != "` + value + `"`, `"` + value + `" != object.metadata.name &&` + "\n  true ",
			value + " != object.kind", "size(\"" + value + "\") >",
		} {
			p, err := author.Open(t.Context(), dir)
			require.NoError(t, err)
			name := fmt.Sprintf("c%d-%d", i, j)
			plan, file, err := New(t.Context(), p, Request{Kind: "PlatformCheck", Name: name, Expression: expression})
			if err != nil {
				require.ErrorContains(t, err, fmt.Sprintf("PlatformCheck %q: ", name), expression)
				require.NotEmpty(t, finding.In(err))
				require.NoFileExists(t, filepath.Join(dir, file))
				continue
			}
			require.NotEqual(t, 3, j, "it is no expression: %s", expression)
			require.Empty(t, plan.Warnings, expression)
			require.NoError(t, plan.Apply())
			data, err := os.ReadFile(filepath.Join(dir, file))
			require.NoError(t, err)
			var o kinds.PlatformCheck
			var n yaml.Node
			require.NoError(t, yaml.Unmarshal(data, &n))
			require.Empty(t, kinds.Decode(file, n.Content[0], &o, false).Errs)
			require.Equal(t, expression, o.Spec.Expression.Value)
			written = append(written, name)
		}
	}
	require.GreaterOrEqual(t, len(written), 2*len(values))
	requireClean(t, dir)
	_, err := platform.Build(t.Context(), platform.Source{Platform: dir, Environment: "dev"}, platform.Options{ToSign: true})
	require.NoError(t, err)
}

func TestANewPlatformIsClean(t *testing.T) {
	for _, flavour := range Flavours {
		t.Run(flavour, func(t *testing.T) {
			dir := start(t, flavour)
			requireClean(t, dir)
			add(t, dir, Request{Kind: "Workload", Name: "hello", Environments: []string{"dev", "prod"}, Manifests: map[string]string{
				"repo": "https://git.example/hello", "branch": "main", "path": "./deploy", "image": "registry.example/hello:1.0",
			}})
			requireClean(t, dir)
			built, err := platform.Build(t.Context(), platform.Source{Platform: dir, Environment: "prod"}, platform.Options{ToSign: true})
			require.NoError(t, err)
			require.Equal(t, "my-fleet", built.Result.Platform)
			for _, ct := range built.Result.ClusterTypes {
				require.Len(t, ct.Assignments, 1, ct.Name)
				require.NotEmpty(t, ct.Assignments[0].Files)
			}
		})
	}
}

func TestASecondInitChangesNothing(t *testing.T) {
	dir := start(t, "empty")
	_, err := Init(t.Context(), dir, Start{Flavour: "flux", Environments: []string{"dev"}})
	require.ErrorContains(t, err, "is a platform already: it has wherry.yaml, .environments/dev.yaml, .environments/prod.yaml, configs/common.yaml, dev/cluster-types/edge.yaml and ")
	_, err = Init(t.Context(), dir, Start{Flavour: "helm", Environments: []string{"dev"}})
	require.ErrorContains(t, err, `unknown flavour "helm"`)
	_, err = Init(t.Context(), t.TempDir(), Start{Flavour: "flux", Environments: []string{"Dev"}})
	require.ErrorContains(t, err, `Environment cannot be called "Dev"`)
	_, err = Init(t.Context(), t.TempDir(), Start{Flavour: "flux", Environments: []string{"templates"}})
	require.ErrorContains(t, err, "would share its folder")
}

func TestFilesThatAreThereStay(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("dist\n"), 0o600))
	plan, err := Init(t.Context(), dir, Start{Name: "fleet", Flavour: "flux", Environments: []string{"dev"}, Registry: "oci://registry.example/edge", KeyPrefix: "keys/release", Repo: ".", Branch: "main"})
	require.NoError(t, err)
	require.Len(t, plan.Notes, 1)
	require.NoError(t, plan.Apply())
	data, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, "dist\n", string(data))
	data, err = os.ReadFile(filepath.Join(dir, "wherry.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(data), "\nenvironment: dev # of commands without -e\nregistry: oci://registry.example/edge # where releases are published\nkeys: [keys/release.pub] #")
}

func TestNewObjectsGoWhereTheirKindLies(t *testing.T) {
	dir := start(t, "kalypso")
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{Kind: "ClusterType", Name: "kiosk", Environments: []string{"dev"}}, "dev/cluster-types/kiosk.yaml"},
		{Request{Kind: "ClusterType", Name: "shared", Shared: true, ConfigType: "envFile", Reconciler: "argocd"}, "cluster-types/shared.yaml"},
		{Request{Kind: "SchedulingPolicy", Name: "kiosk", Environments: []string{"dev"}, Workspace: "shop-team", TargetLabels: map[string]string{"purpose": "on"}, TypeLabels: map[string]string{"type": "kiosk"}}, "dev/scheduling/kiosk.yaml"},
		{Request{Kind: "WorkloadRegistration", Name: "shop", Repo: "https://git.example/shop", Branch: "main", Folder: ".", Workspace: "shop-team"}, "workloads/shop.yaml"},
		{Request{Kind: "Template", Name: "objects", Text: "plain"}, "templates/objects.yaml"},
		{Request{Kind: "Template", Name: "tenant", Text: "namespace-service"}, "templates/tenant.yaml"},
		{Request{Kind: "ConfigMap", Name: "north", Labels: map[string]string{"type": "edge"}, Data: map[string]string{"A": "1", "B": "x, y", "multi-line": "a\nb"}}, "configs/north.yaml"},
		{Request{Kind: "ConfigMap", Name: "kiosk", Environments: []string{"dev"}, Labels: map[string]string{"cluster-type": "kiosk"}}, "dev/configs/kiosk.yaml"},
		{Request{Kind: "ConfigSchema", Name: "all", Required: []string{"ENVIRONMENT", "PLATFORM"}}, "schemas/all.yaml"},
		{Request{Kind: "PromotionPolicy", Name: "fleet", Environments: []string{"dev", "prod"}, Rings: []string{"canary", "stable"}}, "rings.yaml"},
		{Request{Kind: "Cluster", Name: "plant-7", ClusterType: "kiosk", UID: "4be1c9", Environments: []string{"dev"}}, "dev/clusters/plant-7.yaml"},
		{Request{Kind: "Environment", Name: "stage"}, ".environments/stage.yaml"},
		{Request{Kind: "ClusterType", Name: "edge", Environments: []string{"stage"}}, "stage/cluster-types/edge.yaml"},
		{Request{Kind: "Workload", Name: "hello", Environments: []string{"dev"}, Labels: map[string]string{"a": "b"}, TargetLabels: map[string]string{"purpose": "on"}, Manifests: map[string]string{"image": "i"}}, "workloads/hello.yaml"},
		{Request{Kind: "Workload", Name: "shop", Environments: []string{"dev"}, Manifests: map[string]string{"image": "i"}}, "workloads/shop-workload.yaml"},
	} {
		require.Equal(t, tt.want, add(t, dir, tt.r))
	}
	p, err := author.Open(t.Context(), dir)
	require.NoError(t, err)
	found, err := p.Mistakes(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	result, err := findings.Collect(t.Context(), []platform.Source{{Platform: dir, Environment: "dev", Bases: []string{dir}, Workloads: map[string]string{"shop": t.TempDir()}}}, findings.Options{})
	require.NoError(t, err)
	require.Zero(t, result.Errors, "%v", result.Findings)
}

func TestAnEnvironmentOnABranchOfItsOwn(t *testing.T) {
	dir := start(t, "kalypso")
	require.Equal(t, ".environments/stage.yaml", add(t, dir, Request{Kind: "Environment", Name: "stage", Folder: ".", Branch: "stage"}))
	p, err := author.Open(t.Context(), dir)
	require.NoError(t, err)
	e, err := p.Environment("stage")
	require.NoError(t, err)
	require.Equal(t, "stage", e.Branch)
	require.Empty(t, e.Folder)

	branch := t.TempDir() // which has no Template
	add(t, branch, Request{Kind: "ClusterType", Name: "edge", Reconciler: "flux", NamespaceService: "namespace"})
}

func TestWhatCannotBeNew(t *testing.T) {
	dir := start(t, "kalypso")
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{Kind: "ClusterType", Name: "kiosk"}, "a ClusterType lies in the folder of an environment: dev, prod"},
		{Request{Kind: "ClusterType", Name: "edge", Environments: []string{"dev"}}, `dev/cluster-types/edge.yaml:2: there is a ClusterType "edge" already`},
		{Request{Kind: "ClusterType", Name: "edge", Shared: true}, `there is a ClusterType "edge" already`},
		{Request{Kind: "ClusterType", Name: "Edge", Shared: true}, `ClusterType cannot be called "Edge"`},
		{Request{Kind: "ClusterType", Name: "kiosk", Environments: []string{"stage"}}, `no Environment object is called "stage"`},
		{Request{Kind: "ClusterType", Name: "kiosk", Environments: []string{"dev"}, Reconciler: "fluks"}, `there is no Template "fluks"`},
		{Request{Kind: "Template", Name: "x", Text: "helm"}, `no built-in template is called "helm"`},
		{Request{Kind: "WorkloadRegistration", Name: "x", Repo: "https://me:secret@git.example/x", Workspace: "w"}, "the URL has credentials"},
		{Request{Kind: "WorkloadRegistration", Name: "x"}, "needs the repository of the app team"},
		{Request{Kind: "Cluster", Name: "x", ClusterType: "edg", Environments: []string{"dev"}}, `there is no ClusterType "edg"`},
		{Request{Kind: "Workload", Name: "x"}, "needs an environment to run in"},
		{Request{Kind: "PromotionPolicy", Name: "x", Rings: []string{"a", "a"}, Environments: []string{"dev"}}, "ring"},
		{Request{Kind: "Environment", Name: "configs"}, "folder configs is there already"},
		{Request{Kind: "Environment", Name: "dev"}, `there is an Environment "dev" already`},
		{Request{Kind: "Environment", Name: "x", Folder: "../x"}, "must be a folder of the platform"},
	} {
		p, err := author.Open(t.Context(), dir)
		require.NoError(t, err)
		_, _, err = New(t.Context(), p, tt.r)
		require.ErrorContains(t, err, tt.want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// Each Template that is written renders, and what it renders may be signed.
func TestEveryReconcilerRenders(t *testing.T) {
	chart := map[string]string{"repo": "oci://registry.example/charts", "chart": "db", "version": "1.2.3", "values": "replicas: 2\nname: a\n"}
	git := map[string]string{"repo": "https://git.example/hello", "branch": "main", "path": "./deploy"}
	for text, c := range map[string]struct {
		manifests map[string]string
		namespace string
		adapter   string
	}{
		"flux": {git, "namespace", "flux"}, "argocd": {git, "namespace", "argo"}, "helmrelease": {chart, "namespace", "flux"},
		"argocd-chart": {chart, "namespace", "argo"}, "ansible": {git, "ansible-user", "ansible"}, "empty": {git, "namespace", "kubernetes"},
		"plain": {map[string]string{"image": "registry.example/hello:1.0"}, "namespace", "kubernetes"},
	} {
		t.Run(text, func(t *testing.T) {
			dir := start(t, "empty")
			for _, name := range []string{text, c.namespace} {
				if name != "namespace" && name != "plain" {
					add(t, dir, Request{Kind: "Template", Name: name, Text: name})
				}
			}
			config := map[string]string{"ansible": "envFile"}[text]
			add(t, dir, Request{Kind: "ClusterType", Name: "kiosk", Environments: []string{"prod"}, Reconciler: text, NamespaceService: c.namespace, ConfigType: config, Labels: map[string]string{"type": "kiosk"}})
			add(t, dir, Request{Kind: "SchedulingPolicy", Name: "kiosk", Environments: []string{"prod"}, TypeLabels: map[string]string{"type": "kiosk"}})
			add(t, dir, Request{Kind: "Workload", Name: "hello", Environments: []string{"prod"}, Manifests: c.manifests})
			built, err := platform.Build(t.Context(), platform.Source{Platform: dir, Environment: "prod"}, platform.Options{ToSign: true})
			require.NoError(t, err)
			for _, ct := range built.Result.ClusterTypes {
				if ct.Name != "kiosk" {
					continue
				}
				require.Empty(t, ct.Failures)
				require.Len(t, ct.Assignments, 1)
				require.Equal(t, c.adapter, ct.Assignments[0].Adapter)
			}
		})
	}
}
