package web_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/demo"
	"github.com/wherry-dev/wherry/hub/desired"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/scheduler"
)

// publication publishes environments of the sample fleet's platform with workloads of a team, each given as NAME=VERSION.
type publication struct {
	t   *testing.T
	loc oci.Location
	key *keys.Key
	at  time.Time
}

func (p *publication) publish(environment string, workloads ...string) digest.Digest {
	p.t.Helper()
	result := &scheduler.Result{Environment: environment, Platform: "coffee", BaseCommit: strings.Repeat("b", 40), Declared: map[string]map[string]bool{"shop": {}}}
	types := scheduler.ClusterTypeResult{Name: "store"}
	for _, one := range workloads {
		name, version, _ := strings.Cut(one, "=")
		result.Declared["shop"][name+"-live"] = true
		result.Workloads = append(result.Workloads, scheduler.Workload{
			Registration: "shop", Name: name, Object: digest.FromString(one), Targets: []scheduler.WorkloadTarget{{Name: "live", FullName: name + "-live"}},
		})
		types.Assignments = append(types.Assignments, scheduler.Assignment{
			Name: name + "-live", ClusterType: "store", Registration: "shop", Workload: name, Target: "live", Adapter: "directory", Version: version,
			Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte("text: " + one + "\n")}},
		})
	}
	result.ClusterTypes = []scheduler.ClusterTypeResult{types}
	result.Places = map[string]scheduler.Place{"shop": {Repo: "https://git.example/shop", Ref: "main", Commit: strings.Repeat("5", 40)}}
	p.at = p.at.Add(time.Second)
	done, err := publisher.Publish(p.t.Context(), result, p.loc, []*keys.Key{p.key}, publisher.PublishOptions{Now: func() time.Time { return p.at }, AllowRemovals: true})
	require.NoError(p.t, err)
	return done.Record.Digest
}

// watching returns a hub with the sample fleet that watches a location, once it knows the newest records there.
func watching(t *testing.T, loc oci.Location, key *keys.Key, records map[string]digest.Digest) *hub.Hub {
	t.Helper()
	dir := t.TempDir()
	h, err := hub.Open(dir, hub.Options{
		Now: func() time.Time { return now }, Trust: desired.Trust{Keys: bundle.Keys{key.Public()}}, Watch: desired.Options{Locations: []oci.Location{loc}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	require.NoError(t, demo.Fill(t.Context(), filepath.Join(dir, hub.DatabaseFile), 30, now))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	see := as(t, h, "see", access.Viewer, store.AccessScope{})
	for known := 0; known < len(records); {
		var all fleet.Environments
		require.NoError(t, json.Unmarshal(see.do(http.MethodGet, "/v1/environments", nil).Body.Bytes(), &all))
		known = 0
		for _, e := range all.Environments {
			if records[e.Environment] != "" && records[e.Environment] == e.Record {
				known++
			}
		}
		require.NoError(t, t.Context().Err())
	}
	return h
}

func TestDecisionsAboutOneWorkloadAreShownAskedForOnceAndSigned(t *testing.T) {
	p := publication{t: t, loc: oci.Location{Dir: filepath.Join(t.TempDir(), "layout")}, key: keytest.New(t), at: now.Add(-time.Minute)}
	p.publish("stage", "cart=1.0", "menu=1.0", "gone=1.0")
	prod := p.publish("prod", "cart=1.0", "menu=1.0", "gone=1.0")
	stage := p.publish("stage", "cart=2.0", "menu=1.0")
	h := watching(t, p.loc, p.key, map[string]digest.Digest{"stage": stage, "prod": prod})
	ben := as(t, h, "ben", access.Approver, store.AccessScope{})

	require.Contains(t, ben.get("/environments/prod"), `href="/environments/prod/workloads?platform=coffee">Workloads one by one</a>`)
	list := ben.get("/environments/prod/workloads?platform=coffee&from=stage")
	for _, want := range []string{
		"<h1>Workloads for prod</h1>", ">shop/cart</th>", ">2.0</span>", `href="/environments/prod/approve?from=stage&amp;platform=coffee&amp;registration=shop&amp;workload=cart">Approve</a>`,
		">shop/gone</th>", "nothing: it was removed",
	} {
		require.Contains(t, list, want)
	}

	const approve = "/environments/prod/approve"
	page := ben.get(approve + "?from=stage&platform=coffee&registration=shop&workload=cart")
	for _, want := range []string{
		"<h1>Approve shop/cart for prod</h1>", "2.0 (", "https://git.example/shop main 5555555555555555", "wherry gate approve -e prod --hub https://example.com --workload shop/cart</code>",
		`<button class="act">Approve</button>`,
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "commitAlone")
	require.NotContains(t, strings.Join(audited(t, h), ","), "approve", "a page changes nothing")
	form := formOf(page)
	old := url.Values{"platform": {"coffee"}, "from": {"stage"}, "registration": {"shop"}, "workload": {"cart"}, "revision": {"sha256:0"}}
	ben.refused(approve, old, http.StatusBadRequest, "stage has another revision of shop/cart since you looked")
	ben.refused(approve, url.Values{"platform": {"coffee"}, "from": {"stage"}, "registration": {"shop"}, "workload": {"crat"}}, http.StatusBadRequest, "stage has nothing of shop/crat that prod does not have")
	form.Set("reason", "tasted")
	require.Contains(t, ben.send(approve, form), ">shop/cart</span> from stage</td>")
	require.Contains(t, audited(t, h), "ben: approve promotion tasted")
	var all store.DecisionList
	require.NoError(t, json.Unmarshal(ben.do(http.MethodGet, "/v1/decisions?environment=prod", nil).Body.Bytes(), &all))
	d, _, err := bundle.ReadDecision(all.Decisions[0].Envelope)
	require.NoError(t, err)
	require.Equal(t, bundle.DecisionWorkload{Registration: "shop", Name: "cart", Revision: digest.Digest(form.Get("revision"))}, d.Workload)
	require.Equal(t, []string{"prod", "stage", "ben", "", ""}, []string{d.Environment, d.From, d.By, d.Ring, d.BaseCommit})
	require.Empty(t, d.Contents)

	// The next one sees who decided, and may override the proof, or decide about a removal.
	dora := as(t, h, "dora", access.Approver, store.AccessScope{})
	require.Contains(t, dora.get("/environments/prod/reject?from=stage&registration=shop&workload=cart"), "tasted")
	form = formOf(dora.get("/environments/prod/override?from=stage&registration=shop&workload=gone"))
	require.Equal(t, "", form.Get("revision"))
	form.Set("reason", "a fix")
	form["rule"] = []string{"soak"}
	dora.refused("/environments/prod/override", form, http.StatusBadRequest, "soak")
	form["rule"] = []string{"content", "approvals"}
	require.Contains(t, dora.send("/environments/prod/override", form), "override</span> approvals, content")

	// A scope that lacks a part of it neither sees nor decides.
	pia := as(t, h, "pia", access.Approver, store.AccessScope{Environments: []string{"prod"}})
	require.NotContains(t, pia.get("/environments/prod"), "/workloads?platform")
	for _, scope := range []store.AccessScope{{Environments: []string{"prod"}}, {Workspaces: []string{"shop"}}} {
		sam := as(t, h, "sam-"+strings.Join(scope.Environments, ""), access.Approver, scope)
		for _, path := range []string{"/environments/prod/workloads?from=stage", "/environments/prod/approve?from=stage&registration=shop&workload=cart"} {
			require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, sam.do(http.MethodGet, path, nil).Code, path)
		}
		w := sam.do(http.MethodPost, approve, old, "Sec-Fetch-Site: same-origin")
		require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, w.Code)
	}

	// A hub that watches nothing cannot say what it would sign.
	blind := as(t, open(t, 30), "ben", access.Approver, store.AccessScope{})
	w := blind.do(http.MethodGet, "/environments/prod/workloads?from=stage", nil)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "decide with wherry gate approve --workload")
}
