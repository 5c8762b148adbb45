package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// An agent takes a signed release from a registry, here a folder, and has its engine bring it to the host.
func Example() {
	if err := once(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// done: compliant, release 1
	// greeting: hello
}

func once(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	// Somebody has published a release, signed by a key that this agent pins.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	stream := bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "drone"}
	repository, err := oci.NewLayout(filepath.Join(dir, "registry")).Repository(stream.Repository())
	if err != nil {
		return err
	}
	files := map[string]string{"shop-main/greeting": "hello\n"}
	if _, err := agenttest.New(stream, 1, time.Now(), files, key).Publish(ctx, repository); err != nil {
		return err
	}

	state, err := agent.OpenState(filepath.Join(dir, "state"), nil)
	if err != nil {
		return err
	}
	defer state.Close()
	host := filepath.Join(dir, "host")
	a := agent.New(state, repository, bundle.Pinned(bundle.Keys{key.Public()}),
		bundle.ReportCluster{Name: "plant-7", Platform: stream.Platform, Environment: stream.Environment, Type: stream.ClusterType},
		agent.Options{Engines: engines.Options{Reconcilers: map[string]reconcilers.Reconciler{"directory": directory.New(host, directory.Options{})}}})
	result := a.Once(ctx, time.Minute)
	fmt.Printf("%s: %s, release %d\n", result.Verdict, result.Status.State, result.Status.Release.Running.Number)

	data, err := os.ReadFile(filepath.Join(host, "shop-main", "greeting"))
	fmt.Printf("greeting: %s", data)
	return err
}
