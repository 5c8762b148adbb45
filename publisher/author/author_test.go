package author

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

const kalypso = "apiVersion: scheduler.kalypso.io/v1alpha1\n"

// fleet is a platform with two environments, written in as many ways as people write.
var fleet = map[string]string{
	"wherry.yaml":            "# Settings.\nenvironment: dev # mostly\nworkloads:\n  shop: ../shop\n",
	".environments/dev.yaml": kalypso + "kind: Environment\nmetadata: {name: dev}\nspec: {controlPlane: {repo: x, branch: main, path: ./dev/}}\n",
	".environments/all.yaml": kalypso + "kind: Environment\nmetadata: {name: prod}\nspec: {controlPlane: {repo: x, branch: main, path: envs/prod}}\n",
	"platform.yaml":          "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: fleet}\nspec:\n  rings: [canary, 'stable']\n  workspaces:\n  - name: shop-team\n",
	"templates/all.yaml": "# The templates.\n\n" + kalypso + "kind: Template\nmetadata: {name: flux}\nspec: {type: reconciler, manifests: ['x: {{ .Workload }}']}\n---\n" +
		kalypso + "kind: Template\nmetadata: {name: namespace}\nspec: {type: namespace, manifests: []}\n",
	"configs/common.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: drones\n  labels: {platform-config: 'true', cluster-type: \"drone\", workload: shop}\ndata: {A: drone}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: azure-app-config-x\ndata:\n  cluster-type.drone.region.east.KEY: v\n",
	"workloads/shop.yaml": kalypso + "kind: WorkloadRegistration\nmetadata: {name: shop}\nspec: {workspace: shop-team, workload: {repo: x, branch: main, path: .}}\n",
	"workloads/own.yaml": strings.ReplaceAll(kalypso+"kind: Workload\nmetadata:\n  name: shop\nspec:\n  deploymentTargets:\n  - name: live\n    environment: dev # not prod\n    manifests: {}\n---\n"+
		kalypso+"kind: Workload\nmetadata:\n  name: web\n  annotations:\n    wherry.dev/depends-on: redis, shop,shop/live\t# both\nspec: {}\n", "\n", "\r\n"),
	"dev/cluster-types/drone.yaml": "# Drones.\n" + kalypso + "kind: ClusterType\nmetadata:\n  name: &n drone\n  labels:\n    cluster-type: *n\nspec:\n  reconciler: flux # the engine\n  namespaceService: namespace\n  configType: 'configMap'\n",
	"dev/scheduling/p.yaml": kalypso + "kind: SchedulingPolicy\nmetadata: {name: p}\nspec:\n  deploymentTargetSelector:\n    workspace: shop-team\n    labelSelector: {matchExpressions: [{key: workload, operator: In, values: [shop, web]}]}\n" +
		"  clusterTypeSelector:\n    labelSelector:\n      matchLabels: {cluster-type: drone}\n",
	"dev/clusters.yaml":             "apiVersion: wherry.dev/v1alpha1\nkind: Cluster\nmetadata: {name: c-1}\nspec: {clusterType: drone, ring: canary, uid: u}\n",
	"envs/prod/types.yaml":          kalypso + "kind: ClusterType\nmetadata: {name: drone}\nspec: {reconciler: flux, namespaceService: namespace}\n",
	"envs/prod/rings.yaml":          "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: prod}\nspec: {environments: [{name: prod, rings: [canary, stable]}]}\n",
	"promotion.yaml":                "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: chain}\nspec:\n  chain: [dev, stage] # not prod\n  groups:\n  - {name: leads, members: [{name: leads}], hubs: [\"-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEA16unR25p/HHH7PkeqlLriWCydfMhYiPHEh+O189oPV0=\\n-----END PUBLIC KEY-----\\n\"]}\n  environments:\n  - name: stage\n    gate: {soakIn: [dev], approvals: {required: 1, group: leads}}\n    ringGate: {override: {required: 1, group: leads}}\n",
	"envs/prod/config/special.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: live\n  labels:\n    platform-config: \"true\"\n    deployment-target: shop-live\ndata: {B: x}\n",
	"other/deployment.yaml":         "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: drone}\n",
}

func open(t *testing.T, content map[string]string) *Platform {
	t.Helper()
	p, err := Open(t.Context(), gittest.WriteFiles(t, "", content))
	require.NoError(t, err)
	found, err := p.Mistakes(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	return p
}

func with(changes map[string]string) map[string]string {
	all := map[string]string{}
	for name, text := range fleet {
		all[name] = text
	}
	for name, text := range changes {
		if all[name] = text; text == "" {
			delete(all, name)
		}
	}
	return all
}

// files returns the files that are in a folder, by name.
func filesIn(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		all[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return all
}

// change replaces old by new in the file of that name, each of which has to be there.
func change(t *testing.T, all map[string]string, name string, oldNew ...string) map[string]string {
	t.Helper()
	for i := 0; i < len(oldNew); i += 2 {
		require.Contains(t, all[name], oldNew[i], name)
		all[name] = strings.ReplaceAll(all[name], oldNew[i], oldNew[i+1])
	}
	return all
}

func moved(all map[string]string, from, to string) map[string]string {
	for name, text := range all {
		if rest, ok := strings.CutPrefix(name, from); ok {
			delete(all, name)
			all[to+rest] = text
		}
	}
	return all
}

// message returns the text of an error with paths below the platform's folder.
func message(p *Platform, err error) string {
	return strings.ReplaceAll(err.Error(), filepath.ToSlash(p.Root)+"/", "")
}

func TestARenamedObjectIsRenamedWhereverItIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name, kind, from, to, environment string
		want                              func(t *testing.T, all map[string]string) map[string]string
	}{
		{"a template", "Template", "flux", "gitops", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, "templates/all.yaml", "{name: flux}", "{name: gitops}")
			change(t, all, "envs/prod/types.yaml", "reconciler: flux", "reconciler: gitops")
			return change(t, all, "dev/cluster-types/drone.yaml", "reconciler: flux", "reconciler: gitops")
		}},
		{"a cluster type of all environments", "ClusterType", "drone", "kite", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, "dev/cluster-types/drone.yaml", "&n drone", "&n kite")
			change(t, all, "envs/prod/types.yaml", "{name: drone}", "{name: kite}")
			change(t, all, "configs/common.yaml", `cluster-type: "drone"`, `cluster-type: "kite"`, "cluster-type.drone.region", "cluster-type.kite.region")
			change(t, all, "dev/scheduling/p.yaml", "{cluster-type: drone}", "{cluster-type: kite}")
			change(t, all, "dev/clusters.yaml", "clusterType: drone", "clusterType: kite")
			return moved(all, "dev/cluster-types/drone.yaml", "dev/cluster-types/kite.yaml")
		}},
		{"a workload", "Workload", "shop", "till", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, "workloads/own.yaml", "name: shop\r", "name: till\r", "redis, shop,shop/live", "redis, till,till/live")
			change(t, all, "configs/common.yaml", "workload: shop", "workload: till")
			change(t, all, "envs/prod/config/special.yaml", "deployment-target: shop-live", "deployment-target: till-live")
			return change(t, all, "dev/scheduling/p.yaml", "[shop, web]", "[till, web]")
		}},
		{"an environment", "Environment", "dev", "test", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, ".environments/dev.yaml", "{name: dev}", "{name: test}", "path: ./dev/", "path: ./test/")
			change(t, all, "wherry.yaml", "environment: dev #", "environment: test #")
			change(t, all, "workloads/own.yaml", "environment: dev #", "environment: test #")
			change(t, all, "promotion.yaml", "chain: [dev,", "chain: [test,", "soakIn: [dev]", "soakIn: [test]")
			return moved(moved(all, ".environments/dev.yaml", ".environments/test.yaml"), "dev/", "test/")
		}},
		{"an environment in a folder of folders", "Environment", "prod", "live", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, ".environments/all.yaml", "{name: prod}", "{name: live}", "envs/prod", "envs/live")
			change(t, all, "envs/prod/rings.yaml", "[{name: prod,", "[{name: live,")
			return moved(all, "envs/prod/", "envs/live/")
		}},
		{"a registration", "WorkloadRegistration", "shop", "till", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, "wherry.yaml", "  shop:", "  till:")
			change(t, all, "workloads/shop.yaml", "{name: shop}", "{name: till}")
			return moved(all, "workloads/shop.yaml", "workloads/till.yaml")
		}},
		{"a workspace", Workspace, "shop-team", "till-team", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, "platform.yaml", "shop-team", "till-team")
			change(t, all, "workloads/shop.yaml", "shop-team", "till-team")
			return change(t, all, "dev/scheduling/p.yaml", "shop-team", "till-team")
		}},
		{"a ring", Ring, "canary", "first", "", func(t *testing.T, all map[string]string) map[string]string {
			change(t, all, "platform.yaml", "canary", "first")
			change(t, all, "envs/prod/rings.yaml", "canary", "first")
			return change(t, all, "dev/clusters.yaml", "canary", "first")
		}},
		{"a group", Group, "leads", "chiefs", "", func(t *testing.T, all map[string]string) map[string]string {
			return change(t, all, "promotion.yaml", "name: leads, members", "name: chiefs, members", "approvals: {required: 1, group: leads}", "approvals: {required: 1, group: chiefs}", "override: {required: 1, group: leads}", "override: {required: 1, group: chiefs}")
		}},
		{"in one environment", "PromotionPolicy", "prod", "rings", "prod", func(t *testing.T, all map[string]string) map[string]string {
			return change(t, all, "envs/prod/rings.yaml", "metadata: {name: prod}", "metadata: {name: rings}")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := open(t, fleet)
			plan, err := p.Rename(t.Context(), tt.kind, tt.from, tt.to, tt.environment)
			require.NoError(t, err)
			require.Equal(t, with(nil), filesIn(t, p.Root), "a plan writes nothing")
			require.NoError(t, plan.Apply())
			require.Equal(t, tt.want(t, with(nil)), filesIn(t, p.Root))
		})
	}
}

func TestWhatCannotBeRenamed(t *testing.T) {
	for _, tt := range []struct {
		name, kind, from, to, environment, want string
		content                                 map[string]string
	}{
		{name: "unknown", kind: "Template", from: "fluks", to: "x", want: `not found: Template "fluks"`},
		{name: "no name", kind: "Template", from: "flux", to: "Flux!", want: `Template cannot be called "Flux!"`},
		{name: "taken", kind: "Template", from: "flux", to: "namespace", want: `templates/all.yaml:8: there is a Template "namespace" already`},
		{name: "a taken ring", kind: Ring, from: "canary", to: "stable", want: `there is a ring "stable" already`},
		{name: "shared in one environment", kind: "ClusterType", from: "drone", to: "kite", environment: "dev", want: `configs/common.yaml:5: ConfigMap "drones": metadata.labels.cluster-type is shared, and other environments have a ClusterType "drone" as well`},
		{name: "an unknown environment", kind: "ClusterType", from: "drone", to: "kite", environment: "stage", want: `no Environment object is called "stage"`},
		{
			name: "a shared anchor", kind: "Template", from: "flux", to: "x", want: `dev/cluster-types/drone.yaml:9: it has the anchor &r, which line 11 uses as well`,
			content: map[string]string{"dev/cluster-types/drone.yaml": kalypso + "kind: ClusterType\nmetadata:\n  name: drone\n  labels:\n    cluster-type: drone\n\nspec:\n  reconciler: &r flux\n  namespaceService: namespace\nstatus: {was: *r}\n"},
		},
		{
			name: "twice", kind: "Template", from: "namespace", to: "x", want: `Template "namespace" is defined twice: at templates/all.yaml:8 and templates/more.yaml:1`,
			content: map[string]string{"templates/more.yaml": kalypso + "kind: Template\nmetadata: {name: namespace}\nspec: {type: namespace}\n"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content := with(tt.content)
			p, err := Open(t.Context(), gittest.WriteFiles(t, "", content))
			require.NoError(t, err)
			_, err = p.Rename(t.Context(), tt.kind, tt.from, tt.to, tt.environment)
			require.ErrorAs(t, err, new(*Error))
			require.Contains(t, message(p, err), tt.want)
			require.Equal(t, content, filesIn(t, p.Root))
		})
	}
}

func TestWhatIsInUseIsNotRemoved(t *testing.T) {
	for _, tt := range []struct{ kind, name, environment, want string }{
		{"Template", "flux", "", "templates/all.yaml:3: Template \"flux\" is in use:\ndev/cluster-types/drone.yaml:9: ClusterType \"drone\": spec.reconciler\nenvs/prod/types.yaml:4: ClusterType \"drone\": spec.reconciler"},
		{"ClusterType", "drone", "", `ClusterType "drone" is in several environments: dev/cluster-types/drone.yaml:2, envs/prod/types.yaml:1`},
		{"ClusterType", "drone", "dev", "dev/cluster-types/drone.yaml:2: ClusterType \"drone\" is in use:\ndev/clusters.yaml:4: Cluster \"c-1\": spec.clusterType\ndev/scheduling/p.yaml:10: SchedulingPolicy \"p\": spec.clusterTypeSelector.labelSelector.matchLabels.cluster-type"},
		{"Environment", "dev", "", "dev/scheduling/p.yaml:1: SchedulingPolicy \"p\"\npromotion.yaml:10: PromotionPolicy \"chain\": gate of stage: soakIn\npromotion.yaml:5: PromotionPolicy \"chain\": spec.chain\nwherry.yaml:2: wherry.yaml: environment\nworkloads/own.yaml:8: Workload \"shop\": deployment target live"},
	} {
		p := open(t, fleet)
		_, err := p.Remove(t.Context(), tt.kind, tt.name, tt.environment)
		require.Error(t, err)
		require.Contains(t, message(p, err), tt.want)
		var wrong *Error
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, strings.Contains(tt.want, "in use") || tt.kind == "Environment", wrong.Refused)
	}
}

func TestRemove(t *testing.T) {
	for _, tt := range []struct {
		kind, name, environment string
		want                    map[string]string
	}{
		{"ClusterType", "drone", "prod", map[string]string{"envs/prod/types.yaml": ""}},
		{"Cluster", "c-1", "", map[string]string{"dev/clusters.yaml": ""}},
		{"ConfigMap", "drones", "", map[string]string{"configs/common.yaml": strings.SplitAfter(fleet["configs/common.yaml"], "---\n")[1]}},
	} {
		p := open(t, fleet)
		plan, err := p.Remove(t.Context(), tt.kind, tt.name, tt.environment)
		require.NoError(t, err)
		require.NoError(t, plan.Apply())
		require.Equal(t, with(tt.want), filesIn(t, p.Root))
	}
}

func TestSetKeepsAllOtherBytes(t *testing.T) {
	p := open(t, fleet)
	set := func(kind, name, environment string, settings ...string) (*Plan, error) {
		found, err := p.Find(kind, name, environment, false)
		require.NoError(t, err)
		var all []Setting
		for _, s := range settings {
			one, err := ParseSetting(s)
			require.NoError(t, err)
			all = append(all, one)
		}
		return p.Set(t.Context(), found[0], all)
	}
	plan, err := set("ClusterType", "drone", "dev", "spec.reconciler=namespace", "metadata.labels.edge=true", `metadata.annotations["wherry.dev/pin"]=commit`)
	require.NoError(t, err)
	require.NoError(t, plan.Apply())
	require.Equal(t, change(t, with(nil), "dev/cluster-types/drone.yaml",
		"reconciler: flux #", "reconciler: namespace #", "cluster-type: *n\n", "cluster-type: *n\n    edge: \"true\"\n  annotations:\n    wherry.dev/pin: commit\n"), filesIn(t, p.Root))

	plan, err = set("Platform", "fleet", "", "spec.rings=[one, two]", "spec.workspaces[shop-team].limits.targets=5")
	require.NoError(t, err)
	require.Equal(t, "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: fleet}\nspec:\n  rings: [one, two]\n  workspaces:\n  - name: shop-team\n    limits:\n      targets: 5\n", string(plan.Changes[0].After))

	_, err = set("Platform", "fleet", "", "spec.workspaces=none")
	require.ErrorContains(t, err, "spec.workspaces must be a list, not a single value")
	_, err = set("Platform", "fleet", "", "metadata.name=other")
	require.ErrorContains(t, err, "a name is not set")
	plan, err = set("ClusterType", "drone", "prod", "spec.reconciler=nothing")
	require.NoError(t, err)
	require.Contains(t, plan.Warnings[0].Message, `names template "nothing", which does not exist`)

	require.NoError(t, os.WriteFile(plan.Path("envs/prod/types.yaml"), []byte("edited"), 0o600))
	require.ErrorContains(t, plan.Apply(), "types.yaml: changed since it was read")
}

func TestAnObjectGetsAnotherText(t *testing.T) {
	p := open(t, fleet)
	found, err := p.Find("Workload", "shop", "", false)
	require.NoError(t, err)
	text, err := p.Text(found[0])
	require.NoError(t, err)
	require.Equal(t, strings.Split(fleet["workloads/own.yaml"], "---\r\n")[0], string(text))
	edited := strings.ReplaceAll(strings.Replace(string(text), "live", "open", 1), "\r\n", "\n")
	plan, err := p.Replace(t.Context(), found[0], []byte(edited))
	require.NoError(t, err)
	require.NoError(t, plan.Apply())
	require.Equal(t, change(t, with(nil), "workloads/own.yaml", "name: live", "name: open"), filesIn(t, p.Root))

	_, err = p.Replace(t.Context(), found[0], []byte("a: [\n"))
	require.ErrorContains(t, err, "workloads/own.yaml:1: a value is missing")
	_, err = p.Replace(t.Context(), found[0], []byte(strings.Replace(edited, "environment: dev", "environment: [dev]", 1)))
	require.ErrorContains(t, err, "must be a string, not a list")
}

func TestTopIsTheFolderOfThePlatform(t *testing.T) {
	dir := gittest.WriteFiles(t, "", map[string]string{"a/wherry.yaml": "", "a/b/c/x": "", "d/.environments/x": "", "d/e/x": ""})
	t.Chdir(filepath.Join(dir, "a", "b", "c"))
	require.Equal(t, "../..", Top("."))
	require.Equal(t, "../../../d", filepath.ToSlash(Top(filepath.Join(dir, "d", "e"))))
}

func TestKindsHaveWords(t *testing.T) {
	for _, word := range Words() {
		kind, err := Kind(word)
		require.NoError(t, err)
		require.Equal(t, word, Word(kind))
	}
	for word, kind := range map[string]string{"clustertypes": "ClusterType", "SchedulingPolicy": "SchedulingPolicy", "configs": "ConfigMap", "registration": "WorkloadRegistration", "ring": Ring} {
		got, err := Kind(word)
		require.NoError(t, err)
		require.Equal(t, kind, got)
	}
	_, err := Kind("clster-type")
	var wrong *Error
	require.ErrorAs(t, err, &wrong)
	require.Contains(t, wrong.Hint, "cluster-type")
}
