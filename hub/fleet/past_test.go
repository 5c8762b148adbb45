package fleet

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// past is a memory with changes, and with the reports of one cluster.
type past struct {
	*memory
	changes   []store.Change // oldest first
	reports   []store.StoredReport
	envelopes map[store.Order][]byte
	keys      []store.SigningKey
	asked     int // for changes
}

func (p *past) Transitions(_ context.Context, f store.TransitionFilter) (list store.TransitionList, err error) {
	p.asked++
	begin := 0
	if f.After != "" {
		if begin, err = strconv.Atoi(f.After); err != nil {
			return list, store.ErrInvalid
		}
	}
	for i, c := range slices.Backward(p.changes) {
		skip := len(p.changes) - 1 - i
		at := c.Proof.OccurredAt
		switch s := f.Scope; {
		case skip < begin,
			s.UIDs != nil && !slices.Contains(s.UIDs, c.UID),
			s.Environment != "" && s.Environment != c.Environment, s.Type != "" && s.Type != c.Type,
			s.Workspace != "" && s.Workspace != c.Workspace, s.Workload != "" && s.Workload != c.Workload,
			s.Assignment != "" && s.Assignment != c.Assignment,
			!f.Both && f.WholeAgent != (c.Assignment == ""),
			!f.From.IsZero() && at.Before(f.From), !f.Until.IsZero() && !at.Before(f.Until),
			f.First != store.Order{} && c.Proof.At.Compare(f.First) < 0, f.Last != store.Order{} && c.Proof.At.Compare(f.Last) > 0:
			continue
		}
		if len(list.Transitions) == f.Limit {
			list.Next = strconv.Itoa(skip)
			return list, nil
		}
		list.Transitions = append(list.Transitions, c)
	}
	return list, nil
}

func (p *past) ReportList(_ context.Context, f store.ReportFilter) (list store.ReportList, err error) {
	for _, r := range slices.Backward(p.reports) {
		if f.Before != (store.Order{}) && r.At.Compare(f.Before) >= 0 {
			continue
		}
		if len(list.Reports) == f.Limit {
			list.More = true
			break
		}
		list.Reports = append(list.Reports, r)
	}
	return list, nil
}

func (p *past) Envelope(_ context.Context, _ string, at store.Order) ([]byte, error) {
	if e := p.envelopes[at]; e != nil {
		return e, nil
	}
	return nil, store.ErrForgotten
}

func (p *past) Place(_ context.Context, _ string, id digest.Digest) (store.Order, error) {
	for _, r := range p.reports {
		if r.ID == id {
			return r.At, nil
		}
	}
	return store.Order{}, store.ErrUnknownReport
}

func (p *past) SigningKeys(context.Context, string) ([]store.SigningKey, error) { return p.keys, nil }

// site returns a cluster that was registered.
func site(name, environment, workspace string) store.ClusterState {
	var s store.ClusterState
	s.UID, s.Name, s.Environment, s.Type, s.Platform, s.Ring = "uid-"+name, name, environment, "drone", "edge", "canary"
	s.Labels = map[string]string{"region": "east"}
	s.Newest, s.LastSeen, s.State = store.Order{Incarnation: 1, Seq: 9}, start, bundle.Compliant
	s.Deployments = []store.Deployment{{Assignment: "web-main", Workspace: workspace, Workload: "web", Target: "main", State: bundle.Compliant}}
	return s
}

func release(name string) digest.Digest { return digest.FromString(name) }

// running is a compliant point with a version.
func running(version string) store.Point {
	return store.Point{State: bundle.Compliant, Version: version, Content: release(version), Release: release("r" + version)}
}

// change returns the seq-th change of an assignment of a site, an hour after the one before.
func change(site string, seq int64, assignment, workspace string, from, to store.Point) store.Change {
	at := start.Add(time.Duration(seq-100) * time.Hour)
	c := store.Change{
		UID: "uid-" + site, Cluster: site, Environment: "prod", Type: "drone", Assignment: assignment, From: from, To: to,
		Proof: store.Proof{Report: release(fmt.Sprint(site, seq)), At: store.Order{Incarnation: 1, Seq: seq}, OccurredAt: at, ReceivedAt: at.Add(time.Minute), Via: store.ViaMedia},
	}
	if assignment != "" {
		c.Workspace, c.Workload, c.Target = workspace, "web", "main"
	}
	return c
}

// rolledBack is a site that went back to its first version, and another one.
func rolledBack() *past {
	p := &past{memory: newMemory(site("a", "prod", "red"), site("b", "dev", "blue"))}
	p.publish(store.PublishedRelease{Digest: release("r2"), Release: bundle.Release{Number: 12, BaseCommit: "c0ffee", EnvironmentCommit: "facade"}})
	failed := running("2")
	failed.State, failed.Reason = bundle.Failed, "Timeout"
	p.changes = []store.Change{
		change("a", 1, "", "", store.Point{}, store.Point{State: bundle.Compliant, Release: release("r1")}),
		change("a", 2, "web-main", "red", store.Point{}, running("1")),
		change("a", 3, "", "", store.Point{State: bundle.Compliant, Release: release("r1")}, store.Point{State: bundle.Compliant, Release: release("r2")}),
		change("a", 4, "web-main", "red", running("1"), running("2")),
		change("a", 5, "web-main", "red", running("2"), failed),
		change("a", 6, "web-main", "red", failed, running("1")),
		change("a", 7, "web-main", "red", running("1"), store.Point{State: bundle.Removed}),
		change("a", 8, "web-main", "red", store.Point{State: bundle.Removed}, running("1")),
		change("b", 9, "web-main", "blue", store.Point{}, running("7")),
		change("gone", 10, "web-main", "green", store.Point{}, running("7")),
	}
	p.changes[8].Environment = "dev"
	p.changes[5].Returns = true
	return p
}

func TestHistorySaysWhatChangedAndWhatWasARollback(t *testing.T) {
	v := all(t, rolledBack())
	h, err := v.History(t.Context(), HistoryQuery{Query: Query{Cluster: "a"}})
	require.NoError(t, err)
	var got []string
	for _, c := range h.Changes {
		got = append(got, fmt.Sprint(c.Assignment, c.What, c.From.Version, ">", c.To.Version, c.Rollback))
	}
	require.Equal(t, []string{
		"web-main[added]>1false", "web-main[removed]1>false", "web-main[version content release state]2>1true", "web-main[state]2>2false",
		"web-main[version content release]1>2false", "[release]>false", "web-main[added]>1false", "[added]>false",
	}, got)
	first := h.Changes[4]
	require.Equal(t, HistoryRow{
		At: start.Add(-96 * time.Hour), UID: "uid-a", Cluster: "a", Environment: "prod", Type: "drone", Assignment: "web-main", Workspace: "red",
		Workload: "web", Target: "main", What: first.What,
		From: HistoryPoint{State: bundle.Compliant, Version: "1", Content: release("1"), Release: release("r1"), ReleaseName: bundle.ReleaseName(0, release("r1"))},
		To: HistoryPoint{
			State: bundle.Compliant, Version: "2", Content: release("2"), Release: release("r2"), ReleaseName: bundle.ReleaseName(12, release("r2")),
			BaseCommit: "c0ffee", EnvironmentCommit: "facade",
		},
		ReceivedAt: start.Add(-96*time.Hour + time.Minute), Via: store.ViaMedia, Report: release("a4"),
	}, first)
}

func TestHistoryIsChosenAndPaged(t *testing.T) {
	p := rolledBack()
	v := all(t, p)
	seqs := func(v *View, q HistoryQuery) (got []int64) {
		t.Helper()
		for {
			h, err := v.History(t.Context(), q)
			require.NoError(t, err)
			for _, c := range h.Changes {
				got = append(got, int64(c.At.Sub(start)/time.Hour)+100)
			}
			if q.After = h.Next; h.Next == "" {
				return got
			}
		}
	}
	for _, tt := range []struct {
		q    HistoryQuery
		want []int64
	}{
		{HistoryQuery{}, []int64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{HistoryQuery{Query: Query{Workload: "web", Environments: []string{"prod"}}}, []int64{10, 8, 7, 6, 5, 4, 2}},
		{HistoryQuery{Query: Query{Workspace: "red", Limit: 2}}, []int64{8, 7, 6, 5, 4, 2}},
		{HistoryQuery{Query: Query{Version: "2", Limit: 1}}, []int64{6, 5, 4}},
		{HistoryQuery{Query: Query{State: []bundle.State{bundle.Failed}}}, []int64{5}},
		{HistoryQuery{Query: Query{Commit: "c0ffee1"}}, nil},
		{HistoryQuery{Query: Query{Release: digest.Digest(release("r2").Encoded()[:8])}}, []int64{6, 5, 4, 3}},
		{HistoryQuery{Query: Query{Cluster: "uid-b"}}, []int64{9}},
		{HistoryQuery{Query: Query{Selector: "region=east", Type: "drone", Ring: "canary"}}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{HistoryQuery{Query: Query{Selector: "region!=east"}}, nil},
		{HistoryQuery{From: start.Add(-95 * time.Hour), Until: start.Add(-92 * time.Hour)}, []int64{7, 6, 5}},
	} {
		require.Equal(t, tt.want, seqs(v, tt.q), "%+v", tt.q)
	}
	for _, tt := range []struct {
		scope store.AccessScope
		want  []int64
	}{
		{store.AccessScope{Environments: []string{"dev"}}, []int64{9}},
		{store.AccessScope{Workspaces: []string{"red"}}, []int64{8, 7, 6, 5, 4, 2}},
		{store.AccessScope{Workspaces: []string{"red"}, Environments: []string{"dev"}}, nil},
		{store.AccessScope{Selector: "region=east"}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{store.AccessScope{Selector: "region=west"}, nil},
		{store.AccessScope{Selector: "!gpu"}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}}, // the labels of one that is gone are not known
	} {
		require.Equal(t, tt.want, seqs(viewOf(t, p, tt.scope), HistoryQuery{}), "%+v", tt.scope)
	}
	for _, q := range []Query{{Image: "x"}, {Relation: []Relation{Behind}}, {Sort: "name"}, {AsOf: start}, {SilentFor: time.Hour}, {Adapter: "x"}, {Selector: "("}, {Release: "xyz"}, {Commit: "x"}, {State: []bundle.State{"x"}}} {
		_, err := v.History(t.Context(), HistoryQuery{Query: q})
		require.ErrorIs(t, err, store.ErrInvalid, "%+v", q)
	}
	_, err := v.History(t.Context(), HistoryQuery{Query: Query{Cluster: "nowhere"}})
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	_, err = viewOf(t, p, store.AccessScope{Environments: []string{"dev"}}).History(t.Context(), HistoryQuery{Query: Query{Cluster: "a"}})
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	var unknown *UnknownNameError
	_, err = v.History(t.Context(), HistoryQuery{Query: Query{Workload: "wbe"}})
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, []string{"web"}, unknown.Near)
}

func TestReportsAreVerifiedAnew(t *testing.T) {
	p := &past{memory: newMemory(site("a", "prod", "red")), envelopes: map[store.Order][]byte{}}
	var private []ed25519.PrivateKey
	for i := range 4 {
		pub, key, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		private = append(private, key)
		k := store.SigningKey{ID: fmt.Sprint(i), Key: pub}
		switch i {
		case 1:
			k.RevokedAt, k.Until = start, store.Order{Incarnation: 1, Seq: 3}
		case 2:
			k.RevokedAt = start
		}
		if i < 3 { // the last one is not registered
			p.keys = append(p.keys, k)
		}
	}
	seal := func(seq int64, by ed25519.PrivateKey, change func(*bundle.Report)) {
		at := store.Order{Incarnation: 1, Seq: seq}
		r := bundle.Report{Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster{UID: "uid-a"}, Agent: bundle.ReportAgent{Incarnation: 1, Seq: seq}, Message: "x\x1b[2J"}
		body, err := json.Marshal(r)
		require.NoError(t, err)
		stored := store.StoredReport{ID: bundle.ReportID(body), At: at, Kind: "event", OccurredAt: start, ReceivedAt: start, Via: store.ViaHTTP, KeyID: "0", Kept: true}
		change(&r)
		body, err = json.Marshal(r)
		require.NoError(t, err)
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, by)
		require.NoError(t, err)
		p.reports, p.envelopes[at] = append(p.reports, stored), envelope
	}
	same := func(*bundle.Report) {}
	seal(1, private[0], same)
	seal(2, private[1], same)
	seal(3, private[2], same)
	seal(4, private[1], same) // after its key was replaced
	seal(5, private[3], same)
	seal(6, private[0], func(r *bundle.Report) { r.State = bundle.Failed }) // another body than the one that was stored
	seal(7, private[0], same)
	p.envelopes[store.Order{Incarnation: 1, Seq: 7}] = []byte("{")
	p.reports = append(p.reports, store.StoredReport{At: store.Order{Incarnation: 1, Seq: 8}})

	v := all(t, p)
	for seq, want := range map[int64]string{1: SignatureGood, 2: SignaturePrevious, 3: SignatureRevoked, 4: SignatureRevoked, 5: SignatureBad, 6: SignatureBad, 7: SignatureBad} {
		d, err := v.Report(t.Context(), "a", bundle.ReportTag(1, seq))
		require.NoError(t, err)
		require.Equal(t, want, d.Signature, "report %d", seq)
		require.Equal(t, p.envelopes[store.Order{Incarnation: 1, Seq: seq}], d.Envelope)
		if seq < 7 {
			require.Equal(t, "x[2J", d.Body.Message)
		}
	}
	byID, err := v.Report(t.Context(), "uid-a", string(p.reports[1].ID))
	require.NoError(t, err)
	require.Equal(t, "r1-2", byID.Name)
	for name, want := range map[string]error{
		"r1-8": store.ErrForgotten, "r1-9": store.ErrUnknownReport, "r2-1": store.ErrUnknownReport, string(digest.FromString("x")): store.ErrUnknownReport,
		"x": store.ErrInvalid, "r1-1-abcdef012345": store.ErrInvalid,
	} {
		_, err := v.Report(t.Context(), "a", name)
		require.ErrorIs(t, err, want, name)
	}

	list, err := v.Reports(t.Context(), "a", Query{Limit: 3})
	require.NoError(t, err)
	require.Equal(t, []string{"r1-8", "r1-7", "r1-6"}, []string{list.Reports[0].Name, list.Reports[1].Name, list.Reports[2].Name})
	list, err = v.Reports(t.Context(), "a", Query{After: list.Next})
	require.NoError(t, err)
	require.Len(t, list.Reports, 5)
	require.Empty(t, list.Next)
	_, err = v.Reports(t.Context(), "a", Query{After: "x"})
	require.ErrorIs(t, err, store.ErrInvalid)
	for _, s := range []store.AccessScope{{Workspaces: []string{"red"}}, {Environments: []string{"dev"}}, {Selector: "region=west"}} {
		_, err = viewOf(t, p, s).Reports(t.Context(), "a", Query{})
		require.ErrorIs(t, err, store.ErrUnknownCluster)
		_, err = viewOf(t, p, s).Report(t.Context(), "a", "r1-1")
		require.ErrorIs(t, err, store.ErrUnknownCluster)
	}
}

// eventful is the feed of rolledBack: two batches of reports, a cluster that came, and what was published.
func eventful() *past {
	p := rolledBack()
	p.entries = []store.FeedEntry{
		{Position: 11, Kind: store.FeedReports, UID: "uid-a", First: store.Order{Incarnation: 1, Seq: 1}, Last: store.Order{Incarnation: 1, Seq: 4}},
		{Position: 12, Kind: store.FeedAccess},
		{Position: 13, Kind: store.FeedCluster, UID: "uid-b"},
		{Position: 14, Kind: store.FeedPublished, Platform: "edge", Environment: "prod", Digest: release("r2")},
		{Position: 15, Kind: store.FeedReports, UID: "uid-a", First: store.Order{Incarnation: 1, Seq: 6}, Last: store.Order{Incarnation: 1, Seq: 6}},
		{Position: 16, Kind: store.FeedCluster, UID: "uid-gone"},
	}
	p.end = 16
	return p
}

var errEnough = errors.New("enough")

// told returns the events after a position up to the end of the feed, and the positions that were passed.
func toldOf(t *testing.T, v *View, after store.Position, q Query) (events []string, passed []store.Position) {
	t.Helper()
	last := func(at store.Position) error {
		if at == 16 {
			return errEnough
		}
		return nil
	}
	err := v.Follow(t.Context(), after, q, func(e Event) error {
		said := fmt.Sprint(e.ID, " ", e.Kind, " ", e.Cluster)
		if e.Change != nil {
			said += fmt.Sprint(" ", e.Change.Assignment, e.Change.What, e.Change.Rollback)
		}
		if e.More {
			said += " …"
		}
		events = append(events, said)
		return last(e.ID)
	}, func(at store.Position) error {
		passed = append(passed, at)
		return last(at)
	})
	require.ErrorIs(t, err, errEnough)
	return events, passed
}

func TestEventsAreTheChangesOfTheFeedWithinTheScope(t *testing.T) {
	p := eventful()
	v := all(t, p)
	events, passed := toldOf(t, v, 10, Query{})
	require.Equal(t, []string{
		"11 change a [added] false …", "11 change a web-main[added] false …", "11 change a [release] false …", "11 change a web-main[version content release] false",
		"13 cluster b", "14 published ", "15 change a web-main[version content release state] true", "16 cluster ",
	}, events)
	require.Equal(t, []store.Position{10}, passed)
	before := p.asked
	events, _ = toldOf(t, v, 12, Query{})
	require.Len(t, events, 4)
	require.Equal(t, before, p.asked, "what was read is shared")

	for _, tt := range []struct {
		scope store.AccessScope
		q     Query
		want  []string
	}{
		{store.AccessScope{Environments: []string{"dev"}}, Query{}, []string{"13 cluster b"}},
		{store.AccessScope{Environments: []string{"prod"}}, Query{State: []bundle.State{bundle.Compliant}, Workload: "web"}, []string{
			"11 change a web-main[added] false …", "11 change a web-main[version content release] false", "15 change a web-main[version content release state] true",
		}},
		{store.AccessScope{Workspaces: []string{"blue"}}, Query{}, nil},
		{store.AccessScope{Workspaces: []string{"red"}}, Query{Version: "2"}, []string{"11 change a web-main[version content release] false", "15 change a web-main[version content release state] true"}},
		{store.AccessScope{Selector: "region=west"}, Query{}, nil},
		{store.AccessScope{}, Query{Cluster: "b"}, []string{"13 cluster b"}},
		{store.AccessScope{}, Query{Environments: []string{"prod"}, Workload: "none"}, nil},
	} {
		events, passed := toldOf(t, viewOf(t, p, tt.scope), 10, tt.q)
		require.Equal(t, tt.want, events, "%+v %+v", tt.scope, tt.q)
		require.Equal(t, store.Position(16), passed[len(passed)-1], "those who follow learn how far they are")
	}
}

func TestEventsBeginWithTheNextOneOrAreForgotten(t *testing.T) {
	p := eventful()
	v := all(t, p)
	none := func(Event) error { return errors.New("an event") }
	var begun store.Position
	err := v.Follow(t.Context(), -1, Query{}, none, func(at store.Position) error { begun = at; return errEnough })
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, store.Position(16), begun)
	require.ErrorIs(t, v.Events(t.Context(), 3, Query{}, none), store.ErrForgotten)
	require.ErrorIs(t, v.Events(t.Context(), 17, Query{}, none), store.ErrForgotten)
	require.ErrorIs(t, v.Events(t.Context(), -1, Query{Sort: "name"}, none), store.ErrInvalid)

	ctx, cancel := context.WithCancel(t.Context())
	err = v.Follow(ctx, -1, Query{}, func(e Event) error {
		require.Equal(t, store.Position(17), e.ID)
		cancel()
		return nil
	}, func(at store.Position) error {
		if at == 16 {
			p.put(site("b", "dev", "blue"))
			p.mu.Lock()
			p.entries[len(p.entries)-1].Kind = store.FeedCluster
			p.mu.Unlock()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}
