package backup

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// A kubernetes adapter's entry for five objects, of 10,000 assignments.
func TestTheMemoryOfTenThousandAssignmentsFits(t *testing.T) {
	doc := Backup{Schema: Schema, UID: "plant-7"}
	add := func(n int) {
		for i := range n {
			name := fmt.Sprintf("workload-%d-target-%d", len(doc.Inventory)/20, i)
			entry := fmt.Sprintf(`{"schema":1,"content":%q,"objects":[`, digest.FromString(name).Encoded())
			for j, kind := range []string{"Namespace", "ConfigMap", "Deployment", "Service", "Ingress"} {
				entry += fmt.Sprintf(`%s{"group":"apps","version":"v1","kind":%q,"namespace":"dev-drone-%s","name":"%s-%d","owned":true}`, [...]string{"", ","}[min(j, 1)], kind, name, name, j)
			}
			doc.Inventory = append(doc.Inventory, Item{
				Name: name, Adapter: "kubernetes", Namespace: "dev-drone-" + name, Workspace: "retail", Workload: "workload", Target: "target",
				Ledgers: map[string]json.RawMessage{"kubernetes": json.RawMessage(entry + "]}")},
			})
		}
	}
	add(10_000)
	begun := time.Now()
	data, partial, err := doc.Pack()
	require.NoError(t, err)
	t.Logf("10,000 assignments with 5 objects each: %d bytes in %v", len(data), time.Since(begun))
	require.False(t, partial)

	add(10_000)
	data, partial, err = doc.Pack()
	require.NoError(t, err)
	require.True(t, partial, "which is said, and stops nothing")
	require.Less(t, len(data), 1000)
	again, err := Unpack(data)
	require.NoError(t, err)
	require.True(t, again.Partial)
}
