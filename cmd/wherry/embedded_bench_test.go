//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

// BenchmarkEmbeddedPublish prints the processor time of the program that WHERRY_E2E_PROGRAMS has, with its children, for the
// first publication of embedded content in a git repository: of 200 targets of one registration, of which 50 come from one chart and 50 are kustomized,
// and for each further registration with one chart and one kustomization. Figures are the least of three runs.
func BenchmarkEmbeddedPublish(b *testing.B) {
	for range b.N {
		fmt.Printf("figure embedded-publish-first-cpu-ms %.0f ms\n", embeddedCPU(b, 1, 50, 50, 100, false))
		one, many := embeddedCPU(b, 1, 1, 1, 0, false), embeddedCPU(b, 100, 1, 1, 0, false)
		fmt.Printf("figure embedded-registrations-100-cpu-ms %.0f ms\n", many)
		fmt.Printf("figure embedded-registrations-100-cached-cpu-ms %.0f ms\n", embeddedCPU(b, 100, 1, 1, 0, true))
		fmt.Printf("figure embedded-registration-cpu-ms %.1f ms\n", (many-one)/99)
	}
}

// embeddedCPU returns the milliseconds for publishing registrations that have so many targets of each kind. With again it is the second
// publication, which finds all in the cache.
func embeddedCPU(b *testing.B, registrations, charts, kustomized, plain int, again bool) float64 {
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	if programs == "" {
		b.Fatal(`WHERRY_E2E_PROGRAMS names no folder with the program: run "make bench-embedded"`)
	}
	least := 0.0
	for i := range 3 {
		a := &authoring{TB: b, program: filepath.Join(programs, "wherry"), dir: b.TempDir()}
		a.run("keys", "generate")
		args := []string{"publish", "platform", "--environment", "dev", "--key", "cosign.key", "--mirror", "https://git.invalid=clones"}
		platform, err := os.ReadFile(filepath.Join("..", "..", "examples", "ship", "platform", "platform.yaml"))
		require.NoError(b, err)
		text := string(platform[:strings.LastIndex(string(platform), "---\n")]) // the last object is the example's registration
		files := map[string]string{}
		for r := range registrations {
			name := fmt.Sprintf("team-%03d", r)
			text += "---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: " + name + "}\nspec: {workload: {repo: https://git.invalid/" + name + ", branch: main, path: .}, workspace: " + name + "}\n"
			gittest.WriteFiles(b, filepath.Join(a.dir, name), map[string]string{"workload.yaml": embeddedTeam(files, name, charts, kustomized, plain)})
			args = append(args, "--workload", name+"="+name)
		}
		gittest.WriteFiles(b, filepath.Join(a.dir, "platform"), map[string]string{"platform.yaml": text})
		_, err = gittest.Commit(filepath.Join(a.dir, "clones", "shop.git"), "main", gittest.WriteFiles(b, "", files))
		require.NoError(b, err)
		u := a.run(append(args, "--to", "oci-layout:first")...)
		if again {
			u = a.run(append(args, "--to", "oci-layout:second")...)
		}
		if ms := u.cpu.Seconds() * 1000; i == 0 || ms < least {
			least = ms
		}
	}
	return least
}

// embeddedTeam returns the workload of a registration, and adds to files what its targets name. Each target has five objects.
func embeddedTeam(files map[string]string, name string, charts, kustomized, plain int) (workload string) {
	files[name+"/chart/Chart.yaml"], files[name+"/chart/values.yaml"] = "apiVersion: v2\nname: service\nversion: 1.0.0\n", "value: a\n"
	workload = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: " + name + "}\nspec:\n  deploymentTargets:\n"
	target := func(of, path string) {
		workload += fmt.Sprintf("    - {name: %s, environment: dev, manifests: {repo: \"https://git.invalid/shop\", branch: main, path: %s/%s}}\n", of, name, path)
	}
	objects := func(folder, of string) (names string) {
		for i, kind := range []string{"ConfigMap", "ServiceAccount", "Secret", "LimitRange", "ResourceQuota"} {
			file := fmt.Sprintf("object-%d.yaml", i)
			files[name+"/"+folder+"/"+file] = "apiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + of + "\n  labels:\n    app: " + of + "\n    part-of: shop\n"
			names += "  - " + file + "\n"
		}
		return names
	}
	objects("chart/templates", "{{ .Release.Name }}-{{ .Values.value }}")
	for i := range charts {
		target(fmt.Sprintf("chart-%03d", i), "chart")
	}
	for i := range kustomized {
		folder := fmt.Sprintf("kustomized-%03d", i)
		target(folder, folder)
		files[name+"/"+folder+"/kustomization.yaml"] = "commonAnnotations:\n  team: shop\nresources:\n" + objects(folder, folder)
	}
	for i := range plain {
		folder := fmt.Sprintf("plain-%03d", i)
		target(folder, folder)
		objects(folder, folder)
	}
	return workload
}
