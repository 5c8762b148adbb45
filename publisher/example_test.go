package publisher_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/verify"
	"github.com/wherry-dev/wherry/scheduler"
)

// An environment is published to a layout folder, verified as an agent would, and published again, which changes nothing.
func ExamplePublish() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "wherry-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	key, err := keys.New(private)
	if err != nil {
		log.Fatal(err)
	}
	// What rendering returns; see platform.Build.
	rendered := &scheduler.Result{Platform: "edge", Environment: "dev", ClusterTypes: []scheduler.ClusterTypeResult{{
		Name: "drone",
		Assignments: []scheduler.Assignment{{
			Name: "web-live", ClusterType: "drone", Workspace: "shop", Workload: "web", Target: "live", Namespace: "drone-web-live",
			Files: []scheduler.File{{Path: "web.yaml", Data: []byte("kind: ConfigMap\n")}},
		}},
	}}}
	to := oci.Location{Dir: dir}

	for range 2 {
		done, err := publisher.Publish(ctx, rendered, to, []*keys.Key{key}, publisher.PublishOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(done.ClusterTypes[0].ClusterType, done.ClusterTypes[0].Result)
	}

	ref := oci.Reference{Location: to, Repository: "bundles/dev/drone", Tag: bundle.LatestTag}
	verified, err := verify.ByKeys(ctx, ref, bundle.Pinned(bundle.Keys{key.Public()}), time.Now(), oci.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("release %d for %s in %s has %d assignment\n", verified.Number, verified.ClusterType, verified.Environment, *verified.Assignments)
	// Output:
	// drone published
	// drone unchanged
	// release 1 for drone in dev has 1 assignment
}
