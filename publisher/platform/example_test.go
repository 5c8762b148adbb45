package platform_test

import (
	"context"
	"fmt"
	"log"

	"github.com/wherry-dev/wherry/publisher/platform"
)

// An environment of a platform in plain folders is read and rendered.
func ExampleBuild() {
	built, err := platform.Build(context.Background(), platform.Source{
		Platform: "../../examples/coffee/dev", Environment: "dev", Bases: []string{"../../examples/coffee/main"},
		Workloads: map[string]string{
			"storefront": "../../examples/coffee/workloads/storefront", "roasting": "../../examples/coffee/workloads/roasting",
		},
	}, platform.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, ct := range built.Result.ClusterTypes {
		fmt.Println(ct.Name, len(ct.Assignments))
	}
	// Output:
	// machine 0
	// roastery 1
	// shop 2
	// warehouse 1
}
