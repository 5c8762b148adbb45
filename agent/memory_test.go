package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// onCluster is the name of the engine that works on a fakeCluster.
const onCluster = "objects"

var errAway = errors.New("no route to host")

// fakeCluster outlives machines: it has objects, a Secret and a Lease.
type fakeCluster struct {
	mu       sync.Mutex
	objects  map[string]string // assignment/file: content
	secret   []byte
	version  int
	claim    lease.Claim
	err      error // of each request
	lost     bool  // the answer to the next save gets lost
	requests map[string]int
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{objects: map[string]string{}, requests: map[string]int{}}
}

func (c *fakeCluster) begin(request string) (func(), error) {
	c.mu.Lock()
	c.requests[request]++
	return c.mu.Unlock, c.err
}

type fakeMemory struct {
	*fakeCluster
	seen int
}

func (m *fakeMemory) String() string { return "Secret there/memory" }

func (m *fakeMemory) Load(context.Context) ([]byte, error) {
	end, err := m.begin("load")
	defer end()
	m.seen = m.version
	return slices.Clone(m.secret), err
}

func (m *fakeMemory) Save(_ context.Context, data []byte) error {
	end, err := m.begin("save")
	defer end()
	switch {
	case err != nil:
		return err
	case m.seen != m.version:
		return lease.ErrChanged
	}
	m.secret, m.version = slices.Clone(data), m.version+1
	if m.lost {
		m.lost = false
		return errAway
	}
	m.seen = m.version
	return nil
}

type fakeLease struct{ *fakeCluster }

func (l *fakeLease) String() string { return "Lease there/memory" }

func (l *fakeLease) Read(context.Context) (lease.Claim, error) {
	end, err := l.begin("read")
	defer end()
	return l.claim, err
}

func (l *fakeLease) Write(_ context.Context, c lease.Claim) (lease.Claim, error) {
	end, err := l.begin("write")
	defer end()
	if err != nil || c.Version != l.claim.Version {
		return lease.Claim{}, errors.Join(err, lease.ErrChanged)
	}
	l.claim = c
	l.claim.Version = fmt.Sprint(l.requests["write"])
	return l.claim, nil
}

// objects is an engine that applies files as objects, with a ledger, as the adapter kubernetes does.
type objects struct {
	*fakeCluster
	ledger reconcilers.Ledger
}

func (o *objects) names(a reconcilers.Assignment) (files map[string]string, listed []string, err error) {
	entry, err := o.ledger.Load(a.Name)
	if err != nil {
		return nil, nil, err
	}
	if len(entry) > 0 {
		err = json.Unmarshal(entry, &listed)
	}
	files = map[string]string{}
	found, _ := os.ReadDir(a.Dir)
	for _, f := range found {
		data, err := os.ReadFile(filepath.Join(a.Dir, f.Name()))
		if err != nil {
			return nil, nil, err
		}
		files[a.Name+"/"+f.Name()] = string(data)
	}
	return files, listed, err
}

func (o *objects) Foretell(_ context.Context, a reconcilers.Assignment) ([]byte, error) {
	files, listed, err := o.names(a)
	listed = slices.AppendSeq(listed, maps.Keys(files))
	slices.Sort(listed)
	return must(json.Marshal(slices.Compact(listed))), err
}

func must(data []byte, _ error) []byte { return data }

func (o *objects) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	files, listed, err := o.names(a)
	if err == nil {
		err = o.ledger.Save(a.Name, must(o.Foretell(ctx, a)))
	}
	end, away := o.begin("apply")
	defer end()
	if err := errors.Join(err, away); err != nil {
		return reconcilers.Waiting("Away", err)
	}
	for _, name := range listed {
		delete(o.objects, name)
	}
	maps.Copy(o.objects, files)
	if err := o.ledger.Save(a.Name, must(json.Marshal(slices.Sorted(maps.Keys(files))))); err != nil {
		return reconcilers.Waiting("Away", err)
	}
	return reconcilers.Result{State: bundle.Compliant}
}

func (o *objects) Observe(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	files, _, err := o.names(a)
	end, away := o.begin("observe")
	defer end()
	if err := errors.Join(err, away); err != nil {
		return reconcilers.Waiting("Away", err)
	}
	for name, content := range files {
		if o.objects[name] != content {
			return reconcilers.Result{State: bundle.Drifted}
		}
	}
	return reconcilers.Result{State: bundle.Compliant}
}

func (o *objects) Remove(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	a.Dir = ""
	_, listed, err := o.names(a)
	end, away := o.begin("apply")
	defer end()
	if err := errors.Join(err, away); err != nil {
		return reconcilers.Waiting("Away", err)
	}
	for _, name := range listed {
		delete(o.objects, name)
	}
	return reconcilers.Result{State: bundle.Removed}
}

// on lets the site's agent work on a cluster, which is where an assignment goes whose adapter says so.
func (s *site) on(c *fakeCluster, f func(*Agent)) {
	s.t.Helper()
	state, err := OpenState(s.dir, s.opts.Now)
	require.NoError(s.t, err)
	defer state.Close()
	s.opts.Engines.Reconcilers = map[string]reconcilers.Reconciler{
		onCluster: &objects{c, state.Ledger(onCluster)}, "directory": directory.New(s.host, directory.Options{}),
	}
	s.opts.OnCluster.Memory, s.opts.OnCluster.Lease, s.opts.OnCluster.Adapters = &fakeMemory{fakeCluster: c}, &fakeLease{c}, []string{onCluster}
	f(s.agentOn(state))
}

// onceOn makes one pass, as a process that ends well does.
func (s *site) onceOn(c *fakeCluster) (r Result) {
	s.t.Helper()
	s.on(c, func(a *Agent) { r = a.Once(s.t.Context(), 0) })
	return r
}

// bring publishes release n, whose assignments are all for the cluster.
func (s *site) bring(n int64, files map[string]string) draft {
	s.t.Helper()
	change := map[string]func(*bundle.Assignment){}
	for path := range files {
		change[filepath.Dir(path)] = like(onCluster, 0)
	}
	return s.publishAs(n, files, change)
}

// anew takes the state folder away, as a new disk does.
func (s *site) anew() {
	s.t.Helper()
	s.dir = filepath.Join(s.t.TempDir(), "state")
}

func TestAMachineThatIsSetUpAnewForgetsNothing(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	older := s.bring(1, map[string]string{"a-x/f": "1", "b-x/f": "1"})
	s.onceOn(c)
	s.bring(2, map[string]string{"a-x/g": "2", "b-x/f": "1", "c-x/f": "2"})
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
	before := maps.Clone(c.objects)
	require.Equal(t, map[string]string{"a-x/g": "2", "b-x/f": "1", "c-x/f": "2"}, before)

	s.anew()
	s.publish(older)
	r := s.onceOn(c)
	require.Equal(t, Refused, r.Verdict)
	require.EqualValues(t, bundle.OlderRelease, r.Status.Reason)
	require.Equal(t, before, c.objects)

	s.bring(3, map[string]string{"a-x/h": "3"})
	r = s.onceOn(c)
	require.Equal(t, bundle.Compliant, r.Status.State, r.Status.Message)
	require.Equal(t, map[string]string{"a-x/h": "3"}, c.objects, "what it does not know itself is taken away")
}

func TestABackupOfTheStateIsBroughtUpToDate(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1", "b-x/f": "1"})
	s.onceOn(c)
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.CopyFS(backup, os.DirFS(s.dir)))
	s.bring(2, map[string]string{"a-x/f": "2", "c-x/f": "2"})
	s.onceOn(c)
	after := map[string]string{"a-x/f": "2", "c-x/f": "2"}
	require.Equal(t, after, c.objects)

	s.dir = backup
	s.registry.away.Store(true)
	r := s.onceOn(c)
	require.Contains(t, s.log.String(), "reason="+freeze.ReasonBehindMemory)
	require.Equal(t, after, c.objects, "what is older is not put back")
	s.registry.away.Store(false)
	r = s.onceOn(c)
	require.Equal(t, bundle.Compliant, r.Status.State, r.Status.Message)
	require.Equal(t, after, c.objects)

	s.bring(3, map[string]string{"a-x/f": "2"})
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
	require.Equal(t, map[string]string{"a-x/f": "2"}, c.objects)
}

func TestNothingIsAppliedThatTheMemoryDoesNotKnow(t *testing.T) {
	for name, spoil := range map[string]func(*fakeCluster){
		"a save that does not arrive":   func(c *fakeCluster) { c.err = errAway },
		"a save whose answer gets lost": func(c *fakeCluster) { c.lost = true },
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newSite(t), newFakeCluster()
			s.bring(1, map[string]string{"a-x/f": "1"})
			s.onceOn(c)
			s.bring(2, map[string]string{"a-x/f": "1", "b-x/f": "2"})
			s.on(c, func(a *Agent) {
				a.askCluster(t.Context())
				spoil(c)
				r := a.result(a.makePass(t.Context(), scope{from: s.repo, force: true}))
				require.Equal(t, bundle.Pending, r.Status.State)
				require.Equal(t, freeze.ReasonAPIServerUnreachable, r.Status.Reason)
				require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
			})
			c.err = nil
			// The power goes here. Either the memory knows of b, or nothing of it was applied.
			kept := s.dir
			s.anew()
			s.bring(3, map[string]string{"a-x/f": "1"})
			s.onceOn(c)
			require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
			require.NotEqual(t, kept, s.dir)
		})
	}
}

// An agent that could not save for a while must not take what another has saved since for older than its own.
func TestAnotherAgentsMemoryIsNewerThanFailedSaves(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	o := s.other()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.on(c, func(first *Agent) {
		s.pass(first)
		s.bring(2, map[string]string{"b-x/f": "1"})
		c.err = errAway
		for range 5 {
			s.pass(first)
		}
		c.err, c.claim = nil, lease.Claim{} // somebody has deleted the Lease
		s.bring(3, map[string]string{"c-x/f": "1"})
		require.Equal(t, bundle.Compliant, o.onceOn(c).Status.State)
		require.Equal(t, map[string]string{"c-x/f": "1"}, c.objects)

		s.now = s.now.Add(lease.Time)
		r := s.pass(first)
		require.Equal(t, bundle.Compliant, r.Status.State, "%s: %s %v\n%s", r.Status.Reason, r.Status.Message, r.Status.Items, s.log.String())
		s.bring(4, map[string]string{"d-x/f": "1"})
		require.Equal(t, bundle.Compliant, s.pass(first).Status.State)
		require.Equal(t, map[string]string{"d-x/f": "1"}, c.objects)
	})
}

func TestASaveThatWasLostIsMadeUpFor(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	s.bring(2, map[string]string{"b-x/f": "2"})
	s.on(c, func(a *Agent) {
		a.askCluster(t.Context())
		c.lost = true
		a.makePass(t.Context(), scope{from: s.repo, force: true})
		require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
		r := a.result(a.makePass(t.Context(), scope{from: s.repo, force: true}))
		require.Equal(t, bundle.Compliant, r.Status.State, r.Status.Message)
		require.Equal(t, map[string]string{"b-x/f": "2"}, c.objects)
	})
}

func TestWhatIsAppliedIsInTheMemoryBeforeIt(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1", "b-x/f": "1"})
	s.on(c, func(a *Agent) {
		require.Equal(t, Done, a.makePass(t.Context(), scope{from: s.repo}).Verdict)
		require.Equal(t, 1, c.requests["save"], "one request for a release")
		a.makePass(t.Context(), scope{from: s.repo, all: true})
		require.Equal(t, map[string]int{"load": 1, "save": 1, "read": 1, "write": 1, "apply": 2, "observe": 2}, c.requests, "and none where nothing is new")
	})
	doc, err := backup.Unpack(c.secret)
	require.NoError(t, err)
	require.Len(t, doc.Inventory, 2)
	require.JSONEq(t, `["a-x/f"]`, string(doc.Inventory[0].Ledgers[onCluster]))
}

func TestAMachineThatKnowsNothingWaitsForTheMemory(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	c.err = errAway
	r := s.onceOn(c)
	require.Equal(t, bundle.Pending, r.Status.State)
	require.Equal(t, freeze.ReasonMemoryUnread, r.Status.Reason)
	require.Contains(t, r.Status.Message, "no route to host")
	require.Empty(t, c.objects)
	c.err = nil
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
}

func TestAMemoryThatCannotBeRead(t *testing.T) {
	later := must(backup.Backup{Schema: backup.Schema + 1}.Encode())
	for name, secret := range map[string][]byte{
		"damaged": []byte("\x1f\x8b but no more"), "somebody else's": {}, "of a later version": later,
		"no agent's": must(backup.Backup{Schema: backup.Schema, Inventory: []backup.Item{{}}}.Encode()),
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newSite(t), newFakeCluster()
			s.bring(1, map[string]string{"a-x/f": "1"})
			s.onceOn(c)
			kept := c.secret
			c.secret = secret
			s.bring(2, map[string]string{"b-x/f": "1"})
			r := s.onceOn(c)
			require.Equal(t, freeze.ReasonMemoryUnreadable, r.Status.Reason)
			require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects, "what runs is kept")
			require.Equal(t, secret, append([]byte{}, c.secret...), "and so is what cannot be read")
			c.secret = kept
			require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
		})
	}
}

func TestAMemoryThatMayNotBeKeptIsDoneWithout(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.on(c, func(a *Agent) {
		a.memory.store = denied{}
		for range 3 {
			a.makePass(t.Context(), scope{from: s.repo, all: true})
		}
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, bundle.Compliant, st.State)
		require.Equal(t, ReasonMemoryDenied, st.Reason)
	})
	require.Equal(t, 1, strings.Count(s.log.String(), "memory is not kept"))
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}

type denied struct{}

func (denied) String() string { return "Secret there/memory" }

func (denied) Load(context.Context) ([]byte, error) {
	return nil, fmt.Errorf("%w: get secrets", lease.ErrDenied)
}

func (denied) Save(context.Context, []byte) error {
	return fmt.Errorf("%w: create secrets", lease.ErrDenied)
}

func TestAMachineSetUpAnewForAnotherStreamAsks(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	s.anew()
	s.stream.ClusterType = "large"
	s.repo = s.repository(s.stream)
	s.bring(1, map[string]string{"b-x/f": "1"})
	r := s.onceOn(c)
	require.Equal(t, freeze.ReasonOtherStream, r.Status.Reason)
	require.Contains(t, r.Status.Message, "dev/drone of platform default")
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}

func TestAClusterKeepsItsName(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	uid := func() (found string) {
		s.on(c, func(a *Agent) {
			nameless := a.cluster
			nameless.UID = ""
			found = New(a.state, s.repo, a.pinned, nameless, s.opts).Once(t.Context(), 0).Status.Cluster.UID
		})
		return found
	}
	first := uid()
	require.NotEmpty(t, first)
	s.anew()
	require.Equal(t, first, uid())
	require.Equal(t, first, uid(), "from the state, then")
	require.Equal(t, first, s.status().Cluster.UID)
}

func TestAPauseOutlivesTheMachine(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	s.on(c, func(a *Agent) {
		_, err := a.Pause("harvest", 0)
		require.NoError(t, err)
		a.Once(t.Context(), 0)
	})
	s.anew()
	s.bring(2, map[string]string{"b-x/f": "1"})
	r := s.onceOn(c)
	require.Equal(t, freeze.ReasonPaused, r.Status.Reason)
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}

func TestARollbackByHandIsAPauseOfTheMachineThatIsSetUpAnew(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	first := s.onceOn(c).Status.Release.Running.Digest
	s.bring(2, map[string]string{"a-x/f": "2"})
	s.onceOn(c)
	s.on(c, func(a *Agent) {
		_, err := a.RollBack(Wish{To: string(first)})
		require.NoError(t, err)
		a.Once(t.Context(), 0)
	})
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
	s.anew()
	r := s.onceOn(c)
	require.Equal(t, freeze.ReasonPaused, r.Status.Reason)
	require.Contains(t, r.Status.Message, "resume takes the newest")
	require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)
}
