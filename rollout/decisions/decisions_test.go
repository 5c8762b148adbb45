package decisions

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/registrytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

var (
	commit = strings.Repeat("5", 40)
	trees  = map[string]digest.Digest{"drone": digest.FromString("drone"), "large": digest.FromString("large")}
	noon   = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
)

// world is a location, and the people who decide about prod.
type world struct {
	testing.TB
	loc            oci.Location
	opts           oci.Options
	anna, ben, ci  *keys.Key // carla decides through the hub alone
	hub, stranger  signature.Signer
	policy         promotion.Policy
	releaseSigners published.Signers
}

func newWorld(t testing.TB) *world {
	server := httptest.NewServer(registrytest.New(t, "memory", ""))
	t.Cleanup(server.Close)
	loc, err := oci.Parse("oci://" + strings.TrimPrefix(server.URL, "http://") + "/edge")
	require.NoError(t, err)
	w := &world{TB: t, loc: loc, opts: oci.Options{PlainHTTP: true}, anna: keytest.New(t), ben: keytest.New(t), ci: keytest.New(t), stranger: keytest.New(t)}
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)) // as hubs have them
	w.hub, err = signature.LoadSigner(private, crypto.SHA256)
	require.NoError(t, err)
	leads := promotion.Group{
		Name:    "leads",
		Members: []promotion.Member{{Name: "anna", Key: w.anna.Public()}, {Name: "ben", Key: w.ben.Public()}, {Name: "carla"}},
		Hubs:    []crypto.PublicKey{private.Public()},
	}
	w.policy = promotion.Policy{Environment: "prod", Chain: []string{"stage", "prod"}, Groups: []promotion.Group{leads}}
	w.policy.Gate.Approvals = promotion.Approvals{Required: 2, Group: "leads", Members: leads.Members, Hubs: leads.Hubs}
	w.policy.Gate.Override = promotion.Approvals{Required: 1, Group: "leads", Members: leads.Members[:1], Hubs: leads.Hubs}
	w.releaseSigners = published.Pinned(bundle.Keys{w.ci.Public()})
	return w
}

func TestAHubSpeaksForMembersWithKeysOnlyIfTheGroupSaysSo(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		by   string
		says bool
		want string
	}{
		{"carla", false, ""},
		{"ben", true, ""},
		{"ben", false, `a hub signed it for "ben", who has a key: group "leads" does not say hubSpeaksForKeys: true`},
	} {
		w.policy.Gate.Approvals.HubSpeaksForKeys = test.says
		d := about(bundle.Approve)
		d.By = test.by
		judged := w.trust(noon).judge(Found{Envelope: w.write(d, w.hub, noon).Envelope})
		require.Equal(t, test.want, judged.Why, "%+v", test)
		require.Equal(t, test.want == "", judged.Valid)
	}
}

func (w *world) trust(now time.Time) Trust {
	return Trust{Platform: "coffee", Policy: w.policy, Releases: w.releaseSigners, Now: now}
}

func about(action bundle.Action) bundle.Decision {
	d := bundle.Decision{Action: action, Platform: "coffee", Environment: "prod"}
	if action == bundle.Pause || action == bundle.Resume {
		return d
	}
	d.From, d.BaseCommit, d.Contents = "stage", commit, bundle.DecisionContents(trees)
	switch action {
	case bundle.Reject:
		d.Reason = "the maps are wrong"
	case bundle.Override:
		d.Reason, d.Rules = "the sites are closed", []string{"reported"}
	}
	return d
}

func (w *world) write(d bundle.Decision, key signature.Signer, at time.Time) *Written {
	w.Helper()
	done, err := Write(w.Context(), w.loc, w.opts, d, key, at)
	require.NoError(w, err)
	return done
}

func (w *world) read() []Found {
	w.Helper()
	found, err := Read(w.Context(), w.loc, w.opts, "prod", func(format string, args ...any) { w.Errorf(format, args...) })
	require.NoError(w, err)
	return found
}

// said is who decided what, in the order of Of.
func said(all []gate.Decided) (texts []string) {
	for _, d := range all {
		texts = append(texts, fmt.Sprintf("%s: %s", d.Member, d.Action))
	}
	return texts
}

func TestWhoDecidedWhatCounts(t *testing.T) {
	w := newWorld(t)
	w.policy.Gate.Approvals.HubSpeaksForKeys = true
	by := func(d bundle.Decision, name string) bundle.Decision { d.By = name; return d }
	done := w.write(about(bundle.Approve), w.anna, noon)
	require.Equal(t, releases.OutcomePublished, done.Result)
	require.Nil(t, done.Replaced)
	w.write(by(about(bundle.Approve), "ben"), w.hub, noon.Add(1*time.Second))
	w.write(by(about(bundle.Approve), "carla"), w.hub, noon.Add(2*time.Second))
	require.Equal(t, []string{"anna: approve", "ben: approve", "carla: approve"}, said(Of(w.read(), w.trust(noon))))

	// Ben decides with his own key as well: he is one person, and his later word counts.
	w.write(about(bundle.Reject), w.ben, noon.Add(3*time.Second))
	require.Equal(t, []string{"anna: approve", "carla: approve", "ben: reject"}, said(Of(w.read(), w.trust(noon))))
	again := w.write(about(bundle.Approve), w.ben, noon.Add(3*time.Second))
	require.Equal(t, noon.Add(4*time.Second), again.Decision.IssuedAt, "of one second the later one has to be later")
	require.Equal(t, bundle.Reject, again.Replaced.Action)
	require.Equal(t, []string{"anna: approve", "carla: approve", "ben: approve"}, said(Of(w.read(), w.trust(noon))))

	// A rejection takes one's own override back.
	w.write(about(bundle.Override), w.anna, noon.Add(5*time.Second))
	require.Contains(t, said(Of(w.read(), w.trust(noon))), "anna: override")
	w.write(about(bundle.Reject), w.anna, noon.Add(6*time.Second))
	require.Equal(t, []string{"carla: approve", "ben: approve", "anna: reject"}, said(Of(w.read(), w.trust(noon))))

	// Another commit is another subject.
	other := about(bundle.Approve)
	other.BaseCommit = strings.Repeat("6", 40)
	w.write(other, w.anna, noon.Add(7*time.Second))
	require.Equal(t, []string{"carla: approve", "ben: approve", "anna: reject", "anna: approve"}, said(Of(w.read(), w.trust(noon))))
}

func TestAnApprovalEnds(t *testing.T) {
	w := newWorld(t)
	w.write(about(bundle.Reject), w.anna, noon)
	approval := about(bundle.Approve)
	approval.ExpiresAt = noon.Add(time.Hour)
	w.write(approval, w.anna, noon.Add(time.Minute))
	approval.By, approval.ExpiresAt = "anna", time.Time{}
	require.Equal(t, []string{"anna: approve"}, said(Of(w.read(), w.trust(noon.Add(time.Hour-time.Second)))))
	require.Empty(t, Of(w.read(), w.trust(noon.Add(time.Hour))), "and what it took the place of does not come back")
	list := List(w.read(), w.trust(noon.Add(time.Hour)))
	require.Len(t, list, 1)
	require.Equal(t, "expired at 2026-11-23T13:00:00Z", list[0].Why)
}

func TestAutomationPauses(t *testing.T) {
	w := newWorld(t)
	none := func() {
		t.Helper()
		_, paused := Paused(w.read(), w.trust(noon))
		require.False(t, paused)
	}
	none()
	d := about(bundle.Pause)
	d.Reason = "undone"
	w.write(d, w.ci, noon)
	pause, paused := Paused(w.read(), w.trust(noon))
	require.True(t, paused)
	id, err := bundle.KeyID(w.ci.Public())
	require.NoError(t, err)
	require.Equal(t, Pause{By: "release key " + id[:12], KeyID: id, Reason: "undone", IssuedAt: noon}, pause)
	require.Equal(t, []string{"release key " + id[:12] + ": pause"}, said(Of(w.read(), w.trust(noon))))

	w.write(about(bundle.Resume), w.stranger, noon.Add(time.Second))
	w.write(about(bundle.Resume), w.anna, noon.Add(-time.Minute)) // by a clock that is behind
	_, paused = Paused(w.read(), w.trust(noon))
	require.True(t, paused)
	resume := about(bundle.Resume)
	resume.IssuedAt = pause.IssuedAt
	w.write(resume, w.anna, noon.Add(-time.Minute))
	_, paused = Paused(w.read(), w.trust(noon))
	require.True(t, paused, "of two in the same second the pause counts")
	resume.IssuedAt = pause.IssuedAt.Add(time.Second)
	w.write(resume, w.anna, noon.Add(-time.Minute))
	none()

	d.By = "carla"
	w.write(d, w.hub, noon.Add(time.Minute))
	pause, paused = Paused(w.read(), w.trust(noon.Add(time.Minute)))
	require.True(t, paused)
	require.Equal(t, "carla", pause.By)
	w.releaseSigners = published.Signers{}
	resume.IssuedAt = noon.Add(2 * time.Minute)
	w.write(resume, w.ci, noon.Add(2*time.Minute))
	_, paused = Paused(w.read(), w.trust(noon.Add(2*time.Minute)))
	require.True(t, paused, "a key that is no longer a release key resumes nothing")
}

// The attacks are those of the table in docs/security.md. Whoever makes them may write to the registry.
func TestHostileDecisions(t *testing.T) {
	w := newWorld(t)
	seal := func(d bundle.Decision, key signature.Signer) []byte {
		d.Schema, d.IssuedAt = bundle.DecisionSchema, noon
		envelope, err := bundle.SealDecision(d, key)
		require.NoError(t, err)
		return envelope
	}
	good := seal(about(bundle.Approve), w.anna)
	tagOf := func(envelope []byte) string {
		d, id, err := bundle.ReadDecision(envelope)
		require.NoError(t, err)
		return d.Tag(id)
	}
	changed := func(change func(*dsse.Envelope)) []byte {
		var env dsse.Envelope
		require.NoError(t, json.Unmarshal(good, &env))
		change(&env)
		data, err := json.Marshal(env)
		require.NoError(t, err)
		return data
	}
	with := func(change func(*bundle.Decision)) []byte {
		d := about(bundle.Approve)
		change(&d)
		return seal(d, w.anna)
	}
	forged, err := bundle.SealDecision(func() bundle.Decision {
		d := about(bundle.Approve)
		d.Schema, d.IssuedAt = bundle.DecisionSchema, noon
		return d
	}(), w.stranger)
	require.NoError(t, err)
	anna, err := bundle.KeyID(w.anna.Public())
	require.NoError(t, err)
	var asAnna dsse.Envelope
	require.NoError(t, json.Unmarshal(forged, &asAnna))
	asAnna.Signatures[0].KeyID = anna
	forgedAsAnna, err := json.Marshal(asAnna)
	require.NoError(t, err)
	ahead, err := bundle.SealDecision(func() bundle.Decision {
		d := about(bundle.Approve)
		d.Schema, d.IssuedAt = bundle.DecisionSchema, noon.Add(MaxAhead+time.Second)
		return d
	}(), w.anna)
	require.NoError(t, err)
	hubOf := func(name string) []byte {
		d := about(bundle.Approve)
		d.By = name
		return seal(d, w.hub)
	}

	for _, attack := range []struct {
		name     string
		envelope []byte
		tag      string // empty for the decision's own
		at       time.Time
		why      string // empty if it is passed over with a warning, as what is no decision
	}{
		{name: "an approval that nobody has signed", envelope: changed(func(e *dsse.Envelope) { e.Signatures = nil }), tag: tagOf(good)},
		{name: "an approval by a key outside the group", envelope: forged, why: `is not in group "leads"`},
		{name: "an approval by a stranger that names a member's key", envelope: forgedAsAnna, why: "its signature is not by the key that it names"},
		{name: "an approval by a release key, which is in no group", envelope: seal(about(bundle.Approve), w.ci), why: `is not in group "leads"`},
		{name: "an override by a member of another group", envelope: seal(about(bundle.Override), w.ben), why: `is not in group "leads"`},
		{name: "an approval with other contents under the signature", envelope: changed(func(e *dsse.Envelope) {
			d := about(bundle.Approve)
			d.Schema, d.IssuedAt, d.Contents = bundle.DecisionSchema, noon, map[string]digest.Digest{"drone": digest.FromString("evil")}
			body, err := d.Marshal()
			require.NoError(t, err)
			e.Payload = base64.StdEncoding.EncodeToString(body)
		}), why: "its signature is not by the key that it names"},
		{name: "a decision about another environment in this one's repository", envelope: with(func(d *bundle.Decision) { d.Environment = "test" }), why: `for environment "test"`},
		{name: "a decision about another platform", envelope: with(func(d *bundle.Decision) { d.Platform = "tea" }), why: `for platform "tea"`},
		{name: "a decision under the tag of another", envelope: good, tag: "gate-" + strings.Repeat("0", 32) + "-" + anna[:16], why: "under the tag of another"},
		{name: "a decision from the future", envelope: ahead, why: "issued in the future"},
		{name: "a decision that has expired", envelope: with(func(d *bundle.Decision) { d.ExpiresAt = noon.Add(time.Hour) }), at: noon.Add(time.Hour), why: "expired at"},
		{name: "a hub's word for somebody who is no member", envelope: hubOf("mallory"), why: `a hub signed it for "mallory"`},
		{name: "a hub's word for nobody", envelope: hubOf(""), why: `is not in group "leads"`},
		{name: "a decision above the bound", envelope: append(bytes.Clone(good), bytes.Repeat([]byte(" "), bundle.MaxDecisionBytes)...), tag: tagOf(good)},
		{name: "a tag of decisions on something else", envelope: []byte(`{"schema":1}`), tag: "gate-x"},
	} {
		t.Run(attack.name, func(t *testing.T) {
			w := *w
			w.TB = t
			server := httptest.NewServer(registrytest.New(t, "memory", ""))
			defer server.Close()
			w.loc, err = oci.Parse("oci://" + strings.TrimPrefix(server.URL, "http://") + "/edge")
			require.NoError(t, err)
			w.write(about(bundle.Approve), w.ben, noon) // stays what it is
			tag := attack.tag
			if tag == "" {
				tag = tagOf(attack.envelope)
			}
			w.plant(tag, attack.envelope)
			at := attack.at
			if at.IsZero() {
				at = noon
			}
			var warnings []string
			found, err := Read(t.Context(), w.loc, w.opts, "prod", func(format string, args ...any) {
				warnings = append(warnings, fmt.Sprintf(format, args...))
			})
			require.NoError(t, err)
			require.Equal(t, []string{"ben: approve"}, said(Of(found, w.trust(at))), "the others count")
			if attack.why == "" {
				require.Len(t, warnings, 1)
				require.Contains(t, warnings[0], tag+" is passed over")
				return
			}
			require.Empty(t, warnings)
			for _, l := range List(found, w.trust(at)) {
				if !l.Valid {
					require.Contains(t, l.Why, attack.why)
				}
			}
			require.Len(t, found, 2)
			_, paused := Paused(found, w.trust(at))
			require.False(t, paused)
		})
	}
}

// plant puts any envelope under any tag, as somebody who may write to the registry can.
func (w *world) plant(tag string, envelope []byte) {
	w.Helper()
	repo, err := w.loc.Repository(bundle.EnvironmentRepository("prod"), w.opts)
	require.NoError(w, err)
	blobs, err := bundle.DecisionManifest(envelope)
	require.NoError(w, err)
	for _, b := range blobs {
		require.NoError(w, releases.PushBlob(w.Context(), repo, b))
	}
	require.NoError(w, repo.Tag(w.Context(), blobs[len(blobs)-1].Descriptor, tag))
}

func TestAnOlderDecisionThatIsBroughtBackLosesToTheHubs(t *testing.T) {
	w := newWorld(t)
	old := w.write(about(bundle.Approve), w.anna, noon)
	newer := w.write(about(bundle.Reject), w.anna, noon.Add(time.Minute))
	tag := newer.Decision.Tag(newer.KeyID)
	w.plant(tag, old.Envelope)
	later := w.trust(noon.Add(time.Hour))
	require.Equal(t, []string{"anna: approve"}, said(Of(w.read(), later)), "the registry alone does not know better")
	hub := Found{Envelope: newer.Envelope, Source: "https://hub"}
	require.Equal(t, []string{"anna: reject"}, said(Of(append(w.read(), hub), later)))

	_, err := Put(t.Context(), w.loc, w.opts, newer.Envelope)
	require.NoError(t, err)
	_, err = Put(t.Context(), w.loc, w.opts, old.Envelope)
	require.ErrorIs(t, err, ErrNewer)
	same, err := Put(t.Context(), w.loc, w.opts, newer.Envelope)
	require.NoError(t, err)
	require.Equal(t, releases.OutcomeUnchanged, same.Result)
	require.Len(t, List(append(w.read(), hub), later), 1, "the same from two sources is one")
}

func TestTwoMachinesOfOnePersonEndWithTheLaterDecision(t *testing.T) {
	w := newWorld(t)
	errs := make(chan error, 2)
	for i, action := range []bundle.Action{bundle.Approve, bundle.Reject} {
		go func() {
			d := about(action)
			d.IssuedAt = noon.Add(time.Duration(i) * time.Second)
			_, err := Write(context.Background(), w.loc, w.opts, d, w.anna, noon)
			errs <- err
		}()
	}
	failed := 0
	for range 2 {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, ErrNewer)
			failed++
		}
	}
	require.LessOrEqual(t, failed, 1)
	require.Len(t, Of(w.read(), w.trust(noon)), 1)
}

func TestTooManyDecisionsAreAnError(t *testing.T) {
	tags := func(prefix string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s%d-1", prefix, i))
		}
		return all
	}
	both := append(tags(bundle.DecisionTagPrefix, Max), tags(bundle.ContentTagPrefix, MaxContent)...)
	chosen, err := choose(both, false, everything, nil)
	require.NoError(t, err, "each kind has its own bound")
	require.Len(t, chosen, Max+MaxContent)
	_, err = choose(append(both, bundle.DecisionTagPrefix+"x-1"), false, nil, nil)
	require.ErrorIs(t, err, ErrTooMany)
	require.ErrorContains(t, err, "1001 under gate-…, at most 1000 are read: delete old ones with wherry bundle gc")
	more := append(both, bundle.ContentTagPrefix+"x-1")
	_, err = choose(more, false, everything, nil)
	require.ErrorContains(t, err, "10001 under content-…, at most 10000 are read")
	_, err = choose(more, false, nil, nil)
	require.NoError(t, err, "who does not ask about content does not count them")
}

func TestDecisionsAboutContent(t *testing.T) {
	w := newWorld(t)
	cart := bundle.DecisionWorkload{Registration: "shop", Name: "cart", Revision: digest.FromString("2.0")}
	of := func(action bundle.Action, of bundle.DecisionWorkload, by string) bundle.Decision {
		d := about(action)
		d.BaseCommit, d.Contents, d.Workload, d.By = "", nil, of, by
		return d
	}
	older := cart
	older.Revision = digest.FromString("1.0")
	w.write(of(bundle.Approve, cart, "anna"), w.anna, noon)
	w.write(of(bundle.Override, cart, "anna"), w.anna, noon)
	w.write(of(bundle.Reject, cart, "carla"), w.hub, noon)
	w.write(of(bundle.Approve, older, "ben"), w.ben, noon)
	stranger := w.write(of(bundle.Reject, cart, "eve"), w.stranger, noon)
	w.write(about(bundle.Approve), w.ben, noon)

	read := func(of ...bundle.DecisionWorkload) []string {
		found, err := ReadAbout(t.Context(), w.loc, w.opts, w.trust(noon), "stage", of, func(format string, args ...any) { t.Errorf(format, args...) })
		require.NoError(t, err)
		return said(Of(found, w.trust(noon)))
	}
	require.Equal(t, []string{"ben: approve"}, said(Of(w.read(), w.trust(noon))), "a gate of commits does not read them")
	require.Equal(t, []string{"ben: approve", "ben: approve"}, read(older))
	require.Equal(t, []string{"ben: approve", "anna: override", "anna: approve", "carla: reject"}, read(cart), "in the same second those that forbid are last")
	require.Equal(t, []string{"ben: approve"}, read(bundle.DecisionWorkload{Registration: "shop", Name: "cart"}), "its removal is another question")

	found, err := ReadAll(t.Context(), w.loc, w.opts, "prod", func(format string, args ...any) { t.Errorf(format, args...) })
	require.NoError(t, err)
	require.Len(t, found, 6)
	for _, l := range List(found, w.trust(noon)) {
		require.Equal(t, l.KeyID != stranger.KeyID, l.Valid, "%s %s: %s", l.By, l.Action, l.Why)
	}
	w.write(of(bundle.Reject, cart, "anna"), w.anna, noon.Add(time.Minute))
	require.Equal(t, []string{"ben: approve", "carla: reject", "anna: reject"}, read(cart), "her rejection takes the place of her approval and her override")

	w.policy.Gate.Approvals = promotion.Approvals{}
	require.Equal(t, []string{"carla: reject", "anna: reject"}, read(cart), "every member of a group may reject a revision")
}

// A decision in whose place a later one is stays in the registry, and is listed with the reason why it does not count.
func TestADecisionThatWasReplacedIsKept(t *testing.T) {
	w := newWorld(t)
	first, err := Write(t.Context(), w.loc, w.opts, about(bundle.Approve), w.anna, noon)
	require.NoError(t, err)
	reject := about(bundle.Reject)
	reject.Reason = "wrong commit"
	second, err := Write(t.Context(), w.loc, w.opts, reject, w.anna, noon)
	require.NoError(t, err)
	require.Len(t, w.read(), 1, "a gate reads the last one alone")
	found, err := ReadAll(t.Context(), w.loc, w.opts, "prod", func(format string, args ...any) { t.Errorf(format, args...) })
	require.NoError(t, err)
	require.Len(t, found, 2, "each once")
	list := List(append(found, Found{Envelope: first.Envelope, Source: "a hub"}), w.trust(noon.Add(time.Minute)))
	require.Len(t, list, 2)
	require.Equal(t, second.Decision, list[0].Decision)
	require.True(t, list[0].Valid)
	require.Equal(t, first.Decision, list[1].Decision)
	require.Contains(t, list[1].Why, "later, at ")
}
