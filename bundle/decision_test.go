package bundle

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/errdef"
)

func sampleDecision(action Action) Decision {
	d := Decision{
		Schema: DecisionSchema, Action: action, Platform: "coffee", Environment: "prod",
		IssuedAt: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC),
	}
	if action == Pause || action == Resume {
		return d
	}
	d.From, d.BaseCommit = "stage", "5523a85f37d12c0c7c10ab6616644db089fcd6f7"
	d.Contents = map[string]digest.Digest{"drone": digest.FromString("drone"), "large": digest.FromString("large")}
	switch action {
	case Reject:
		d.Reason = "the drones of plant 7 lost their maps"
	case Override:
		d.Reason, d.Rules = "the sites are closed over Christmas", []string{"reported", "soak"}
	}
	return d
}

var cart = DecisionWorkload{Registration: "shop", Name: "cart", Revision: digest.FromString("cart")}

// aboutCart has a decision be about a workload.
func aboutCart(d *Decision) { d.BaseCommit, d.Contents, d.Workload = "", nil, cart }

func TestADecisionAboutAWorkloadIsTheseBytes(t *testing.T) {
	d := sampleDecision(Approve)
	aboutCart(&d)
	body, err := d.Marshal()
	require.NoError(t, err)
	require.Equal(t, `{"schema":1,"action":"approve","platform":"coffee","environment":"prod","from":"stage",`+
		`"workload":{"registration":"shop","name":"cart","revision":"`+digest.FromString("cart").String()+`"},"issuedAt":"2026-11-23T10:00:00Z"}`, string(body))
	require.Regexp(t, "^content-[0-9a-f]{32}-a{16}$", d.Tag(strings.Repeat("a", 64)))
	require.True(t, IsKeptTag(d.KeptTag(strings.Repeat("a", 64), nil)))
	read, err := ParseDecision(body)
	require.NoError(t, err)
	require.Equal(t, d, read)
}

// The bytes and the tag are an interface: another version has to read them, and to find the place.
func TestADecisionIsTheseBytes(t *testing.T) {
	signer, pub := fixedKey(t, 1)
	id, err := KeyID(pub)
	require.NoError(t, err)
	d := sampleDecision(Override)
	d.Ring, d.By, d.ExpiresAt = "canary", "ben", d.IssuedAt.Add(24*time.Hour)
	body, err := d.Marshal()
	require.NoError(t, err)
	require.Equal(t, `{"schema":1,"action":"override","platform":"coffee","environment":"prod","ring":"canary",`+
		`"baseCommit":"5523a85f37d12c0c7c10ab6616644db089fcd6f7","from":"stage",`+
		`"contents":{"drone":"`+digest.FromString("drone").String()+`","large":"`+digest.FromString("large").String()+`"},`+
		`"rules":["reported","soak"],"reason":"the sites are closed over Christmas","by":"ben",`+
		`"issuedAt":"2026-11-23T10:00:00Z","expiresAt":"2026-11-24T10:00:00Z"}`, string(body))
	require.Equal(t, "gate-bc13855179d4f795571a33c8083c2900-"+id[:16], d.Tag(id))
	require.False(t, IsKeptTag(d.Tag(id)))

	envelope, err := SealDecision(d, signer)
	require.NoError(t, err)
	require.Equal(t, "sha256:6cfbdc620e53cf56d6b3b38b0dd431e33b2d332b664bbc8cf39b617f98f01aee", digest.FromBytes(envelope).String(), "%s", envelope)
	require.Equal(t, d.Tag(id)+"-6cfbdc620e53cf56", d.KeptTag(id, envelope))
	require.True(t, IsKeptTag(d.KeptTag(id, envelope)))
	for tag, want := range map[string]bool{d.Tag(id): true, d.KeptTag(id, envelope): true, d.Tag(id) + "-0000000000000000": false, "gate-other": false} {
		require.Equal(t, want, d.HasTag(tag, id, envelope), tag)
	}
	got, by, err := OpenDecision(envelope, pub)
	require.NoError(t, err)
	require.Equal(t, d, got)
	require.Equal(t, id, by)
}

func TestTheTagIsThatOfTheSubjectAndTheSigner(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	approve := sampleDecision(Approve)
	require.Equal(t, approve.Tag(a), sampleDecision(Reject).Tag(a), "a rejection takes the place of the approval")
	require.Equal(t, sampleDecision(Pause).Tag(a), sampleDecision(Resume).Tag(a))
	later := approve
	later.IssuedAt, later.Reason, later.ExpiresAt = later.IssuedAt.Add(time.Hour), "again", later.IssuedAt.Add(2*time.Hour)
	require.Equal(t, approve.Tag(a), later.Tag(a))

	tags := map[string]string{approve.Tag(a): "itself", approve.Tag(b): "another signer"}
	for name, change := range map[string]func(*Decision){
		"an override":         func(d *Decision) { *d = sampleDecision(Override) },
		"a pause":             func(d *Decision) { *d = sampleDecision(Pause) },
		"another platform":    func(d *Decision) { d.Platform = "tea" },
		"another environment": func(d *Decision) { d.Environment = "other" },
		"a ring":              func(d *Decision) { d.Ring = "canary" },
		"another ring":        func(d *Decision) { d.Ring = "stable" },
		"another record":      func(d *Decision) { d.From = "dev" },
		"another commit":      func(d *Decision) { d.BaseCommit = strings.Repeat("0", 40) },
		"another person":      func(d *Decision) { d.By = "ben" },
		"no contents":         func(d *Decision) { d.Contents = nil },
		"a workload":          aboutCart,
		"another revision":    func(d *Decision) { aboutCart(d); d.Workload.Revision = digest.FromString("other") },
		"its removal":         func(d *Decision) { aboutCart(d); d.Workload.Revision = "" },
		"another workload":    func(d *Decision) { aboutCart(d); d.Workload.Name = "menu" },
		"the platform's own":  func(d *Decision) { aboutCart(d); d.Workload.Registration = "" },
		"other contents":      func(d *Decision) { d.Contents = map[string]digest.Digest{"drone": digest.FromString("drone")} },
	} {
		d := sampleDecision(Approve)
		change(&d)
		require.Empty(t, tags[d.Tag(a)], "%s has a tag of its own", name)
		tags[d.Tag(a)] = name
	}
}

func TestADecisionThatMakesNoSenseIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		action Action
		change func(*Decision)
		words  string
	}{
		{"no schema", Approve, func(d *Decision) { d.Schema = 0 }, "schema 0"},
		{"an unknown action", Approve, func(d *Decision) { d.Action = "delete" }, `unknown action "delete"`},
		{"no platform", Approve, func(d *Decision) { d.Platform = "" }, "lacks platform"},
		{"no environment", Pause, func(d *Decision) { d.Environment = "" }, "lacks platform or environment"},
		{"a name that commands the terminal", Pause, func(d *Decision) { d.Environment = "\x1b[2J" }, "the name"},
		{"a name of a whole page", Pause, func(d *Decision) { d.Platform = strings.Repeat("p", 254) }, "the name"},
		{"a person with two lines", Pause, func(d *Decision) { d.By = "anna\nben" }, "the name"},
		{"a ring with a zero byte", Approve, func(d *Decision) { d.Ring = "a\x00b" }, "the name"},
		{"no time", Pause, func(d *Decision) { d.IssuedAt = time.Time{} }, "lacks its time"},
		{"a part of a second", Pause, func(d *Decision) { d.IssuedAt = d.IssuedAt.Add(1) }, "not a whole second"},
		{"local time", Pause, func(d *Decision) { d.IssuedAt = d.IssuedAt.In(time.FixedZone("", 3600)) }, "not a whole second in UTC"},
		{"an end before its beginning", Approve, func(d *Decision) { d.ExpiresAt = d.IssuedAt }, "expires before it is issued"},
		{"an end in a part of a second", Approve, func(d *Decision) { d.ExpiresAt = d.IssuedAt.Add(time.Second + 1) }, "not a whole second"},
		{"a rejection that ends", Reject, func(d *Decision) { d.ExpiresAt = d.IssuedAt.Add(time.Hour) }, "has an end"},
		{"a pause that ends", Pause, func(d *Decision) { d.ExpiresAt = d.IssuedAt.Add(time.Hour) }, "has an end"},
		{"a rejection without a reason", Reject, func(d *Decision) { d.Reason = "" }, "lacks a reason"},
		{"an override without a reason", Override, func(d *Decision) { d.Reason = "" }, "lacks a reason"},
		{"a reason that is too long", Reject, func(d *Decision) { d.Reason = strings.Repeat("x", MaxReasonBytes+1) }, "501 bytes"},
		{"a reason of two lines", Reject, func(d *Decision) { d.Reason = "a\nb" }, "one line"},
		{"an override of nothing", Override, func(d *Decision) { d.Rules = nil }, "no rule"},
		{"an approval of rules", Approve, func(d *Decision) { d.Rules = []string{"soak"} }, "names rules"},
		{"rules out of order", Override, func(d *Decision) { d.Rules = []string{"soak", "cohort"} }, "not sorted"},
		{"a rule twice", Override, func(d *Decision) { d.Rules = []string{"soak", "soak"} }, "not sorted"},
		{"a rule that is none", Override, func(d *Decision) { d.Rules = []string{"so ak"} }, "the rule"},
		{"too many rules", Override, func(d *Decision) { d.Rules = make([]string, MaxDecisionRules+1) }, "33 rules"},
		{"a commit that is none", Approve, func(d *Decision) { d.BaseCommit = "a b" }, "not the name of a commit"},
		{"a commit of a whole page", Approve, func(d *Decision) { d.BaseCommit = strings.Repeat("5", 129) }, "not the name of a commit"},
		{"no contents of a ring", Approve, func(d *Decision) { d.Ring, d.Contents = "canary", nil }, "lacks contents"},
		{"neither contents nor a commit", Approve, func(d *Decision) { d.BaseCommit, d.Contents = "", nil }, "lacks contents"},
		{"a workload and a commit", Approve, func(d *Decision) { d.Workload = cart }, "about a workload names"},
		{"a workload without a name", Approve, func(d *Decision) { aboutCart(d); d.Workload.Name = "" }, "has the workload"},
		{"a registration of two lines", Approve, func(d *Decision) { aboutCart(d); d.Workload.Registration = "a\nb" }, "has the workload"},
		{"a revision that is no digest", Approve, func(d *Decision) { aboutCart(d); d.Workload.Revision = "2.4.1" }, "has the revision"},
		{"a pause of a workload", Pause, func(d *Decision) { d.Workload = cart }, "names a ring, a commit, contents or a workload"},
		{"no environment of the record", Approve, func(d *Decision) { d.From = "" }, "lacks"},
		{"a content that is no digest", Approve, func(d *Decision) { d.Contents["drone"] = "sha256:x" }, "the content"},
		{"a content by a weak digest", Approve, func(d *Decision) { d.Contents["drone"] = "md5:d41d8cd98f00b204e9800998ecf8427e" }, "the content"},
		{"a content of nothing", Approve, func(d *Decision) { d.Contents[""] = digest.FromString("x") }, "the content"},
		{"too many contents", Approve, func(d *Decision) { d.Contents = trees(MaxDecisionContents + 1) }, "65 cluster types"},
		{"a pause of a commit", Pause, func(d *Decision) { d.BaseCommit = strings.Repeat("0", 40) }, "names a ring, a commit, contents or a workload"},
		{"a pause of a ring", Pause, func(d *Decision) { d.Ring = "canary" }, "names a ring, a commit, contents or a workload"},
		{"a resumption of contents", Resume, func(d *Decision) { d.Contents = trees(1) }, "names a ring, a commit, contents or a workload"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := sampleDecision(tt.action)
			tt.change(&d)
			_, err := d.Marshal()
			require.ErrorContains(t, err, tt.words, "it is not written")
			body, err := json.Marshal(d)
			require.NoError(t, err)
			_, err = ParseDecision(body)
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal, "it is not read")
			require.Equal(t, BadContent, refusal.Reason)
		})
	}
	for _, action := range []Action{Approve, Reject, Override, Pause, Resume} {
		_, err := sampleDecision(action).Marshal()
		require.NoError(t, err, "%s as it is", action)
	}
	next := sampleDecision(Pause)
	next.Schema++
	body, err := json.Marshal(next)
	require.NoError(t, err)
	_, err = ParseDecision(body)
	require.Equal(t, &Refusal{UnsupportedSchema, "decision has schema 2, this version reads 1: it needs a newer version of wherry"}, err)
}

func TestAnEnvelopeThatHoldsNoDecisionIsRefused(t *testing.T) {
	signer, pub := fixedKey(t, 1)
	other, stranger := fixedKey(t, 2)
	good, err := SealDecision(sampleDecision(Approve), signer)
	require.NoError(t, err)
	changed := func(change func(*dsse.Envelope)) []byte {
		var env dsse.Envelope
		require.NoError(t, json.Unmarshal(good, &env))
		change(&env)
		data, err := json.Marshal(env)
		require.NoError(t, err)
		return data
	}
	report, err := SealEnvelopeBy(PayloadTypeReport, []byte("{}"), signer)
	require.NoError(t, err)
	both, err := SealEnvelopeBy(PayloadTypeDecision, []byte("{}"), signer, other)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		envelope []byte
		want     Reason
	}{
		"no JSON":                    {[]byte("x"), BadContent},
		"a report":                   {report, BadContent},
		"a decision to come":         {changed(func(e *dsse.Envelope) { e.PayloadType = "application/vnd.wherry.decision.v2+json" }), UnsupportedSchema},
		"unsigned":                   {changed(func(e *dsse.Envelope) { e.Signatures = nil }), Unsigned},
		"signed by two":              {both, Unsigned},
		"a key that is none":         {changed(func(e *dsse.Envelope) { e.Signatures[0].KeyID = "anna" }), BadContent},
		"a payload that is no text":  {changed(func(e *dsse.Envelope) { e.Payload = "%" }), BadContent},
		"a payload that is nothing":  {changed(func(e *dsse.Envelope) { e.Payload = base64.StdEncoding.EncodeToString([]byte("null")) }), BadContent},
		"more than the bound allows": {append(good, make([]byte, MaxDecisionBytes)...), TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := OpenDecision(tt.envelope, pub)
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tt.want, refusal.Reason)
		})
	}
	strangerID, err := KeyID(stranger)
	require.NoError(t, err)
	for name, envelope := range map[string][]byte{
		"another payload under the signature": changed(func(e *dsse.Envelope) {
			body, err := sampleDecision(Pause).Marshal()
			require.NoError(t, err)
			e.Payload = base64.StdEncoding.EncodeToString(body)
		}),
		"the name of another key": changed(func(e *dsse.Envelope) { e.Signatures[0].KeyID = strangerID }),
	} {
		_, _, err := OpenDecision(envelope, pub, stranger)
		require.ErrorIs(t, err, ErrUntrusted, name)
	}
	_, _, err = OpenDecision(good, stranger)
	require.ErrorIs(t, err, ErrUntrusted)
	_, _, err = OpenDecision(good)
	require.ErrorIs(t, err, ErrUntrusted)
}

func trees(n int) map[string]digest.Digest {
	all := map[string]digest.Digest{}
	for i := range n {
		all[fmt.Sprintf("type-%d", i)] = digest.FromString(fmt.Sprint(i))
	}
	return all
}

func TestADecisionIsAboutOneContent(t *testing.T) {
	for _, n := range []int{1, MaxDecisionContents, MaxDecisionContents + 1, 1000} {
		d := sampleDecision(Approve)
		d.Contents = DecisionContents(trees(n))
		require.LessOrEqual(t, len(d.Contents), MaxDecisionContents)
		about := func(ring, from, commit string, trees map[string]digest.Digest) bool {
			return d.IsAbout(Decision{Ring: ring, From: from, BaseCommit: commit, Contents: DecisionContents(trees)})
		}
		require.True(t, about("", "stage", d.BaseCommit, trees(n)))
		require.False(t, about("canary", "stage", d.BaseCommit, trees(n)))
		require.False(t, about("", "dev", d.BaseCommit, trees(n)))
		require.False(t, about("", "stage", "", trees(n)))
		require.False(t, about("", "stage", d.BaseCommit, trees(n+1)), "another cluster type")
		require.False(t, about("", "stage", d.BaseCommit, nil), "the base commit alone")
		other := trees(n)
		other["type-0"] = digest.FromString("other")
		require.False(t, about("", "stage", d.BaseCommit, other), "another tree")
		d.Workload = cart
		require.False(t, about("", "stage", d.BaseCommit, trees(n)), "a workload")
	}
}

func TestTheLargestDecisionFitsAManifest(t *testing.T) {
	signer, pub := newKey(t)
	long := func(n int) string { return fmt.Sprintf("%0*d", maxDecisionName, n) }
	d := sampleDecision(Approve)
	d.Platform, d.Environment, d.From, d.Ring, d.By, d.Reason = long(1), long(2), long(3), long(4), long(5), strings.Repeat("&", MaxReasonBytes)
	d.Contents = map[string]digest.Digest{}
	for i := range MaxDecisionContents {
		d.Contents[long(i)] = digest.FromString(fmt.Sprint(i))
	}
	envelope, err := SealDecision(d, signer)
	require.NoError(t, err)
	blobs, err := DecisionManifest(envelope)
	require.NoError(t, err)
	require.LessOrEqual(t, len(blobs[len(blobs)-1].Data), MaxManifestBytes)

	store := memory.New()
	push(t, store, blobs...)
	require.NoError(t, store.Tag(t.Context(), blobs[len(blobs)-1].Descriptor, "gate-x"))
	got, err := FetchDecision(t.Context(), store, "gate-x")
	require.NoError(t, err)
	back, _, err := OpenDecision(got, pub)
	require.NoError(t, err)
	require.Equal(t, d, back)

	_, err = FetchDecision(t.Context(), store, "gate-y")
	require.ErrorIs(t, err, errdef.ErrNotFound)
	release := publish(t, store, sampleRelease(Content{DiffID: digest.FromString("tree")}), nil)
	require.NoError(t, store.Tag(t.Context(), release, "gate-z"))
	_, err = FetchDecision(t.Context(), store, "gate-z")
	require.ErrorContains(t, err, "no decision")
}

// FuzzDecision opens any envelope.
func FuzzDecision(f *testing.F) {
	signer, pub := fixedKey(f, 1)
	good := sampleDecision(Approve)
	for _, action := range []Action{Approve, Reject, Override, Pause, Resume} {
		envelope, err := SealDecision(sampleDecision(action), signer)
		require.NoError(f, err)
		f.Add(envelope)
		body, err := sampleDecision(action).Marshal()
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, _, err := OpenDecision(data, pub); err == nil && d.Action == Approve {
			require.Equal(t, good, d, "nothing else was signed")
		}
		if d, id, err := ReadDecision(data); err == nil {
			require.Len(t, d.Tag(id), len("gate-")+32+1+16)
		} else {
			require.ErrorAs(t, err, new(*Refusal))
		}
		d, err := ParseDecision(data)
		if err != nil {
			require.ErrorAs(t, err, new(*Refusal))
			return
		}
		again, err := d.Marshal()
		require.NoError(t, err, "what was read can be written")
		back, err := ParseDecision(again)
		require.NoError(t, err)
		require.Equal(t, d, back)
	})
}
