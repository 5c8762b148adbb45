package hub

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestReportIsStoredAndAcknowledged(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	r := a.report(1, 1, storetest.Item("drone", bundle.Compliant))

	status, receipt, _ := post(t, h, a.UID, a.seal(t, r))

	require.Equal(t, http.StatusOK, status)
	require.Equal(t, hubapi.Receipt{Ack: receipt.Ack, Accepted: 1, Rejected: []hubapi.Rejection{}, Pace: hubapi.Pace{ReportsPerMinute: admission.DefaultReportsPerMinute}}, receipt)
	require.Equal(t, bundle.Ack{Schema: 1, Cluster: a.UID, IssuedAt: storetest.Epoch, Reports: []digest.Digest{idOf(t, r)}}, acked(t, h, receipt.Ack))
	release := &bundle.ReportRelease{Digest: digest.FromString("release"), Sequence: 7, Number: 12}
	require.Equal(t, store.ClusterStatus{
		Identity: store.Identity{UID: a.UID, Name: "plant-7", Platform: "shop", Type: "drone", Environment: "dev"}, State: bundle.Compliant, Since: storetest.Epoch,
		Offered: release, Observed: release, AgentVersion: "v0.1.0", Incarnation: 1, Seq: 1, LastSeen: storetest.Epoch,
	}, onlyCluster(t, h))
	require.Equal(t, []string{"drone-main compliant"}, deploymentsOf(t, h))
}

func TestRepeatsChangeNothingAndAreAcknowledged(t *testing.T) {
	h, c := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	one, two := a.report(1, 1, storetest.Item("drone", bundle.Applying)), a.report(1, 2, storetest.Item("drone", bundle.Compliant))
	post(t, h, a.UID, a.seal(t, one))
	before := onlyCluster(t, h)
	c.Add(time.Minute)

	status, receipt, _ := post(t, h, a.UID, a.seal(t, one), a.seal(t, one))

	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 0, receipt.Accepted)
	require.Equal(t, 2, receipt.Duplicates)
	require.Contains(t, acked(t, h, receipt.Ack).Reports, idOf(t, one))
	require.Equal(t, before, onlyCluster(t, h), "a captured report that is played again must not make a dead cluster look alive")

	_, receipt, _ = post(t, h, a.UID, a.seal(t, one), a.seal(t, two))
	require.Equal(t, 1, receipt.Accepted)
	require.Equal(t, 1, receipt.Duplicates)
	require.Equal(t, []digest.Digest{idOf(t, one), idOf(t, two)}, acked(t, h, receipt.Ack).Reports)
	require.Equal(t, 2, storedReports(t, h))
}

func TestLateReportAddsHistoryAndLeavesThePresent(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	post(t, h, a.UID, a.seal(t, a.report(2, 5, storetest.Item("drone", bundle.Compliant))))
	before, rows := onlyCluster(t, h), transitions(t, h, a.UID)

	_, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(2, 4, storetest.Item("drone", bundle.Failed), storetest.Item("radar", bundle.Applying))),
		a.seal(t, a.report(1, 99, storetest.Item("drone", bundle.Pending))))

	require.Equal(t, 2, receipt.Accepted)
	require.Equal(t, before, onlyCluster(t, h))
	require.Equal(t, []string{"drone-main compliant"}, deploymentsOf(t, h))
	require.Greater(t, transitions(t, h, a.UID), rows)
}

func TestConflictIsRefusedAndSaid(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	first, clone, next := a.report(1, 1, storetest.Item("drone", bundle.Compliant)), a.report(1, 1, storetest.Item("drone", bundle.Failed)), a.report(1, 2)
	post(t, h, a.UID, a.seal(t, first))

	status, receipt, _ := post(t, h, a.UID, a.seal(t, clone), a.seal(t, next))

	require.Equal(t, http.StatusOK, status)
	require.Len(t, receipt.Rejected, 1)
	rejected := receipt.Rejected[0]
	require.NotEmpty(t, rejected.Message)
	rejected.Message = ""
	require.Equal(t, hubapi.Rejection{Index: 0, ID: idOf(t, clone), Cluster: a.UID, Reason: hubapi.CodeConflict, Permanent: true}, rejected)
	require.Equal(t, []digest.Digest{idOf(t, next)}, acked(t, h, receipt.Ack).Reports)
	got := onlyCluster(t, h)
	require.Equal(t, 1, got.Conflicts)
	require.Equal(t, "SharedIdentity", got.ShownReason())
}

func TestRefusals(t *testing.T) {
	a, b, stranger := newAgent(t, "plant-7"), newAgent(t, "plant-8"), newAgent(t, "plant-9")
	good := a.report(1, 1)
	forged := bytes.Replace(a.seal(t, good), []byte(`"sig":"`), []byte(`"sig":"AAAA`), 1)
	asOther := b.report(1, 1)
	ofStranger := stranger.report(1, 1)
	ofStranger.Cluster.UID = a.UID
	long := a.report(1, 1)
	long.Cluster.Name = strings.Repeat("x", store.MaxText+1)
	twice := a.report(1, 1, storetest.Item("drone", bundle.Failed), storetest.Item("drone", bundle.Compliant))
	foreign, err := bundle.SealEnvelope(bundle.PayloadTypeAck, []byte("{}"), a.private)
	require.NoError(t, err)

	tests := []struct {
		name     string
		uid      string
		envelope []byte
		status   int
		code     hubapi.Code
	}{
		{"cluster is not registered", stranger.UID, stranger.seal(t, stranger.report(1, 1)), http.StatusForbidden, hubapi.CodeUnknownCluster},
		{"uid is hostile", "%3Cscript%3E", a.seal(t, good), http.StatusForbidden, hubapi.CodeUnknownCluster},
		{"key is not registered", a.UID, stranger.seal(t, ofStranger), http.StatusForbidden, hubapi.CodeUnknownKey},
		{"another cluster's report", a.UID, b.seal(t, asOther), http.StatusForbidden, hubapi.CodeUnknownKey},
		{"own key speaks for another cluster", a.UID, a.seal(t, asOther), http.StatusForbidden, hubapi.CodeWrongCluster},
		{"signature is forged", a.UID, forged, http.StatusForbidden, hubapi.CodeBadSignature},
		{"envelope is not an envelope", a.UID, []byte(`[1]`), http.StatusOK, hubapi.CodeBadReport},
		{"envelope is null", a.UID, []byte(`null`), http.StatusOK, hubapi.CodeBadReport},
		{"envelope holds another type", a.UID, foreign, http.StatusOK, hubapi.CodeBadReport},
		{"report is not a report", a.UID, a.sealBody(t, []byte(`"hello"`)), http.StatusOK, hubapi.CodeBadReport},
		{"report has a newer schema", a.UID, a.sealBody(t, []byte(`{"schema":2}`)), http.StatusOK, hubapi.CodeBadReport},
		{"a value is too long", a.UID, a.seal(t, long), http.StatusOK, hubapi.CodeBadReport},
		{"an assignment is listed twice", a.UID, a.seal(t, twice), http.StatusOK, hubapi.CodeBadReport},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := newHub(t)
			a.register(t, h)
			b.register(t, h)

			status, receipt, e := post(t, h, tt.uid, tt.envelope)

			require.Equal(t, tt.status, status)
			if status == http.StatusOK {
				require.Len(t, receipt.Rejected, 1)
				require.Equal(t, tt.code, receipt.Rejected[0].Reason, receipt.Rejected[0].Message)
				require.True(t, receipt.Rejected[0].Permanent)
			} else {
				require.Equal(t, tt.code, e.Code, e.Message)
			}
			require.Empty(t, receipt.Ack)
			require.Zero(t, storedReports(t, h))
			require.Empty(t, deploymentsOf(t, h))
		})
	}
}

func TestOneBadReportDoesNotHoldUpTheOthers(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	good := a.report(1, 2)

	_, receipt, _ := post(t, h, a.UID, []byte(`{}`), a.seal(t, good), newAgent(t, "x").seal(t, a.report(1, 3)))

	require.Equal(t, 1, receipt.Accepted)
	require.Equal(t, []digest.Digest{idOf(t, good)}, acked(t, h, receipt.Ack).Reports)
	require.Len(t, receipt.Rejected, 2)
	require.Equal(t, []any{0, hubapi.CodeBadReport, true}, []any{receipt.Rejected[0].Index, receipt.Rejected[0].Reason, receipt.Rejected[0].Permanent})
	require.Equal(t, []any{2, hubapi.CodeUnknownKey, false}, []any{receipt.Rejected[1].Index, receipt.Rejected[1].Reason, receipt.Rejected[1].Permanent})
}

func TestRevokedKeysAreRefused(t *testing.T) {
	h, _ := newHub(t)
	old, fresh := newAgent(t, "plant-7"), newAgent(t, "plant-7")
	old.register(t, h)
	_, err := h.ReplaceCluster(t.Context(), fresh.Cluster)
	require.NoError(t, err)

	status, _, e := post(t, h, old.UID, old.seal(t, old.report(1, 1)))
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, hubapi.CodeUnknownKey, e.Code)
	status, _, _ = post(t, h, fresh.UID, fresh.seal(t, fresh.report(2, 1)))
	require.Equal(t, http.StatusOK, status)

	_, err = h.RemoveCluster(t.Context(), "plant-7")
	require.NoError(t, err)
	status, _, e = post(t, h, fresh.UID, fresh.seal(t, fresh.report(2, 2)))
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, hubapi.CodeUnknownCluster, e.Code)
}

func TestBodiesThatAreRefused(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	tests := []struct {
		name   string
		body   string
		status int
	}{
		{"nothing", "", http.StatusBadRequest},
		{"no JSON", "hello", http.StatusBadRequest},
		{"cut short", `{"reports":[{"payload`, http.StatusBadRequest},
		{"no reports", `{"reports":[]}`, http.StatusBadRequest},
		{"reports of the wrong type", `{"reports":{"a":1}}`, http.StatusBadRequest},
		{"deeply nested", `{"reports":[` + strings.Repeat("[", 100_000), http.StatusBadRequest},
		{"too many reports", `{"reports":[` + strings.Repeat("{},", hubapi.MaxReports) + `{}]}`, http.StatusBadRequest},
		{"too many bytes", `{"reports":["` + strings.Repeat("x", hubapi.MaxRequestBytes) + `"]}`, http.StatusRequestEntityTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, _, e := postBody(t, h, a.UID, []byte(tt.body))
			require.Equal(t, tt.status, status)
			require.NotEmpty(t, e.Message)
		})
	}
}

func TestCompressedRequests(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	send := func(body []byte) *httptest.ResponseRecorder {
		var z bytes.Buffer
		zw := gzip.NewWriter(&z)
		_, err := zw.Write(body)
		require.NoError(t, err)
		require.NoError(t, zw.Close())
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/clusters/"+a.UID+"/reports", &z)
		r.Header.Set("Content-Encoding", "gzip")
		h.Handler().ServeHTTP(w, r)
		return w
	}
	w := send(requestOf(t, a.seal(t, a.report(1, 1))))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var receipt hubapi.Receipt
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &receipt))
	require.Equal(t, 1, receipt.Accepted)

	require.Equal(t, http.StatusRequestEntityTooLarge, send(make([]byte, hubapi.MaxInflatedBytes+1)).Code, "a bomb is not unpacked")
}

// failing is a store that cannot write. Those of hub/store/sqlite whose commits fail, or whose disk is full, are tested
// there.
type failing struct {
	store.Store
	err error
}

func (f *failing) Ingest(ctx context.Context, b store.Batch) (store.Outcome, error) {
	if f.err != nil {
		return store.Outcome{}, f.err
	}
	return f.Store.Ingest(ctx, b)
}

func TestAFailedStoreGivesNoAcknowledgement(t *testing.T) {
	for _, failure := range []error{errors.New("constraint failed"), syscall.ENOSPC, store.ErrClosed} {
		h, _ := newHub(t)
		a := newAgent(t, "plant-7")
		a.register(t, h)
		f := &failing{h.store, failure}
		h.intake.store = f
		envelope := a.seal(t, a.report(1, 1, storetest.Item("drone", bundle.Compliant)))

		status, receipt, e := post(t, h, a.UID, envelope)

		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, hubapi.CodeUnavailable, e.Code)
		require.Empty(t, receipt.Ack)
		require.NotContains(t, e.Message, failure.Error(), "what went wrong inside is for the log")
		require.Zero(t, storedReports(t, h))

		f.err = nil
		status, receipt, _ = post(t, h, a.UID, envelope)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, 1, receipt.Accepted, "nothing of the failed attempt is left")
	}
}
