package scheduler_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/wherry-dev/wherry/scheduler"
)

// platform is a platform repository with one cluster type and one policy, and workload a team's repository.
var (
	platform = fstest.MapFS{"platform.yaml": {Data: []byte(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: shop, labels: {region: north}}
spec: {reconciler: deployment, namespaceService: namespace, configType: configMap}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {manifests: ["apiVersion: v1\nkind: Namespace\nmetadata: {name: {{ .Namespace }}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: deployment}
spec: {manifests: ["image: {{ .Manifests.image }}\nlevel: {{ .ConfigData.LOG_LEVEL }}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: northern}
spec:
  clusterTypeSelector: {labelSelector: {matchLabels: {region: north}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: logging, labels: {platform-config: "true"}}
data: {LOG_LEVEL: debug}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: till}
spec: {workspace: sales}
`)}}
	workload = fstest.MapFS{"workload.yaml": {Data: []byte(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: till}
spec:
  deploymentTargets:
    - {name: live, environment: prod, manifests: {image: "till:4.2"}}
`)}}
)

// load loads both repositories.
func load(ctx context.Context) (*scheduler.Model, error) {
	m := scheduler.NewModel("prod")
	if err := m.Load(ctx, scheduler.Source{FS: platform, Name: "control-plane"}); err != nil {
		return nil, err
	}
	return m, m.Load(ctx, scheduler.Source{FS: workload, Name: "till", Registration: "till"})
}

// Each source is loaded on its own. An error names the file and the line.
func ExampleModel_Load() {
	ctx := context.Background()
	m := scheduler.NewModel("prod")
	if err := m.Load(ctx, scheduler.Source{FS: platform, Name: "control-plane"}); err != nil {
		fmt.Println(err)
	}
	for _, r := range m.Registrations() {
		fmt.Println("registration", r.Name, "of workspace", r.Workspace, "at", r.Position)
	}
	mistaken := fstest.MapFS{"workload.yaml": {Data: []byte("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: 7}\n")}}
	fmt.Println(m.Load(ctx, scheduler.Source{FS: mistaken, Name: "till", Registration: "till"}))
	// Output:
	// registration till of workspace sales at control-plane/platform.yaml:27
	// till/workload.yaml:3: metadata.name must be a string, and 7 is a number (write it in quotes: "7")
}

func ExampleModel_Render() {
	ctx := context.Background()
	m, err := load(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := m.Render(ctx, scheduler.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, ct := range result.ClusterTypes {
		for _, a := range ct.Assignments {
			fmt.Println(a.ClusterType, a.Name, a.Namespace, a.Policies)
			fmt.Printf("%s", a.Files[len(a.Files)-1].Data)
		}
		for _, f := range ct.Failures {
			fmt.Println(f.Name, f.Reason, f.Err)
		}
	}
	// Output:
	// shop till-live prod-shop-till-live [northern]
	// image: till:4.2
	// level: debug
}

func ExampleModel_Explainer() {
	ctx := context.Background()
	m, err := load(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := m.Explainer(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := e.Pair(ctx, "shop", "till-live")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range x.Policies {
		fmt.Println("policy", p.Name, "selects it:", p.Selects)
		for _, t := range p.Terms {
			fmt.Println(" ", t.Side, t.Asks, "met:", t.Met)
		}
	}
	_, err = e.Pair(ctx, "shop", "till-life")
	fmt.Println(err)
	// Output:
	// policy northern selects it: true
	//   clusterType region=north met: true
	// environment "prod" has no deployment target "till-life" (did you mean "till-live"?)
}
