package lint

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
)

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// clusterYAML is a Cluster object, whose spec has these further lines.
func clusterYAML(name, spec string) string {
	return "---\napiVersion: wherry.dev/v1alpha1\nkind: Cluster\nmetadata: {name: " + name + "}\nspec:\n" + spec
}

func keyYAML(pem string) string {
	return "  publicKey: |\n    " + strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n    ") + "\n"
}

func TestClustersOfARoster(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	key := keyYAML(publicPEM(t, public))
	const edge = "  clusterType: edge\n"
	for _, tc := range []struct {
		name    string
		objects string
		want    []string
	}{
		{"a good one", clusterYAML("a", edge+"  uid: u\n  ring: canary\n  labels: {site: north}\n"+key), nil},
		{"one that does not report", clusterYAML("a", edge+"  uid: u\n  reporting: none\n"), nil},
		{"of a type that is misspelt", clusterYAML("a", "  clusterType: egde\n  uid: u\n"+key), []string{`W1116 Cluster "a": there is no ClusterType "egde" (did you mean "edge"?)`}},
		{
			"one machine twice", clusterYAML("a", edge+"  uid: u\n"+key) + clusterYAML("b", edge+"  uid: u\n"+key),
			[]string{`W1117 Cluster "b" has the public key of Cluster "a", at c.yaml:2`, `W1117 Cluster "b" has the uid of Cluster "a", at c.yaml:2`},
		},
		{"without a uid", clusterYAML("a", edge+key), []string{`W1211 Cluster "a": spec.uid is not a uid of a cluster`}},
		{"without a key", clusterYAML("a", edge+"  uid: u\n"), []string{`W1211 Cluster "a": it has no spec.publicKey, and reports are expected of it`}},
		{"with something else for a key", clusterYAML("a", edge+"  uid: u\n  publicKey: hello\n"), []string{`W1211 Cluster "a": spec.publicKey is not a key in PEM`}},
		{"with a key of another kind", clusterYAML("a", edge+"  uid: u\n"+keyYAML(publicPEM(t, ec.Public()))), []string{`W1211 Cluster "a": spec.publicKey is not a public Ed25519 key`}},
		{"that reports now and then", clusterYAML("a", edge+"  uid: u\n  reporting: expcted\n"+key), []string{`W1211 Cluster "a": spec.reporting is neither expected nor none (did you mean "expected"?)`}},
		{"that joined at no time", clusterYAML("a", edge+"  uid: u\n  registeredAt: yesterday\n"+key), []string{`W1211 Cluster "a": spec.registeredAt is not a time: it counts as one that has always been there (write it as 2026-11-23T08:00:00Z)`}},
		{"that joined at a time", clusterYAML("a", edge+"  uid: u\n  registeredAt: 2026-11-23T08:00:00+01:00\n"+key), nil},
		{"with a field too many", clusterYAML("a", edge+"  uid: u\n  color: red\n"+key), []string{`W1007 unknown field spec.color`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := scheduler.NewModel("dev")
			require.NoError(t, load(m, "", "p.yaml", sound))
			require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
			require.NoError(t, load(m, "", "c.yaml", tc.objects))
			report, err := Run(t.Context(), m, Options{})
			require.NoError(t, err)
			require.Len(t, report.Findings, len(tc.want))
			for i, f := range report.Findings {
				said := f.Code + " " + f.Message
				if f.Hint != "" {
					said += " (" + f.Hint + ")"
				}
				require.Contains(t, said, tc.want[i])
			}
		})
	}
	m := scheduler.NewModel("dev")
	require.ErrorContains(t, load(m, "", "c.yaml", clusterYAML("a", edge+"  uid: u\n"+key)+clusterYAML("a", edge+"  uid: v\n"+key)), "defined twice")
	m = scheduler.NewModel("dev")
	require.NoError(t, load(m, "", "c.yaml", clusterYAML("b", edge+"  uid: v\n  reporting: none\n")+clusterYAML("a", edge+"  uid: u\n  ring: canary\n"+key)))
	all := m.Clusters()
	require.Len(t, all, 2)
	require.Equal(t, scheduler.Cluster{
		Name: "a", Position: all[0].Position, ClusterType: "edge", UID: "u", Ring: "canary", PublicKey: publicPEM(t, public), Reporting: true,
	}, all[0])
	require.False(t, all[1].Reporting)
}
