package artifacts_test

import (
	"fmt"

	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/scheduler"
)

func ExampleOf() {
	needs := artifacts.Of([]scheduler.Assignment{{
		Name:  "web-live",
		Files: []scheduler.File{{Path: "pod.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{image: 'nginx:1.27'}]}\n")}},
	}})
	for _, a := range needs {
		fmt.Println(a.Type, a.Reference, "has a digest:", !a.Unresolved, "used by", a.UsedBy)
	}
	// Output: image docker.io/library/nginx:1.27 has a digest: false used by [web-live]
}
