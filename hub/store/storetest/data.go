package storetest

import (
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Epoch is the time of a new Clock, and of the reports and items that this package makes.
var Epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Clock is a time that only a test moves. Several goroutines may use it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows Epoch.
func NewClock() *Clock { return &Clock{now: Epoch} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock on.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Identity returns a cluster of type drone in the environment dev.
func Identity(name string) store.Identity {
	return store.Identity{UID: "uid-" + name, Name: name, Platform: "shop", Type: "drone", Environment: "dev"}
}

// Item returns an assignment of a workload in a state.
func Item(workload string, s bundle.State) bundle.Item {
	return bundle.Item{
		Assignment: workload + "-main", Workspace: "shop", Workload: workload, Target: "main", Adapter: "directory",
		State: s, Since: Epoch, Version: "1.0.0", Content: digest.FromString(workload),
	}
}

// Snapshot returns a report of a cluster that runs the release it is to run.
func Snapshot(id store.Identity, at store.Order, items ...bundle.Item) bundle.Report {
	states := make([]bundle.State, 0, len(items))
	for _, it := range items {
		states = append(states, it.State)
	}
	release := &bundle.ReportRelease{Digest: digest.FromString("release"), Sequence: 7, Number: 12}
	return bundle.Report{
		Schema:  bundle.ReportSchema,
		Cluster: bundle.ReportCluster(id),
		Agent:   bundle.ReportAgent{Version: "v0.1.0", Incarnation: at.Incarnation, Seq: at.Seq},
		Kind:    bundle.Snapshot, OccurredAt: Epoch, State: bundle.AgentState(false, states),
		Desired: release, Observed: release, Items: items,
	}
}

// Fleet calls add for each of four clusters, with the items of its only report: one is compliant, one has failed, one never
// reports, and one, in prod, has gone silent by the time that c shows then.
func Fleet(c *Clock, add func(id store.Identity, items ...bundle.Item)) {
	silent := Identity("d-silent")
	silent.Type, silent.Environment = "large", "prod"
	add(silent, Item("drone", bundle.Compliant))
	c.Add(3*time.Hour + time.Second)
	add(Identity("a-good"), Item("drone", bundle.Compliant), Item("radar", bundle.Compliant))
	add(Identity("b-bad"), Item("drone", bundle.Failed), Item("radar", bundle.Compliant))
	add(Identity("c-new"))
}
