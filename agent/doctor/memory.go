package doctor

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

var (
	secretResource = schema.GroupResource{Resource: "secrets"}
	leaseResource  = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// checkMemory asks whether the agent may keep in the cluster what has to outlive its machine. It works without, and
// this is a warning.
func checkMemory(ctx context.Context, e *examination) diagnosis.Finding {
	switch {
	case e.Kubernetes == nil:
		return diagnosis.Skipf("no cluster is configured")
	case e.Memory.Name == "":
		return diagnosis.Skipf("switched off: a machine that is set up anew will not know what it did, and nobody notices a second agent")
	case e.served == nil:
		return diagnosis.Skipf("no cluster answers")
	}
	config := rest.CopyConfig(e.Kubernetes)
	config.QPS, config.Timeout = -1, checkTime
	c, err := client.New(config, client.Options{})
	if err != nil {
		return diagnosis.Warnf("mend the kubeconfig", "%v", err)
	}
	r := &reviewer{c: c}
	var missing []string
	for _, gr := range []schema.GroupResource{secretResource, leaseResource} {
		for _, verb := range []string{"get", "create", "update"} {
			name := e.Memory.Name
			if verb == "create" {
				name = ""
			}
			if !r.mayI(ctx, verb, gr, e.Memory.Namespace, name) {
				missing = append(missing, fmt.Sprintf("%s %s", verb, gr))
			}
		}
	}
	switch {
	case r.err != nil:
		return diagnosis.Warnf("let the agent's user create selfsubjectaccessreviews, as the ClusterRole system:basic-user does", "%v", r.err)
	case len(missing) > 0:
		return diagnosis.Warnf(`bind the Role wherry-agent-memory that "wherry install agent" prints, or one like it`,
			"not allowed for %s: %s: a machine that is set up anew may not know what it did, and nobody notices a second agent", e.Memory, strings.Join(missing, ", "))
	default:
		return diagnosis.Okf("Secret and Lease %s may be kept", e.Memory)
	}
}
