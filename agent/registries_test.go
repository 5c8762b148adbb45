package agent

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// newPair returns a site whose agent asks a second registry after its own, and that registry's site.
func newPair(t *testing.T) (first, second *site) {
	t.Helper()
	first, second = newSite(t), newSite(t)
	second.key = first.key
	first.opts.Place = "first"
	first.opts.Further = []registries.Registry{{Place: "second", Releases: second.repo, Trust: second.trust}}
	return first, second
}

// long is release n of the site's stream, which differs from the others by its content.
func (s *site) long(n int64) draft {
	return s.draft(n, map[string]string{"a-x/f": fmt.Sprintf("%d%s", n, strings.Repeat("x", 4096))})
}

// answering has the registry answer all requests with that status.
func (s *site) answering(status int) {
	hook := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		return true
	}
	s.registry.hook.Store(&hook)
}

// withoutBlob has the registry lack the layers, but not the documents, of its releases.
func (s *site) withoutBlob() {
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	}
	s.registry.hook.Store(&hook)
}

// spoiled has the registry send other bytes as layers.
func (s *site) spoiled() {
	spoil := func(path string, body []byte) []byte {
		if strings.Contains(path, "/blobs/") {
			body[len(body)/2] ^= 1
		}
		return body
	}
	s.registry.spoil.Store(&spoil)
}

func has(n int64) func(*site) { return func(s *site) { s.publish(s.long(n)) } }

func isAway(s *site) { s.registry.away.Store(true) }

func says(status int) func(*site) { return func(s *site) { s.answering(status) } }

func both(all ...func(*site)) func(*site) {
	return func(s *site) {
		for _, f := range all {
			f(s)
		}
	}
}

func unsigned(n int64) func(*site) {
	return func(s *site) {
		d := s.long(n)
		d.Signer = nil
		s.publish(d)
	}
}

func signedByAnother(n int64) func(*site) {
	return func(s *site) {
		d := s.long(n)
		d.Signer = agenttest.NewKey()
		s.publish(d)
	}
}

func foreign(n int64) func(*site) {
	return func(s *site) {
		d := s.long(n)
		d.Release.Environment = "prod"
		s.publish(d)
	}
}

// onlyManifest has a release without its signature and its layer, as a copy that was cut short.
func onlyManifest(n int64) func(*site) {
	return both(unsigned(n), (*site).withoutBlob)
}

// The agent has release 2 of both registries before what the table says.
func TestTheNextRegistryIsAskedWhenTheFirstHasNoAnswerThatCounts(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(*site)
		runs          int64
		verdict       Verdict
		reasons       [2]string // "-" is: not asked
		last          string
	}{
		{"the first has a newer release", has(3), has(2), 3, Done, [2]string{"", "-"}, "first"},
		{"the first has nothing new, and the second has", has(2), has(3), 2, Idle, [2]string{"", "-"}, "first"},
		{"the first is out of reach", isAway, has(3), 3, Done, [2]string{"Unreachable", ""}, "second"},
		{"the first is out of reach, and nothing is new", isAway, has(2), 2, Idle, [2]string{"Unreachable", ""}, "second"},
		{"the first is out of reach, and the second has an older one", isAway, has(1), 2, Idle, [2]string{"Unreachable", "OlderRelease"}, "first"},
		{"both are out of reach", isAway, isAway, 2, Unreachable, [2]string{"Unreachable", "Unreachable"}, "first"},
		{"the first fails", says(503), has(3), 3, Done, [2]string{"Unreachable", ""}, "second"},
		{"the first has lost everything", says(404), has(3), 3, Done, [2]string{"NotFound", ""}, "second"},
		{"the first has lost everything, and the second is out of reach", says(404), isAway, 2, Unreachable, [2]string{"NotFound", "Unreachable"}, "first"},
		{"both have lost everything", says(404), says(404), 2, Unreachable, [2]string{"NotFound", "NotFound"}, "first"},
		{"the first does not know the agent any more", says(401), has(3), 3, Done, [2]string{"Unreachable", ""}, "second"},
		{"the first lags behind", has(1), has(3), 3, Done, [2]string{"OlderRelease", ""}, "second"},
		{"the first lags behind, and the second has what runs", has(1), has(2), 2, Idle, [2]string{"OlderRelease", ""}, "second"},
		{"the first lags behind, and the second is out of reach", has(1), isAway, 2, Idle, [2]string{"OlderRelease", "Unreachable"}, "first"},
		{"both lag behind", has(1), has(1), 2, Idle, [2]string{"OlderRelease", "OlderRelease"}, "first"},
		{"the first offers what nobody has signed", unsigned(3), has(4), 4, Done, [2]string{"Unsigned", ""}, "second"},
		{"the first offers what nobody has signed, and the second has what runs", unsigned(3), has(2), 2, Refused, [2]string{"Unsigned", ""}, "second"},
		{"the first offers what nobody has signed, and the second an older one", unsigned(3), has(1), 2, Refused, [2]string{"Unsigned", "OlderRelease"}, "first"},
		{"the first has a copy that was cut short", onlyManifest(3), has(3), 3, Done, [2]string{"Unsigned", ""}, "second"},
		{"the first has a release without its layer", both(has(3), (*site).withoutBlob), has(3), 3, Done, [2]string{"", "-"}, "first"},
		{"the first has a layer of other bytes", both(has(3), (*site).spoiled), has(3), 3, Done, [2]string{"", "-"}, "first"},
		{"the first has a release without its layer, and the second a newer one", both(has(3), (*site).withoutBlob), has(4), 4, Done, [2]string{"NotFound", ""}, "second"},
		{"the first has a release without its layer, and the second is out of reach", both(has(3), (*site).withoutBlob), isAway, 2, Unreachable, [2]string{"NotFound", "Unreachable"}, "first"},
		{"the second is hostile: an old release", isAway, has(1), 2, Idle, [2]string{"Unreachable", "OlderRelease"}, "first"},
		{"the second is hostile: another key", isAway, signedByAnother(9), 2, Refused, [2]string{"Unreachable", "UntrustedKey"}, "first"},
		{"the second is hostile: another stream", isAway, foreign(9), 2, Refused, [2]string{"Unreachable", "WrongEnvironment"}, "first"},
		{"the second is hostile: a torn layer", isAway, both(has(3), (*site).spoiled), 2, Refused, [2]string{"Unreachable", "DigestMismatch"}, "first"},
		{"a hostile second registry is not asked while the first answers", has(3), signedByAnother(9), 3, Done, [2]string{"", "-"}, "first"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, b := newPair(t)
			has(2)(s)
			has(2)(b)
			require.Equal(t, bundle.Compliant, s.once().Status.State)
			tc.first(s)
			tc.second(b)
			b.registry.requests.Store(0)

			r := s.once()

			require.Equal(t, tc.verdict, r.Verdict, r.Error)
			require.Equal(t, tc.runs, r.Status.Release.Running.Sequence)
			requireFile(t, s.host, "a-x/f", fmt.Sprint(tc.runs)+strings.Repeat("x", 4096))
			requireRows(t, r.Status.Registries, tc.reasons, tc.last)
			if tc.verdict == Unreachable {
				for i, reason := range tc.reasons {
					require.Contains(t, r.Error, r.Status.Registries[i].Message, "%s is told", reason)
				}
			}

			again := s.once()
			require.Equal(t, tc.runs, again.Status.Release.Running.Sequence, "and so it stays")
			// A refused offer is reported for as long as it stands, also while a later registry has what runs.
			require.Equal(t, tc.verdict == Refused || tc.reasons[0] == "Unsigned" && tc.runs == 4, again.Status.Release.Refused != nil, again.Error)
		})
	}
}

func requireRows(t *testing.T, rows []registries.Status, reasons [2]string, last string) {
	t.Helper()
	require.Len(t, rows, 2)
	for i, row := range rows {
		want := reasons[i]
		if want == "-" {
			want = ""
		}
		require.Equal(t, want, row.Reason, "%s: %s", row.Registry, row.Message)
		require.Equal(t, row.Registry == last, row.Last, "%s: %+v", row.Registry, rows)
		require.Equal(t, want == "", row.Since.IsZero())
	}
}

func TestAnAgentWithOneRegistryRefusesAnOlderRelease(t *testing.T) {
	s := newSite(t)
	has(2)(s)
	s.once()
	has(1)(s)
	r := s.once()
	require.Equal(t, Refused, r.Verdict)
	require.Equal(t, bundle.OlderRelease, r.Status.Release.Refused.Reason)
	require.Empty(t, r.Status.Registries)
}

func TestAFirstBoxThatHasNothingYetGivesWay(t *testing.T) {
	s, b := newPair(t)
	has(1)(b)
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	requireRows(t, r.Status.Registries, [2]string{"NotFound", ""}, "second")
}

// polled makes passes as Run does, for an agent whose clock the test moves.
func (s *site) polled(f func(a *Agent, pass func() outcome)) {
	s.agent(func(a *Agent) {
		f(a, func() outcome {
			return a.makePass(s.t.Context(), scope{from: a.source, documents: a.opts.TrustSource, further: a.opts.Further})
		})
	})
}

func TestADeadRegistryRestsAndThenHasTheFirstWordAgain(t *testing.T) {
	s, b := newPair(t)
	has(1)(s)
	has(1)(b)
	s.polled(func(_ *Agent, pass func() outcome) {
		require.Equal(t, Done, pass().Verdict)
		isAway(s)
		asked := func() (first, second int64) {
			s.registry.requests.Store(0)
			b.registry.requests.Store(0)
			require.Equal(t, Idle, pass().Verdict)
			return s.registry.requests.Load(), b.registry.requests.Load()
		}
		for _, rest := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
			first, second := asked()
			require.NotZero(t, first, "after its rest it is asked first")
			require.EqualValues(t, 1, second)
			s.now = s.now.Add(rest - time.Second)
			first, second = asked()
			require.Zero(t, first, "it rests for %v", rest)
			require.EqualValues(t, 1, second)
			s.now = s.now.Add(time.Second)
		}
		s.registry.away.Store(false)
		has(2)(s)
		require.Equal(t, Done, pass().Verdict)
		requireFile(t, s.host, "a-x/f", "2"+strings.Repeat("x", 4096))
		first, second := asked()
		require.EqualValues(t, 1, first, "a poll of the first costs what it costs alone")
		require.Zero(t, second)

		isAway(s)
		require.Equal(t, Idle, pass().Verdict)
		isAway(b)
		require.Equal(t, Unreachable, pass().Verdict)
		require.NotZero(t, s.registry.requests.Load(), "one that rests is asked where no other answers")
	})
}

func TestAPollOfTheNextRegistryIsOneRequestWithoutABody(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(*site)
	}{
		{"the second has what runs", isAway, has(2)},
		{"the second has an older one", isAway, has(1)},
		{"the second has what is refused", isAway, unsigned(3)},
		{"the first has what is refused", unsigned(3), has(2)},
		{"the first lags behind", has(1), has(2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, b := newPair(t)
			has(2)(s)
			has(2)(b)
			s.polled(func(_ *Agent, pass func() outcome) {
				pass()
				tc.first(s)
				tc.second(b)
				first := pass()
				pass() // this registry has no 304, which is learned
				bodies := 0
				count := func(_ string, body []byte) []byte {
					bodies += len(body)
					return body
				}
				s.registry.spoil.Store(&count)
				b.registry.spoil.Store(&count)
				b.registry.requests.Store(0)

				require.Equal(t, first.Verdict, pass().Verdict)
				require.EqualValues(t, 1, b.registry.requests.Load())
				require.Zero(t, bodies)
			})
		})
	}
}

func TestALayerGoesOnAtTheNextRegistry(t *testing.T) {
	s, b := newPair(t)
	data := strings.Repeat("0123456789abcdef", 4<<10)
	d := s.draft(1, map[string]string{"a-x/f": data})
	manifest := s.publish(d)
	_, err := d.Publish(t.Context(), b.repo)
	require.NoError(t, err)
	layer := s.layer(manifest)
	packed := s.blobBytes(layer)
	half := len(packed) / 2
	gone := false
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if gone {
			panic(http.ErrAbortHandler)
		}
		if !strings.HasSuffix(r.URL.Path, layer.Digest.String()) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(packed)))
		_, _ = w.Write(packed[:half])
		w.(http.Flusher).Flush()
		gone = true // midway, for good
		panic(http.ErrAbortHandler)
	}
	s.registry.hook.Store(&hook)
	begun := b.ranges(layer.Digest, packed)

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.Equal(t, []int{half}, *begun, "the second registry sends what is missing")
	requireFile(t, s.host, "a-x/f", data)
}

func TestAKilledAgentGoesOnAtTheNextRegistry(t *testing.T) {
	s, b := newPair(t)
	data := strings.Repeat("0123456789abcdef", 4<<10)
	d := s.draft(1, map[string]string{"a-x/f": data})
	manifest := s.publish(d)
	_, err := d.Publish(t.Context(), b.repo)
	require.NoError(t, err)
	layer := s.layer(manifest)
	packed := s.blobBytes(layer)
	half := len(packed) / 2
	s.opts.Content.Download.Chunk = int64(half)
	arrived := make(chan struct{})
	s.opts.Content.Download.Progress = func(have int64) {
		if have == int64(half) {
			close(arrived)
		}
	}
	defer s.stallAfter(layer.Digest, packed, half)()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	s.agent(func(a *Agent) { require.Equal(t, Interrupted, a.Once(ctx, 0).Verdict) })
	s.opts.Content.Download.Progress = nil
	isAway(s)
	begun := b.ranges(layer.Digest, packed)

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.Equal(t, []int{half}, *begun)
	requireFile(t, s.host, "a-x/f", data)
}

func TestTrustDocumentsOfAnyRegistryCount(t *testing.T) {
	s, b := newPair(t)
	s.epoch, b.epoch = 1, 1
	root, next := agenttest.NewKey(), agenttest.NewKey()
	v1 := agenttest.NewTrust(s.stream.Platform, s.now.Add(-time.Hour), root, s.key)
	require.NoError(t, s.install(v1))
	has(1)(s)
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	v2 := v1.Next(s.now)
	v2.Document.Release = agenttest.Role(1, next)
	require.NoError(t, v2.Publish(t.Context(), b.trust))
	d := b.long(2)
	d.Signer = next
	b.publish(d)
	isAway(s)
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.EqualValues(t, 2, r.Status.Trust.Version)
	require.EqualValues(t, 2, r.Status.Release.Running.Sequence)

	s.registry.away.Store(false)
	d = s.long(3) // by the key that counts no more, on a box that knows no better
	s.publish(d)
	r = s.once()
	require.Equal(t, Refused, r.Verdict)
	require.EqualValues(t, 2, r.Status.Release.Running.Sequence)
	requireRows(t, r.Status.Registries, [2]string{"UntrustedKey", ""}, "second")
}

func TestARollbackFetchesFromTheNextRegistry(t *testing.T) {
	s, b := newPair(t)
	var manifests []ocispec.Descriptor
	for n := range int64(4) {
		manifests = append(manifests, s.publish(s.long(n+1)))
		has(n + 1)(b)
		require.Equal(t, bundle.Compliant, s.once().Status.State)
	}
	isAway(s)
	s.agent(func(a *Agent) {
		back, err := a.RollBack(Wish{To: digest.Digest(manifests[0].Digest).String()})
		require.NoError(t, err)
		require.False(t, back.Here)
		r := a.Once(t.Context(), 0)
		require.EqualValues(t, 1, r.Status.Release.Running.Sequence, r.Error)
	})
	requireFile(t, s.host, "a-x/f", "1"+strings.Repeat("x", 4096))
}

func TestTheLogTellsOfRegistriesOnChangeOnly(t *testing.T) {
	s, b := newPair(t)
	has(1)(s)
	has(1)(b)
	s.polled(func(_ *Agent, pass func() outcome) {
		lines := func() (got []string) {
			s.log.Reset()
			pass()
			for line := range strings.Lines(s.log.String()) {
				if strings.Contains(line, "registry") {
					got = append(got, line[strings.Index(line, "msg="):])
				}
			}
			return got
		}
		require.Equal(t, []string{"msg=\"a registry answers\" registry=first\n"}, lines())
		require.Empty(t, lines())
		isAway(s)
		changed := lines()
		require.Len(t, changed, 2)
		require.Contains(t, changed[0], `msg="a registry is passed over" registry=first reason=Unreachable message=`)
		require.Equal(t, "msg=\"a registry answers\" registry=second\n", changed[1])
		require.Empty(t, lines())
		s.now = s.now.Add(time.Hour)
		require.Empty(t, lines(), "it is asked, and away as before")
		s.registry.away.Store(false)
		s.now = s.now.Add(time.Hour)
		require.Equal(t, []string{"msg=\"a registry answers\" registry=first\n"}, lines())
	})
	s.opts.Further = nil
	require.Empty(t, s.once().Status.Registries, "one registry has no rows")
}

// slowTag answers what the moving tag names after a while.
type slowTag struct {
	oci.Target
	after time.Duration
}

func (s slowTag) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	if reference != bundle.LatestTag {
		return s.Target.Resolve(ctx, reference)
	}
	select {
	case <-time.After(s.after):
		return s.Target.Resolve(ctx, reference)
	case <-ctx.Done():
		return ocispec.Descriptor{}, ctx.Err()
	}
}

func TestASlowRegistryIsNotWaitedForWhileAnotherOneAnswers(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second time.Duration
		lacks         bool // the second has no release
		took          time.Duration
		last          string
	}{
		{"the second answers", time.Hour, 0, false, registries.Patience, "second"},
		{"the second has nothing, and the first gets the time that it needs", 40 * time.Second, 0, true, registries.Patience + 40*time.Second, "first"},
		{"both are slow", 40 * time.Second, time.Minute, false, 2*registries.Patience + 40*time.Second, "first"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			location := func() oci.Target {
				repo, err := oci.Location{Dir: t.TempDir()}.Repository(s.stream.Repository(), oci.Options{})
				require.NoError(t, err)
				return repo
			}
			a, b := location(), location()
			publish := func(to oci.Target) {
				_, err := s.long(1).Publish(t.Context(), to)
				require.NoError(t, err)
			}
			publish(a)
			if !tc.lacks {
				publish(b)
			}
			s.linked, s.opts.TrustSource, s.opts.Place = slowTag{a, tc.first}, nil, "first"
			s.opts.Further = []registries.Registry{{Place: "second", Releases: slowTag{b, tc.second}}}
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				r := s.once()
				require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
				require.Equal(t, tc.took, time.Since(begun))
				require.Equal(t, tc.last == "second", r.Status.Registries[1].Last)
			})
		})
	}
}
