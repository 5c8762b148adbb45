package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// hubServer is a real hub behind a link that can lose answers, and change what passes.
type hubServer struct {
	*hub.Hub
	*httptest.Server
	lose int                        // answers of enrollment that are lost
	edit func(answer []byte) []byte // what the link makes of an answer
	saw  bytes.Buffer               // what agents have sent
}

func newHubServer(t *testing.T) *hubServer {
	s := &hubServer{Hub: openHub(t)}
	inner := s.Handler()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.saw.Write(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		inner.ServeHTTP(answer, r)
		if r.URL.Path == hubapi.EnrollPath && s.lose > 0 {
			s.lose--
			panic(http.ErrAbortHandler)
		}
		body = answer.Body.Bytes()
		if s.edit != nil {
			body = s.edit(body)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Server.Close)
	return s
}

func (s *hubServer) token(t *testing.T) string {
	t.Helper()
	token, err := s.CreateToken(t.Context(), store.TokenScope{Type: "drone", ExpiresAt: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	return token.Reveal()
}

func (s *hubServer) cluster(t *testing.T) store.ClusterStatus {
	t.Helper()
	shown := shownClusters(t, s.Hub)
	require.Len(t, shown, 1)
	return shown[0].ClusterStatus
}

func (s *hubServer) keyIDs(t *testing.T) []string {
	t.Helper()
	r, err := s.Registration(t.Context(), "plant-7")
	require.NoError(t, err)
	return r.KeyIDs
}

func (a *Agent) testKeyID(t *testing.T) string {
	t.Helper()
	key, err := a.state.who.Identity().Signer()
	require.NoError(t, err)
	id, err := bundle.KeyID(key.Public())
	require.NoError(t, err)
	return id
}

func (a *Agent) testQueue(t *testing.T) int {
	t.Helper()
	st, err := a.Status()
	require.NoError(t, err)
	return st.Queue.Length
}

// change has the agent one thing more to report.
func (s *site) change(n int64) {
	s.publish(s.draft(n, map[string]string{"a-x/f": string(rune('0' + n))}))
}

func TestATokenIsAllThatAnAgentNeedsToReport(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.change(1)
	s.once()
	token := h.token(t)
	secret := token[17:69]
	s.agent(func(a *Agent) {
		h.lose = 1
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: token, Kind: enroll.AsIs})
		require.Error(t, err)
		require.Empty(t, a.hub().URL, "nothing is believed before the answer")
		e, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: token, Kind: enroll.AsIs})
		require.NoError(t, err)
		require.Equal(t, "plant-7", e.Cluster.Name)
		require.Equal(t, a.testKeyID(t), e.KeyID)
		require.NoError(t, a.hubSink().Send(t.Context()))
		require.Zero(t, a.testQueue(t))
	})
	tokens, err := h.Tokens(t.Context())
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	require.NotContains(t, s.log.String()+h.saw.String(), secret)

	// The next process needs nothing but its state.
	s.change(2)
	require.Zero(t, s.once().Status.Queue.Length)
	require.EqualValues(t, 2, h.cluster(t).Observed.Sequence)
}

func TestAnAnswerIsBelievedOfTheHubOfTheTokenAlone(t *testing.T) {
	thief, _, _ := newStranger(t)
	forge := func(answer []byte) []byte {
		var e hubapi.Enrolled
		var envelope struct{ Payload []byte }
		if json.Unmarshal(answer, &e) != nil || json.Unmarshal(e.Enrollment, &envelope) != nil {
			return answer
		}
		var enrollment bundle.Enrollment
		if json.Unmarshal(envelope.Payload, &enrollment) != nil {
			return answer
		}
		forged, err := bundle.SealEnrollment(enrollment, thief)
		if err != nil {
			return answer
		}
		data, _ := json.Marshal(hubapi.Enrolled{Enrollment: forged})
		return data
	}
	var old []byte
	for _, tc := range []struct {
		name string
		edit func([]byte) []byte
		want error
	}{
		{"signed by another", forge, bundle.ErrUntrusted},
		{"an older one", func(answer []byte) []byte { return old }, enroll.ErrNoRequest},
		{"none", func([]byte) []byte { return []byte(`{"enrolment":{}}`) }, bundle.ErrEnrollment},
		{"a page", func([]byte) []byte { return []byte(`<html>`) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, h := newSite(t), newHubServer(t)
			token := h.token(t)
			s.agent(func(a *Agent) {
				// The answer to a request of a moment before.
				h.edit = func(answer []byte) []byte { old = answer; return []byte(`{}`) }
				_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: token})
				require.Error(t, err)
				s.now = s.now.Add(time.Minute)
				h.edit = tc.edit
				_, err = a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: token})
				require.Error(t, err)
				if tc.want != nil {
					require.ErrorIs(t, err, tc.want)
				}
				require.Nil(t, a.hub().Key)
				h.edit = nil
				_, err = a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: token})
				require.NoError(t, err, "and the token is good still")
			})
		})
	}
}

func newStranger(t *testing.T) (ed25519.PrivateKey, ed25519.PublicKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	id, err := bundle.KeyID(public)
	require.NoError(t, err)
	return private, public, id
}

func TestAPinnedHubIsNotReplacedByTheWay(t *testing.T) {
	s, h, other := newSite(t), newHubServer(t), newHubServer(t)
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: h.token(t)})
		require.NoError(t, err)
		_, err = a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: other.URL, Token: other.token(t)})
		require.ErrorIs(t, err, enroll.ErrOtherHub)
		_, err = a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: other.URL, Token: h.token(t)})
		require.ErrorIs(t, err, enroll.ErrRefused, "a token of the pinned hub, sent to another")
		require.Equal(t, h.URL, a.hub().URL)
		_, err = a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: other.URL, Token: other.token(t), ReplaceHub: true})
		require.NoError(t, err)
		require.Equal(t, other.URL, a.hub().URL)
	})
	s.opts.Hub.Key = h.PublicKey()
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: other.URL, Token: other.token(t), ReplaceHub: true})
		require.ErrorIs(t, err, enroll.ErrOtherHub, "the configuration is a person's to change")
		require.Equal(t, h.PublicKey(), a.hub().Key)
		a.logBegin()
	})
	require.Contains(t, s.log.String(), "the configuration counts")
}

// A rotation is cut at each of its steps; reports of before, meanwhile and after all arrive.
func TestARotationLosesNoReportWhereverItIsCut(t *testing.T) {
	for _, tc := range []struct {
		name string
		cut  func(t *testing.T, s *site, h *hubServer)
	}{
		{"not at all", func(*testing.T, *site, *hubServer) {}},
		{"before it is sent", func(t *testing.T, s *site, h *hubServer) {
			s.agent(func(a *Agent) {
				_, err := a.Enroller().Request(enroll.Rotate)
				require.NoError(t, err)
			})
		}},
		{"after the hub has changed over", func(t *testing.T, s *site, h *hubServer) {
			h.lose = 1
			s.agent(func(a *Agent) {
				_, err := a.Enroller().Enroll(t.Context(), enroll.Options{Kind: enroll.Rotate})
				require.Error(t, err)
				require.NotContains(t, h.keyIDs(t), a.testKeyID(t))
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, h := newSite(t), newHubServer(t)
			s.now, s.opts.Now = time.Now(), nil
			s.change(1)
			s.once()
			var before, after string
			s.agent(func(a *Agent) {
				before = a.testKeyID(t)
				_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: h.token(t)})
				require.NoError(t, err)
			})
			tc.cut(t, s, h)
			h.edit = func([]byte) []byte { return []byte("cut") } // reports stay here
			s.change(2)
			require.Equal(t, 2, s.once().Status.Queue.Length)
			h.edit = nil
			s.agent(func(a *Agent) {
				_, err := a.Enroller().Enroll(t.Context(), enroll.Options{Kind: enroll.Rotate})
				require.NoError(t, err)
				after = a.testKeyID(t)
			})
			s.change(3)
			require.Zero(t, s.once().Status.Queue.Length)
			require.NotEqual(t, before, after)
			require.Equal(t, []string{after}, h.keyIDs(t))
			require.EqualValues(t, 3, h.cluster(t).Observed.Sequence)
			require.EqualValues(t, 3, h.cluster(t).Seq)
		})
	}
}

// The running agent takes a rotation up again by itself, and so does a later process.
func TestARotationThatWasBegunIsEndedBeforeReportsAreSent(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.change(1)
	s.once()
	var before string
	s.agent(func(a *Agent) {
		before = a.testKeyID(t)
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: h.token(t)})
		require.NoError(t, err)
		h.lose = 1
		_, err = a.Enroller().Enroll(t.Context(), enroll.Options{Kind: enroll.Rotate})
		require.Error(t, err)
		_, err = a.Enroller().Enroll(t.Context(), enroll.Options{Token: h.token(t)})
		require.EqualError(t, err, "an earlier request is not answered yet: it was for a new key")
		require.ErrorIs(t, err, enroll.ErrUnfinished)
	})
	require.Zero(t, s.once().Status.Queue.Length)
	s.agent(func(a *Agent) {
		require.NotEqual(t, before, a.testKeyID(t))
		require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) error {
			require.Nil(t, tx.Bucket([]byte(state.Meta)).Get([]byte("enrolling")))
			return nil
		}))
	})
}

// A machine whose state was restored from a backup of before its key was replaced, or whose clock is behind, reports into
// the present again once it has a new key.
func TestANewKeyReportsIntoThePresent(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.change(1)
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: h.token(t)})
		require.NoError(t, err)
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { // as if it had been made in the far future
			id := a.state.who.Identity()
			id.Incarnation += 1 << 30
			return id.Save(tx)
		}))
	})
	s.once()
	future := h.cluster(t).Incarnation
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { // the backup
			id := a.state.who.Identity()
			id.Incarnation -= 1 << 30
			return id.Save(tx)
		}))
	})
	s.change(2)
	s.once()
	require.Equal(t, future, h.cluster(t).Incarnation, "into the past")
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{Kind: enroll.Rotate})
		require.NoError(t, err)
		require.Equal(t, future+1, a.state.who.Identity().Incarnation)
	})
	s.change(3)
	s.once()
	require.Equal(t, future+1, h.cluster(t).Incarnation)
	require.EqualValues(t, 3, h.cluster(t).Observed.Sequence)
}

func TestWithoutAHubAPersonEndsARotation(t *testing.T) {
	s := newSite(t)
	s.change(1)
	s.once()
	s.agent(func(a *Agent) {
		_, err := a.Enroller().EndRotation()
		require.Equal(t, enroll.ErrNoRotation, err, "nothing is wrong with the state")
		first, err := a.Enroller().Request(enroll.Rotate)
		require.NoError(t, err)
		again, err := a.Enroller().Request(enroll.Rotate)
		require.NoError(t, err)
		require.Equal(t, first, again, "the roster may have it already")
	})
	s.change(2)
	s.once()
	s.agent(func(a *Agent) {
		all, err := a.state.outbox.Reports()
		require.NoError(t, err)
		require.Len(t, all, 2)
		before := a.testKeyID(t)
		a.opts.Hub.Key = s.key.Public()
		_, err = a.Enroller().EndRotation()
		require.ErrorIs(t, err, enroll.ErrUnfinished, "the hub's answer ends it")
		a.opts.Hub.Key = nil
		e, err := a.Enroller().EndRotation()
		require.NoError(t, err)
		require.Equal(t, a.testKeyID(t), e.KeyID)
		require.NotEqual(t, before, e.KeyID)
		for i, want := range []int{1, 2} {
			var envelope dsse.Envelope
			require.NoError(t, json.Unmarshal(all[i], &envelope))
			require.Len(t, envelope.Signatures, want)
		}
	})
}

func TestARefusedTokenLeavesWhatWaited(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.change(1)
	s.once()
	token := h.token(t)
	list, err := h.Tokens(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.RevokeToken(t.Context(), list[0].ID))
	s.agent(func(a *Agent) {
		refused := func() {
			_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: token, Kind: enroll.AsIs})
			require.ErrorIs(t, err, enroll.ErrRefused)
		}
		refused()
		none, err := a.state.who.Waiting()
		require.NoError(t, err)
		require.Empty(t, none)
		carried, err := a.Enroller().Request(enroll.AsIs)
		require.NoError(t, err)
		refused()
		require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) error {
			still, err := state.Load[struct{ Request []byte }](tx, state.Meta, "enrolling")
			require.Equal(t, carried, still.Request)
			return err
		}))
	})
}

func TestReportsOfBeforeTheHubWasKnownAreSentAgain(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.change(1)
	s.once()
	s.agent(func(a *Agent) {
		register(t, h.Hub, func() Status { st, err := a.Status(); require.NoError(t, err); return st }())
		a.opts.Hub.URL = h.URL
		sender := a.hubSink()
		require.NoError(t, sender.Send(t.Context()))
		require.Equal(t, 1, a.testQueue(t), "without a key nothing is deleted")
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{Token: h.token(t)})
		require.NoError(t, err)
		require.NoError(t, sender.Send(t.Context()))
		require.Zero(t, a.testQueue(t))
	})
}

func TestEnrollmentByFile(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.change(1)
	s.once()
	carry := func(kind enroll.Kind, add func(context.Context, store.Cluster) (bool, error)) (answer []byte) {
		s.agent(func(a *Agent) {
			request, err := a.Enroller().Request(kind)
			require.NoError(t, err)
			r, id, c, err := h.ParseRequest(request)
			require.NoError(t, err)
			if r.Former != "" {
				answer, err = h.Enroll(t.Context(), request)
				require.NoError(t, err)
				return
			}
			_, err = add(t.Context(), c)
			require.NoError(t, err)
			answer, err = h.AnswerRequest(t.Context(), c.UID, id)
			require.NoError(t, err)
		})
		return answer
	}
	answer := carry(enroll.AsIs, h.AddCluster)
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Accept(answer, nil)
		require.ErrorIs(t, err, outbox.ErrNoHubKey, "nobody has said whose word counts")
		_, stranger, _ := newStranger(t)
		_, err = a.Enroller().Accept(answer, stranger)
		require.ErrorIs(t, err, bundle.ErrUntrusted)
		_, err = a.Enroller().Accept(answer, h.PublicKey())
		require.NoError(t, err)
		_, err = a.Enroller().Accept(answer, nil)
		require.NoError(t, err, "again")
		require.Equal(t, h.PublicKey(), a.hub().Key)
		require.Empty(t, a.hub().URL)
	})
	rotated := carry(enroll.Rotate, nil)
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Accept(answer, nil)
		require.ErrorIs(t, err, enroll.ErrNoRequest, "an older answer")
		_, err = a.Enroller().Accept(rotated, nil)
		require.NoError(t, err)
		require.Equal(t, []string{a.testKeyID(t)}, h.keyIDs(t))
	})
}

func TestACopyBecomesAnotherCluster(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.change(1)
	s.once()
	s.agent(func(a *Agent) {
		_, err := a.Enroller().Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: h.token(t)})
		require.NoError(t, err)
		_, err = a.Enroller().Request(enroll.Rotate) // the original's, copied with the rest
		require.NoError(t, err)
		before, queued := a.state.who.Identity(), a.testQueue(t)
		require.Positive(t, queued)

		a.cluster.Name = "plant-8"
		h.lose = 1
		token := h.token(t)
		_, err = a.Enroller().Enroll(t.Context(), enroll.Options{Kind: enroll.Anew, Token: token})
		require.Error(t, err)
		require.Equal(t, before, a.state.who.Identity(), "as long as the hub has not agreed")
		require.Equal(t, queued, a.testQueue(t))
		e, err := a.Enroller().Enroll(t.Context(), enroll.Options{Kind: enroll.Anew, Token: token})
		require.NoError(t, err)

		now := a.state.who.Identity()
		require.Equal(t, now.UID, e.Cluster.UID)
		require.NotEqual(t, before.UID, now.UID)
		require.NotEqual(t, before.Key, now.Key)
		require.Greater(t, now.Incarnation, before.Incarnation)
		require.Zero(t, a.testQueue(t))
	})
	all, err := h.Registrations(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
}

func TestARunningAgentEnrollsAndSendsAtOnce(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.change(1)
	state, err := OpenState(s.dir, nil)
	require.NoError(t, err)
	defer state.Close()
	a := s.agentOn(state)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	client := NewClient(s.dir)
	require.Eventually(t, func() bool { _, err := client.Status(t.Context()); return err == nil }, time.Minute, time.Millisecond)

	_, err = client.Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: "wht_hunter2"})
	require.ErrorIs(t, err, bundle.ErrToken)
	require.NotContains(t, err.Error(), "hunter2")
	_, err = client.Enroll(t.Context(), enroll.Options{Kind: enroll.Anew, HubURL: h.URL, Token: h.token(t)})
	require.ErrorIs(t, err, ErrRunning)
	_, err = client.Enroll(t.Context(), enroll.Options{HubURL: h.URL, Token: h.token(t)})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		shown := shownClusters(t, h.Hub)
		return len(shown) == 1 && !shown[0].LastSeen.IsZero()
	}, time.Minute, time.Millisecond)
	_, err = client.EnrollRequest(t.Context(), enroll.Rotate)
	require.NoError(t, err)
	_, err = a.Enroller().Request(enroll.Anew) // as somebody may have begun before it ran
	require.NoError(t, err)
	_, err = client.Accept(t.Context(), []byte("{}"), nil)
	require.ErrorIs(t, err, ErrRunning)
	cancel()
	require.NoError(t, <-ended)
}

func TestAnAgentThatWasGivenATokenEnrollsItself(t *testing.T) {
	s, h := newSite(t), newHubServer(t)
	s.now, s.opts.Now = time.Now(), nil
	s.opts.Hub.URL, s.opts.EnrollToken = h.URL, h.token(t)
	s.change(1)
	h.lose = 1
	require.Equal(t, 1, s.once().Status.Queue.Length)
	require.Zero(t, s.once().Status.Queue.Length)

	// A token that is of no use any more holds up nothing.
	other := newSite(t)
	other.opts.Hub.URL, other.opts.EnrollToken = h.URL, s.opts.EnrollToken
	other.change(1)
	other.agent(func(a *Agent) {
		a.cluster.UID, a.cluster.Name = "plant-8", "plant-8"
		a.Once(t.Context(), 0)
		err := a.hubSink().Send(t.Context())
		var said *queue.HubError
		require.True(t, errors.As(err, &said), "%v", err)
		require.Equal(t, hubapi.CodeUnknownCluster, said.Code, "as it would be told without one")
	})
	require.Contains(t, other.log.String(), "has been used up")
}
