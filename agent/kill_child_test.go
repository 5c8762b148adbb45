package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/reconcilers"
)

// order is what an agent that is to be killed gets from the one that starts it.
type order struct {
	UID, Registry, State, Cluster string
	Keys                          []byte // in PEM
	Hub                           string
	HubKey                        []byte
	Trust                         [][]byte // documents to be installed
	Import                        string   // a file to be imported
	Passes                        int      // so many and the end; 0 is a service
	RollBack                      string   // what a person wishes to run
	Pause, Resume                 bool     // and that nothing change, or all again
	Deadline                      time.Duration
	Seed                          uint64
	Disk                          string // where the file system of the state is mounted, if it is to lose its power

	Point string // where to die
	Hit   int    // at which time there
}

// run is the agent's whole life.
func (o order) run() error {
	d := &death{order: o}
	// As OpenState does, but watched from the first commit.
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return err
	}
	db, err := state.Open(o.State, buckets...)
	if err != nil {
		return err
	}
	s := newState(db)
	defer s.Close()
	db.Moment = d.reached
	d.disk = underState(s, o.Seed)
	d.disk.deed = d.write
	if err := s.init(time.Now()); err != nil {
		return err
	}
	a, err := o.agent(s, d)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	ctx := context.Background()
	if len(o.Trust) > 0 {
		if _, err := a.InstallTrust(o.Trust...); err != nil {
			return err
		}
	}
	if err := o.operate(ctx, a); err != nil {
		return err
	}
	a.logInterrupted()
	if o.Import != "" {
		if r := a.Import(ctx, ImportRequest{Paths: []string{o.Import}}); r.Verdict == Broken {
			return errors.New(r.Error)
		}
	}
	if o.Passes == 0 {
		return a.Run(ctx)
	}
	sender := a.hubSink()
	for range o.Passes {
		a.makePass(ctx, o.everything(a))
		_ = sender.Send(ctx) // the hub may be away
	}
	return nil
}

func (o order) everything(a *Agent) scope {
	return scope{from: a.source, documents: a.opts.TrustSource, all: true, force: true, ask: true}
}

// operate is what a person does.
func (o order) operate(ctx context.Context, a *Agent) error {
	if o.RollBack != "" {
		_, err := a.state.RollBack(Wish{To: o.RollBack}, time.Now())
		if errors.Is(err, ErrNotAccepted) || errors.Is(err, ErrNotAllowed) {
			err = nil // the agent was killed before it could, or an epoch has begun since
		}
		if err != nil {
			return err
		}
	}
	if o.Pause {
		a.makePass(ctx, o.everything(a))
		if _, err := a.Pause("", 0); err != nil {
			return err
		}
		a.makePass(ctx, o.everything(a))
	}
	if o.Resume {
		if _, err := a.Resume(false); err != nil {
			return err
		}
	}
	return nil
}

func (o order) agent(state *State, d *death) (*Agent, error) {
	loc, err := oci.Parse(o.Registry)
	if err != nil {
		return nil, err
	}
	repo, err1 := loc.Repository("bundles/dev/drone", oci.Options{})
	trust, err2 := loc.Repository(bundle.TrustRepository, oci.Options{})
	keys, err3 := bundle.ParsePublicKeys(o.Keys)
	hubKeys, err4 := bundle.ParsePublicKeys(o.HubKey)
	self, err5 := os.Executable()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	cluster := bundle.ReportCluster{UID: o.UID, Name: o.UID, Platform: "default", Environment: "dev", Type: "drone"}
	return New(state, repo, bundle.Pinned(keys), cluster, Options{
		Interval: 10 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		TrustSource: trust,
		Engines: engines.Options{
			Reconcilers: map[string]reconcilers.Reconciler{"directory": &fileEngine{o.Cluster, state.Ledger("directory"), d.reached}},
			Deadline:    o.Deadline,
		},
		Content: content.Options{
			Deltas: delta.Command{self, deltaArgument},
			Download: oci.DownloadOptions{
				Chunk: 1 << 10, Retries: -1, Moment: d.reached,
				Progress: func(int64) { d.reached("fetch: some bytes") },
			},
		},
		Hub:     queue.Hub{URL: o.Hub, Key: hubKeys[0]},
		Version: "v0.0.0-test",
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}), nil
}

// death waits for the moment at which the agent is to die.
type death struct {
	order
	disk *underFile

	mu   sync.Mutex
	hits int
}

// reached is called at each moment, by whatever goroutine.
func (d *death) reached(moment string) {
	if side, ok := strings.CutPrefix(moment, "commit: "); ok {
		moment = "commit of " + committer() + ": " + side
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if moment != d.Point && made[d.Point] != moment {
		return
	}
	if d.hits++; d.hits == d.Hit {
		d.prepare()
		if d.Disk != "" {
			_ = powerOff(d.Disk)
		}
		die()
	}
}

// write is called by the layer under the state file before a write.
func (d *death) write(n int) fault {
	if d.Point == tornPage && n == d.Hit {
		return faultTorn
	}
	if d.Point == powerCut && n == d.Hit {
		return faultPower
	}
	return faultNone
}

// prepare leaves what a kill in the middle of a call leaves.
func (d *death) prepare() {
	switch d.Point {
	case "index: half of it":
		_ = os.WriteFile(filepath.Join(d.State, state.StoreDir, "ingest", "half"), []byte(`{"schemaVer`), 0o600)
	case "stage: half unpacked":
		temp := filepath.Join(d.State, content.TreesDir, content.StagingDir)
		entries, _ := os.ReadDir(temp)
		for i, e := range entries {
			if i >= len(entries)/2 {
				_ = os.RemoveAll(filepath.Join(temp, e.Name()))
			}
		}
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// transactions are the functions between the one that has the state changed and the moment at which it is.
var transactions = []string{"committer", "At", "Update", "UpdateIf", "underState"}

// methodOf returns the name of a function without its package, its receiver and its closures.
func methodOf(function string) string {
	_, name, _ := strings.Cut(function[strings.LastIndex(function, "/")+1:], ".")
	name, _, _ = strings.Cut(name, ".func")
	name, _, _ = strings.Cut(name, "[")
	return name[strings.LastIndex(name, ".")+1:]
}

// committer is the function that has the state changed.
func committer() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		path := strings.TrimPrefix(f.Function, "github.com/wherry-dev/wherry/agent")
		if method := methodOf(path); path != f.Function && !strings.Contains(path, "death") && !slices.Contains(transactions, method) {
			return method
		}
		if !more {
			return "?"
		}
	}
}
