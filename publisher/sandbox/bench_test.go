package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child"
)

// One job of a child that has done others, and a child's start with its first job.
func BenchmarkJob(b *testing.B) {
	web := map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n", "app/values.yaml": "a: 1\n"}
	built := map[string]string{"app/kustomization.yaml": "resources: [a.yaml, b.yaml, c.yaml, d.yaml, e.yaml]\ncommonAnnotations: {team: shop}\n"}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
		web["app/templates/"+name+".yaml"], built["app/"+name+".yaml"] = text, text
	}
	chart, kustomized := Source{Files: tree(web)}, Source{Files: tree(built)}
	for name, job := range map[string]func(s *Sandbox) error{
		"chart": func(s *Sandbox) error { _, err := s.Chart(b.Context(), "team", chart, rendered); return err },
		"kustomization": func(s *Sandbox) error {
			_, _, err := s.Kustomization(b.Context(), "team", kustomized, "app", nil)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(Options{Command: child.Self(Name)})
			defer s.Close()
			for b.Loop() {
				require.NoError(b, job(s))
			}
		})
		b.Run(name+" in a new child", func(b *testing.B) {
			s := New(Options{Command: child.Self(Name)})
			defer s.Close()
			for b.Loop() {
				require.NoError(b, job(s))
				s.Release("team")
			}
		})
	}
}
