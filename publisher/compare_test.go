package publisher

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/examples"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// coffee is the example platform in a folder of its own, to be edited.
type coffee struct {
	t   *testing.T
	dir string
}

func newCoffee(t *testing.T) *coffee {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, examples.FS))
	return &coffee{t, filepath.Join(dir, "coffee")}
}

// edit replaces old, which must be there, by now in a file.
func (c *coffee) edit(file, old, now string) {
	c.t.Helper()
	name := filepath.Join(c.dir, filepath.FromSlash(file))
	data, err := os.ReadFile(name)
	require.NoError(c.t, err)
	require.Contains(c.t, string(data), old)
	require.NoError(c.t, os.WriteFile(name, []byte(strings.ReplaceAll(string(data), old, now)), 0o600))
}

func (c *coffee) planned() platform.Built {
	c.t.Helper()
	c.t.Chdir(c.dir)
	loaded, err := platform.Load(c.t.Context(), platform.Source{
		Platform: "dev", Environment: "dev", Bases: []string{"main"},
		Workloads: map[string]string{"storefront": "workloads/storefront", "roasting": "workloads/roasting"},
	})
	require.NoError(c.t, err)
	result, err := loaded.Model.Render(c.t.Context(), scheduler.Options{BaseCommit: loaded.BaseCommit})
	require.NoError(c.t, err)
	return platform.Built{Loaded: loaded, Result: result}
}

// compare publishes the first state, and compares with the second.
func (w *world) compare(p platform.Built) (*diff.Difference, error) {
	opts := w.opts
	if opts.Now == nil {
		opts.Now = func() time.Time { return w.now }
	}
	return Compare(w.t.Context(), p, w.loc, trust.PinnedBy([]*keys.Key{w.key}), opts)
}

// told writes a difference in lines: what people would be told, without numbers.
func told(d *diff.Difference) []string {
	lines := []string{}
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, r := range d.Renames {
		say("renamed %s %s %s", r.From, r.To, r.ClusterTypes)
	}
	for _, ct := range d.ClusterTypes {
		if ct.Result != diff.ResultUnchanged || ct.Renewed {
			say("%s: %s, %d of %d unchanged%s", ct.ClusterType, ct.Result, ct.Unchanged, ct.Assignments, strings.TrimSuffix(" "+ct.Blocked, " "))
		}
		for _, a := range ct.Changes {
			say("%s %s/%s %s", a.Change, ct.ClusterType, a.Name, a.Why+becauseOf(a.Because))
			for _, f := range a.Fields {
				say("  %s: %s → %s", f.Field, f.Old, f.New)
			}
			for _, v := range a.Values {
				say("  %s %s: %s → %s %s", v.File, v.Key, orNone(v.Old), orNone(v.New), becauseOf(v.Because))
			}
			for _, f := range a.Files {
				say("  %s is %s", f.Path, f.Change)
			}
		}
		for _, f := range ct.Failed {
			say("failed %s/%s stands=%t", ct.ClusterType, f.Name, f.Stands)
		}
	}
	for _, ws := range d.Waiting {
		for _, target := range ws.Targets {
			say("waiting %s: %s %s", ws.Workspace, target.Name, target.Position)
		}
	}
	return lines
}

func becauseOf(causes []diff.Cause) string {
	var all []string
	for _, c := range causes {
		all = append(all, fmt.Sprintf("[%s %s %s]", c.Kind, c.Name, c.Position))
	}
	return strings.Join(all, " ")
}

func orNone(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

// publishCoffee publishes a state of the example to w.
func (w *world) publishCoffee(p platform.Built) {
	w.t.Helper()
	w.result = p.Result
	_, err := w.publish()
	require.NoError(w.t, err)
}

func TestDifferences(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*coffee)
		told []string
	}{
		"nothing": {func(*coffee) {}, []string{}},
		"where a ConfigMap stands": {
			func(c *coffee) { c.edit("dev/configs/dev.yaml", "apiVersion: v1\n", "# moved\napiVersion: v1\n") }, []string{},
		},
		"a value in one cluster type's configuration": {
			func(c *coffee) { c.edit("main/configs/common.yaml", "after: 15m", "after: 20m") },
			[]string{
				"roastery: changed, 0 of 1 unchanged", "changed roastery/profiles-load ",
				"  platform-config.yaml ALERTS[link].after: 15m → 20m [ConfigMap b-roastery main/configs/common.yaml:29]", "  platform-config.yaml is changed",
			},
		},
		"a value that goes": {
			func(c *coffee) { c.edit("main/configs/common.yaml", "  RECEIPTS: \"true\"\n", "") },
			[]string{
				"shop: changed, 1 of 2 unchanged", "changed shop/till-test ",
				"  platform-config.yaml RECEIPTS: true → none ",
				"  reconciler.yaml Deployment/till spec.template.metadata.annotations.config-hash: 6809555739410011730 → 7903655144017179597 [Template plain main/templates/plain.yaml:2]",
				"  platform-config.yaml is changed", "  reconciler.yaml is changed",
			},
		},
		"a value of a workload": {
			func(c *coffee) { c.edit("workloads/storefront/workloads.yaml", "menu:1.9.0", "menu:1.10.0") },
			[]string{
				"shop: changed, 1 of 2 unchanged", "changed shop/menu-test ",
				"  reconciler.yaml Deployment/menu spec.template.spec.containers[menu].image: registry.example.com/menu:1.9.0 → registry.example.com/menu:1.10.0 [Workload menu workloads/storefront/workloads.yaml:34]",
				"  reconciler.yaml is changed",
			},
		},
		"a template": {
			func(c *coffee) {
				c.edit("main/templates/argo.yaml", "project: default", "project: coffee")
			},
			[]string{
				"warehouse: changed, 0 of 1 unchanged", "changed warehouse/profiles-load ",
				"  reconciler.yaml Application/profiles-load spec.project: default → coffee [Template argo main/templates/argo.yaml:3]", "  reconciler.yaml is changed",
			},
		},
		"a policy that selects no more, and a team that waits": {
			func(c *coffee) {
				c.edit("workloads/roasting/workloads.yaml", "purpose: load-test", "purpose: endurance")
			},
			[]string{
				"roastery: blocked, 0 of 0 unchanged it had assignments and now has none, which deletes them all: confirm with --allow-empty",
				"removed roastery/profiles-load policy load (dev/scheduling/policies.yaml:31) asks of the target purpose=load-test, which has purpose=endurance",
				"warehouse: blocked, 0 of 0 unchanged it had assignments and now has none, which deletes them all: confirm with --allow-empty",
				"removed warehouse/profiles-load policy load (dev/scheduling/policies.yaml:31) asks of the target purpose=load-test, which has purpose=endurance",
				"waiting roasting-team: profiles-load workloads/roasting/workloads.yaml:7",
			},
		},
		"a policy that goes": {
			func(c *coffee) { c.edit("dev/scheduling/policies.yaml", "name: storefront\n", "name: shops\n") },
			[]string{
				"shop: changed, 0 of 2 unchanged",
				"changed shop/menu-test ", `  policies: ["storefront"] → ["shops"]`,
				"changed shop/till-test ", `  policies: ["storefront","tills-everywhere-small"] → ["shops","tills-everywhere-small"]`,
			},
		},
		"a renamed target": {
			func(c *coffee) {
				c.edit("workloads/roasting/workloads.yaml", "- name: load", "- name: stress")
			},
			[]string{
				"renamed profiles-load profiles-stress [roastery warehouse]",
				"roastery: changed, 0 of 1 unchanged",
				`removed roastery/profiles-load environment "dev" has no deployment target "profiles-load"`,
				"added roastery/profiles-stress [SchedulingPolicy load dev/scheduling/policies.yaml:31]",
				"warehouse: changed, 0 of 1 unchanged",
				`removed warehouse/profiles-load environment "dev" has no deployment target "profiles-load"`,
				"added warehouse/profiles-stress [SchedulingPolicy load dev/scheduling/policies.yaml:31]",
			},
		},
		"one that fails": {
			func(c *coffee) { c.edit("main/configs/common.yaml", `OFFLINE_HOURS: "72"`, `OFFLINE_HOURS: "2"`) },
			[]string{"shop: changed, 1 of 2 unchanged", "failed shop/till-test stands=true"},
		},
		"a cluster type that leaves": {
			func(c *coffee) { c.edit("dev/cluster-types/types.yaml", "name: roastery", "name: roaster") },
			[]string{
				"roaster: new, 0 of 1 unchanged",
				"added roaster/profiles-load [SchedulingPolicy load dev/scheduling/policies.yaml:31]",
				"roastery: blocked, 0 of 0 unchanged it had assignments and now has none, which deletes them all: confirm with --allow-empty",
				`removed roastery/profiles-load environment "dev" has no cluster type "roastery"`,
			},
		},
		"a secret": {
			func(c *coffee) {
				c.edit("main/configs/common.yaml", "OFFLINE_HOURS: \"72\"", "OFFLINE_HOURS: \"72\"\n  TILL_PIN: \"4711\"")
			},
			[]string{
				"shop: changed, 1 of 2 unchanged", "changed shop/till-test ",
				"  platform-config.yaml TILL_PIN: none → (secret) [ConfigMap c-till main/configs/common.yaml:44]",
				"  reconciler.yaml Deployment/till spec.template.metadata.annotations.config-hash: 6809555739410011730 → 4609981924031421092 [Template plain main/templates/plain.yaml:2]",
				"  platform-config.yaml is changed", "  reconciler.yaml is changed",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, state := newWorld(t, "layout"), newCoffee(t)
			first := state.planned()
			w.publishCoffee(first)
			folder := t.TempDir()
			_, err := outdir.Write(t.Context(), folder, first.Result, outdir.Options{})
			require.NoError(t, err)

			c.edit(state)
			now := state.planned()
			d, err := w.compare(now)
			require.NoError(t, err)
			require.Equal(t, c.told, told(d))
			require.Equal(t, len(c.told) > 0, d.Changes())
			require.NotContains(t, string(must(json.Marshal(d.ClusterTypes))), "4711") // a folder's random name may hold it

			inFolder, err := diff.Folder(t.Context(), now, folder, nil)
			require.NoError(t, err)
			require.Equal(t, filesOnly(d), filesOnly(inFolder), "a rendered folder has the same files")
		})
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// filesOnly leaves of a difference what does not depend on where it is compared.
func filesOnly(d *diff.Difference) []string {
	var lines []string
	for _, ct := range d.ClusterTypes {
		for _, a := range ct.Changes {
			for _, f := range a.Files {
				lines = append(lines, fmt.Sprintf("%s/%s/%s %s", ct.ClusterType, a.Name, f.Path, f.Change))
			}
			for _, v := range a.Values {
				lines = append(lines, fmt.Sprintf("%s/%s/%s %s %s", ct.ClusterType, a.Name, v.File, v.Key, becauseOf(v.Because)))
			}
			if a.Change != diff.ChangeChanged {
				lines = append(lines, fmt.Sprintf("%s %s/%s", a.Change, ct.ClusterType, a.Name))
			}
		}
	}
	return lines
}

func TestADifferenceIsWhatPublishingDoes(t *testing.T) {
	state := newCoffee(t)
	w := newWorld(t, "layout")
	d, err := w.compare(state.planned())
	require.NoError(t, err)
	require.Equal(t, diff.Counted{Added: 4, ClusterTypes: 4}, d.Count())
	w.publishCoffee(state.planned())
	d, err = w.compare(state.planned())
	require.NoError(t, err)
	require.False(t, d.Changes())

	w.opts.Now = func() time.Time { return w.now.AddDate(0, 0, 80) }
	d, err = w.compare(state.planned())
	require.NoError(t, err)
	require.True(t, d.ClusterTypes[1].Renewed)
	require.False(t, d.Changes(), "clusters would get what they have")
}

func TestRingsThatAPlatformHasGivenUpAreComparedWithWhatTheyHave(t *testing.T) {
	state, w := newCoffee(t), newWorld(t, "layout")
	planned := func() platform.Built {
		p := state.planned()
		p.Result.Rings = []string{"canary", "broad"}
		return p
	}
	w.publishCoffee(planned())
	state.edit("main/configs/common.yaml", "after: 15m", "after: 20m")
	w.publishCoffee(planned())
	d, err := w.compare(planned())
	require.NoError(t, err)
	require.Zero(t, d.Count().ClusterTypes, "the canaries have it, and the others keep what they have")
	d, err = w.compare(state.planned())
	require.NoError(t, err)
	require.Equal(t, diff.Counted{Changed: 1, ClusterTypes: 1}, d.Count())
	w.publishCoffee(state.planned())
	d, err = w.compare(state.planned())
	require.NoError(t, err)
	require.False(t, d.Changes())
}

func TestUnchangedFilesAreNotFetched(t *testing.T) {
	state, w := newCoffee(t), newWorld(t, "registry")
	w.publishCoffee(state.planned())
	state.edit("main/configs/common.yaml", "after: 15m", "after: 20m")
	trees := map[string]bool{}
	for _, ct := range []string{"machine", "roastery", "shop", "warehouse"} {
		trees[string(w.verified(ct, "latest").Tree.Digest)] = true
	}
	fetched := 0
	w.front = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && trees[filepath.Base(r.URL.Path)] {
			fetched++
		}
		return false
	}
	writes := w.writes.Load()
	d, err := w.compare(state.planned())
	require.NoError(t, err)
	require.Equal(t, 1, d.Count().ClusterTypes)
	require.Equal(t, 1, fetched)
	require.Equal(t, writes, w.writes.Load(), "nothing is written")
}

func TestWhatCannotBeVerifiedIsNotComparedWith(t *testing.T) {
	state, w := newCoffee(t), newWorld(t, "layout")
	w.publishCoffee(state.planned())
	w.key = keytest.New(t)
	_, err := w.compare(state.planned())
	var refusal *bundle.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.UntrustedKey, refusal.Reason)
	_, err = Compare(t.Context(), state.planned(), w.loc, published.Signers{}, PublishOptions{})
	require.ErrorAs(t, err, &refusal, "nobody is trusted")
}

func TestAPlanSaysThatPublishingWouldBeRefused(t *testing.T) {
	state, w := newCoffee(t), newWorld(t, "layout")
	q := newQuorum(w, 1)
	plan := state.planned()
	plan.Result.Platform = "edge"
	for _, tc := range []struct {
		now      time.Time
		warnings []string
	}{
		{q.now, nil},
		{q.chain.Current().ExpiresAt, []string{"publishing would be refused: Expired: version 1 of the trust document expired at 2029-08-17T12:00:00Z, and here it is 2029-08-17: nothing new is taken under it"}},
	} {
		d, err := Compare(t.Context(), plan, w.loc, published.Of(q.chain), PublishOptions{Now: func() time.Time { return tc.now }})
		require.NoError(t, err)
		require.Equal(t, tc.warnings, d.Warnings)
	}
}

func TestComparingWithAFolder(t *testing.T) {
	state := newCoffee(t)
	d, err := diff.Folder(t.Context(), state.planned(), t.TempDir(), nil)
	require.NoError(t, err)
	require.Equal(t, diff.Counted{Added: 4, ClusterTypes: 4}, d.Count(), "an empty folder stands for nothing yet")
	_, err = diff.Folder(t.Context(), state.planned(), state.dir, nil)
	require.ErrorIs(t, err, outdir.ErrForeign)
	_, err = diff.Folder(t.Context(), state.planned(), filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	folder, p := t.TempDir(), state.planned()
	_, err = outdir.Write(t.Context(), folder, p.Result, outdir.Options{})
	require.NoError(t, err)
	p.Loaded.Unread = []platform.Unread{{Registration: "roasting", Err: os.ErrNotExist}}
	p.Result.ClusterTypes[1].Assignments = nil
	d, err = diff.Folder(t.Context(), p, folder, nil)
	require.NoError(t, err)
	require.Empty(t, told(d), "what an unread registration had stays")
	require.True(t, d.Changes())
}
