package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func fakeCommit(n int) string { return digest.FromString(fmt.Sprint("commit ", n)).Encoded()[:40] }

// workload returns one with so many targets, each of which needs three artifacts.
func workload(n, targets int) Workload {
	r := Revision{
		Version: fmt.Sprintf("2.%d.1", n%7), Object: digest.FromString(fmt.Sprint("object ", n)),
		Source: Source{fmt.Sprintf("https://git.example/team-%d/app", n/30), "main", fakeCommit(n / 30)},
		In: []Stay{{
			Ring: "canary", Since: noon, Record: Record{1, 1795425120}, Before: Record{1, 1795338720}, BaseCommit: fakeCommit(-1),
			From: From{"stage", digest.FromString(fmt.Sprint("below ", n)), Record{1, 1795330000}},
		}},
	}
	for i := range targets {
		name := fmt.Sprintf("target-%d", i)
		r.Targets = append(r.Targets, Target{name, r.Source, fmt.Sprintf("apps/%d/%s", n, name), fakeCommit(1000*n + i)})
		for _, image := range []string{"web", "worker", "init"} {
			d := digest.FromString(fmt.Sprint(n, i, image))
			r.Artifacts = append(r.Artifacts, Artifact{Type: bundle.ArtifactImage, Reference: fmt.Sprintf("ghcr.io/team-%d/%s-%d:2.%d.1", n/30, image, i, n%7), Digest: d.String()})
		}
	}
	r.Artifacts = SortArtifacts(r.Artifacts)
	r.Revision = RevisionOf(r.Object, r.Targets, r.Artifacts)
	older := r
	older.Revision, older.Version, older.In = digest.FromString(fmt.Sprint("older ", n)), "1.0.0", []Stay{{Ring: "stable", Since: noon.Add(-time.Hour), Record: Record{1, 1795338720}}}
	met := Met{fakeCommit(-1), noon, "hub https://hub.example.com", 45, 44}
	return Workload{Key{fmt.Sprintf("team-%d", n/30), fmt.Sprintf("app-%d", n)}, []Revision{older, r}, []Proof{{
		Revision: r.In[0].From.Revision, Record: r.In[0].From.Record, Object: r.Object, Source: r.Source, Targets: r.Targets, Artifacts: r.Artifacts, Proved: noon, Met: []Met{met},
	}}}
}

func example(workloads int) *Ledger {
	l := &Ledger{Schema: Schema, Base: Base{Commit: fakeCommit(-1), Since: noon, Earlier: []Earlier{{fakeCommit(-2), 86400}}}, Batches: map[string]Record{"canary": {1, 1795425120}}}
	for n := range workloads {
		w := workload(n, 1)
		l.Workloads = append(l.Workloads, w)
		if n%30 == 0 {
			l.Registrations = append(l.Registrations, Registration{w.Registration, w.Revisions[0].Source})
		}
	}
	l.Removed = []Removed{{Key{"team-0", "cart"}, []Stay{{Ring: "canary", Since: noon, Record: Record{1, 1795425120}}}, map[string][]string{"drone": {"cart-live"}}}}
	l.Undone = []Undone{{Key: Key{"team-0", "app-0"}, At: noon, Record: Record{1, 1795425120}, Reason: "orders fail", Revision: digest.FromString("bad")}}
	return l
}

func pack(t testing.TB, l *Ledger) []byte {
	t.Helper()
	data, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func packText(text string) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

func TestParseReadsWhatMarshalWrites(t *testing.T) {
	l := example(40)
	data := pack(t, l)
	slices.Reverse(l.Workloads)
	slices.Reverse(l.Registrations)
	slices.Reverse(l.Workloads[3].Revisions)
	slices.Reverse(l.Workloads[3].Revisions[0].Artifacts)
	if again := pack(t, l); !bytes.Equal(data, again) {
		t.Error("another order of the same gives other bytes")
	}
	read, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if again := pack(t, read); !bytes.Equal(data, again) {
		t.Error("what was read gives other bytes")
	}
	if Compare(read, l) != (Difference{}) {
		t.Error("what was read is not the same")
	}
}

func TestAWorkloadMayHaveProofsAlone(t *testing.T) {
	l := example(2)
	l.Workloads[0].Revisions = nil
	read, err := Parse(pack(t, l))
	if err != nil || len(read.Workloads[0].Proofs) != 1 {
		t.Errorf("got %v, %v", read, err)
	}
	if r, _ := read.Workloads[0].In("canary"); r != nil {
		t.Errorf("canary has %+v", r)
	}
}

func TestCompare(t *testing.T) {
	content, commits, proofs := Difference{Content: true}, Difference{Commits: true}, Difference{Proofs: true}
	for name, test := range map[string]struct {
		change func(*Ledger)
		want   Difference
	}{
		"nothing":                      {func(*Ledger) {}, Difference{}},
		"commit of a registration":     {func(l *Ledger) { l.Registrations[0].Source.Commit = "x" }, commits},
		"commit of an object":          {func(l *Ledger) { l.Workloads[1].Revisions[0].Source.Commit = "x" }, commits},
		"commit of a target":           {func(l *Ledger) { l.Workloads[1].Revisions[0].Targets[0].Source.Commit = "x" }, commits},
		"commit of a proof":            {func(l *Ledger) { l.Workloads[1].Proofs[0].Source.Commit = "x" }, Difference{}},
		"branch of a registration":     {func(l *Ledger) { l.Registrations[0].Source.Ref = "x" }, content},
		"folder of a target":           {func(l *Ledger) { l.Workloads[1].Revisions[0].Targets[0].ID = "x" }, content},
		"digest of an artifact":        {func(l *Ledger) { l.Workloads[1].Revisions[0].Artifacts[0].Digest = "x" }, content},
		"time of a ring":               {func(l *Ledger) { l.Workloads[1].Revisions[0].In[0].Since = noon.Add(time.Second) }, content},
		"base commit":                  {func(l *Ledger) { l.Workloads[1].Revisions[0].In[0].BaseCommit = "x" }, content},
		"the record of a stay":         {func(l *Ledger) { l.Workloads[1].Revisions[0].In[0].Record.Sequence++ }, content},
		"a workload that is absent":    {func(l *Ledger) { l.Workloads = l.Workloads[1:] }, content},
		"a proof that changes":         {func(l *Ledger) { l.Workloads[1].Proofs[0].Proved = time.Time{} }, proofs},
		"a proof that goes":            {func(l *Ledger) { l.Workloads[1].Proofs = nil }, proofs},
		"a workload with proofs alone": {func(l *Ledger) { l.Workloads[1].Key, l.Workloads[1].Revisions = Key{"new", "new"}, nil }, content},
		"a further one with proofs alone": {func(l *Ledger) {
			l.Workloads = append(l.Workloads, Workload{Key: Key{"zz", "z"}, Proofs: l.Workloads[1].Proofs})
		}, proofs},
		"a proof and a commit": {func(l *Ledger) {
			l.Workloads[1].Proofs, l.Workloads[1].Revisions[0].Source.Commit = nil, "x"
		}, Difference{Proofs: true, Commits: true}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := example(3), example(3)
			before := pack(t, a)
			test.change(b)
			pack(t, b)
			if got := Compare(a, b); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if !bytes.Equal(before, pack(t, a)) {
				t.Error("the ledger has changed")
			}
		})
	}
	if Compare(nil, example(0)) != content || Compare(nil, nil) != (Difference{}) {
		t.Error("none is the same as none alone")
	}
}

func TestBatch(t *testing.T) {
	rings := []string{"canary", "early", "stable"}
	first, second := Record{1, 10}, Record{1, 20}
	for name, test := range map[string]struct {
		rings   []string
		batches map[string]Record
		want    Record
	}{
		"none":                            {rings, nil, Record{}},
		"in the first ring":               {rings, map[string]Record{"canary": second}, second},
		"on its way":                      {rings, map[string]Record{"canary": second, "early": second, "stable": first}, second},
		"in the last ring":                {rings, map[string]Record{"canary": second, "early": second, "stable": second}, Record{}},
		"one of which nothing is left":    {rings, map[string]Record{"canary": first}, Record{}},
		"an environment that had rings":   {nil, map[string]Record{"canary": second}, Record{}},
		"an environment with a sole ring": {rings[:1], map[string]Record{"canary": second}, Record{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := example(2)
			l.Batches = test.batches
			l.Workloads[0].Revisions[0].In = []Stay{{Ring: "canary", Since: noon.Add(time.Hour), Record: second}}
			l.Workloads[1].Revisions[0].In = []Stay{{Ring: "canary", Since: noon, Record: second}}
			got, since := l.Batch(test.rings)
			if got != test.want || got != (Record{}) && !since.Equal(noon) {
				t.Errorf("got %v since %v, want %v", got, since, test.want)
			}
		})
	}
}

func TestRevisionIgnoresCommitsAndPaths(t *testing.T) {
	w := workload(1, 2)
	r := w.Revisions[1]
	same := RevisionOf(r.Object, []Target{{Name: r.Targets[0].Name, ID: r.Targets[0].ID}, {Name: r.Targets[1].Name, Path: "elsewhere", ID: r.Targets[1].ID}}, r.Artifacts)
	if same != r.Revision {
		t.Error("another place of the same folders is another revision")
	}
	for name, other := range map[string]digest.Digest{
		"object":   RevisionOf(digest.FromString("x"), r.Targets, r.Artifacts),
		"targets":  RevisionOf(r.Object, r.Targets[:1], r.Artifacts),
		"artifact": RevisionOf(r.Object, r.Targets, r.Artifacts[1:]),
	} {
		if other == r.Revision {
			t.Errorf("another %s is the same revision", name)
		}
	}
}

func TestFind(t *testing.T) {
	l := example(40)
	pack(t, l)
	w := l.Find(Key{"team-1", "app-33"})
	if w == nil {
		t.Fatal("not found")
	}
	if l.Find(Key{"team-1", "app-1"}) != nil || l.FindRemoved(Key{"team-0", "app-0"}) != nil || l.Registration("team-9") != nil {
		t.Error("found what is not there")
	}
	if l.FindRemoved(Key{"team-0", "cart"}) == nil || l.Registration("team-1") == nil {
		t.Error("not found")
	}
	r, in := w.In("stable")
	if r == nil || r.Version != "1.0.0" || in.Record != (Record{1, 1795338720}) {
		t.Errorf("stable has %+v, %+v", r, in)
	}
	if r, _ := w.In("early"); r != nil {
		t.Errorf("early has %+v", r)
	}
	if w.Revisions[0].In[0].Ring != "canary" {
		t.Error("the newest revision is not first")
	}
}

func TestRejected(t *testing.T) {
	bad := digest.FromString("bad")
	mark := func(change ...func(*Undone)) *Ledger {
		l := example(2)
		l.Undone = []Undone{{Key: Key{"team-0", "app-0"}, At: noon, Record: Record{1, 1795425130}, Revision: bad}}
		for _, f := range change {
			f(&l.Undone[0])
		}
		l.Sort()
		return l
	}
	for name, test := range map[string]struct {
		ledger *Ledger
		ring   string
		again  time.Time
		want   bool
	}{
		"nothing came since":             {mark(), "canary", time.Time{}, true},
		"a newer one came":               {mark(func(u *Undone) { u.Record = Record{1, 1795425119} }), "canary", time.Time{}, false},
		"another ring, where none came":  {mark(func(u *Undone) { u.Record = Record{1, 1795425119} }), "stable", time.Time{}, true},
		"a ring that has it":             {mark(func(u *Undone) { u.Revision = example(2).Workloads[0].Revisions[1].Revision }), "canary", time.Time{}, false},
		"a ring without the workload":    {mark(), "early", time.Time{}, true},
		"a person lets it come":          {mark(), "canary", noon, false},
		"a person let it come before":    {mark(), "canary", noon.Add(-time.Second), true},
		"it was removed, and that since": {mark(func(u *Undone) { u.Key = Key{"team-0", "cart"}; u.Record = Record{1, 1795425119} }), "canary", time.Time{}, false},
		"it was removed before":          {mark(func(u *Undone) { u.Key = Key{"team-0", "cart"} }), "canary", time.Time{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.ledger.Rejected(test.ring, test.again); len(got) == 1 != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestNamed(t *testing.T) {
	l := example(40)
	l.Workloads = append(l.Workloads, Workload{Key: Key{"team-0", "app-33"}, Revisions: l.Workloads[0].Revisions})
	l.Sort()
	for name, want := range map[string]Key{"team-1/app-33": {"team-1", "app-33"}, "app-2": {"team-0", "app-2"}, "cart": {}} {
		if w, err := l.Named(name); err != nil || (w == nil) != (want == Key{}) || w != nil && w.Key != want {
			t.Errorf("%s: got %v, %v", name, w, err)
		}
	}
	if _, err := l.Named("app-33"); err == nil || !strings.HasSuffix(err.Error(), "team-0/app-33, team-1/app-33") {
		t.Errorf("got %v", err)
	}
}

func TestRecordIsATag(t *testing.T) {
	for _, r := range []Record{{}, {0, 1}, {1, 1795425120}} {
		text, _ := r.MarshalText()
		var read Record
		if err := read.UnmarshalText(text); err != nil || read != r {
			t.Errorf("%q is read as %v, %v", text, read, err)
		}
	}
	for _, text := range []string{"1-2", "s1", "s1-", "s01-2", "s-1-2", "s1-0", "pending-1-2", "latest", "s1-2-3"} {
		if err := new(Record).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for a record", text)
		}
	}
	if (Record{1, 9}).Compare(Record{2, 1}) >= 0 || (Record{1, 9}).Compare(Record{1, 8}) <= 0 {
		t.Error("the order is by epoch, then by sequence")
	}
}

func TestParseRefuses(t *testing.T) {
	text := func(change func(*Ledger)) []byte {
		l := example(2)
		l.Sort()
		change(l)
		data, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return packText(string(data))
	}
	for name, test := range map[string]struct {
		data []byte
		want bundle.Reason
	}{
		"no gzip":              {[]byte(`{"schema":1}`), bundle.BadContent},
		"a torn file":          {text(func(*Ledger) {})[:200], bundle.BadContent},
		"no JSON":              {packText("x"), bundle.BadContent},
		"a later schema":       {packText(`{"schema":2,"workloads":"a list no more"}`), bundle.UnsupportedSchema},
		"no schema":            {packText(`{}`), bundle.BadContent},
		"too large":            {make([]byte, MaxBytes+1), bundle.TooLarge},
		"too large unpacked":   {packText(strings.Repeat(" ", MaxUnpackedBytes+1)), bundle.TooLarge},
		"a wrong order":        {text(func(l *Ledger) { slices.Reverse(l.Workloads) }), bundle.BadContent},
		"a workload twice":     {text(func(l *Ledger) { l.Workloads[1] = l.Workloads[0] }), bundle.BadContent},
		"no revision":          {text(func(l *Ledger) { l.Workloads[0].Revisions, l.Workloads[0].Proofs = nil, nil }), bundle.BadContent},
		"a revision in none":   {text(func(l *Ledger) { l.Workloads[0].Revisions[0].In = nil }), bundle.BadContent},
		"two in one ring":      {text(func(l *Ledger) { l.Workloads[0].Revisions[1].In = l.Workloads[0].Revisions[0].In }), bundle.BadContent},
		"no digest":            {text(func(l *Ledger) { l.Workloads[0].Revisions[0].Revision = "../../x" }), bundle.BadContent},
		"control characters":   {text(func(l *Ledger) { l.Workloads[0].Revisions[0].Version = "\x1b[31m" }), bundle.BadContent},
		"a long text":          {text(func(l *Ledger) { l.Registrations[0].Source.Repo = strings.Repeat("x", maxText+1) }), bundle.BadContent},
		"too many proofs":      {text(func(l *Ledger) { l.Workloads[0].Proofs = make([]Proof, MaxProofs+1) }), bundle.BadContent},
		"a proof of nothing":   {text(func(l *Ledger) { l.Workloads[0].Proofs[0].Revision = "" }), bundle.BadContent},
		"too many undone":      {text(func(l *Ledger) { l.Undone = make([]Undone, MaxUndone+1) }), bundle.TooLarge},
		"a negative stay":      {text(func(l *Ledger) { l.Base.Earlier[0].Seconds = -1 }), bundle.BadContent},
		"a record that is odd": {packText(`{"schema":1,"batches":{"canary":"s1"}}`), bundle.BadContent},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.data)
			var refusal *bundle.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestMarshalRefusesWhatIsTooLarge(t *testing.T) {
	l := &Ledger{Schema: Schema, Undone: make([]Undone, MaxUndone+1)}
	if _, err := l.Marshal(); !errors.Is(err, bundle.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// TestSizes holds the sizes that docs/reference/promotion.md names: each workload has two revisions, one of them on its way, and a proof.
func TestSizes(t *testing.T) {
	l := example(316)
	packed := pack(t, l)
	text, err := l.json()
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) > 120_000 || len(text) > 1_300_000 {
		t.Errorf("316 workloads: %d bytes, %d unpacked", len(packed), len(text))
	}
}

func BenchmarkMarshalAndParse(b *testing.B) {
	for _, n := range []int{316, 10_000} {
		l := example(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var packed []byte
			for b.Loop() {
				packed = pack(b, l)
				read, err := Parse(packed)
				if err != nil || Compare(l, read) != (Difference{}) {
					b.Fatal(err)
				}
			}
			text, err := Unpack(packed)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(packed)), "packed-bytes")
			b.ReportMetric(float64(len(text)), "json-bytes")
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(pack(f, example(2)))
	f.Add(pack(f, &Ledger{Schema: Schema}))
	f.Add(packText(`{"schema":1,"workloads":[{"workload":"a","revisions":[{"revision":"sha256:` + strings.Repeat("0", 64) + `"}]}]}`))
	f.Add(packText(`{"schema":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse(data)
		if err != nil {
			var refusal *bundle.Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		again, err := Parse(pack(t, l))
		if err != nil || Compare(l, again) != (Difference{}) {
			t.Fatalf("what was read is read otherwise the second time: %v", err)
		}
	})
}
