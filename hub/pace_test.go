package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestReceiptsHoldAPace(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 1, storetest.Item("web", bundle.Compliant))))
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, admission.DefaultReportsPerMinute, receipt.Pace.ReportsPerMinute)
}

func TestABusyHubSaysWhenToComeBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, err := Open(dir, Options{})
		require.NoError(t, err)
		defer h.Close()
		a := newAgent(t, "plant-7")
		a.register(t, h)
		ctx, cancel := context.WithCancel(t.Context())
		for range 512 { // as many requests as may wait to be stored
			go func() {
				if end, err := h.gate.BeginReports(ctx); err == nil {
					<-ctx.Done()
					end()
				}
			}()
		}
		synctest.Wait()
		wait, e := postTooMuch(t, h, a, a.report(1, 2))
		require.Equal(t, hubapi.CodeBusy, e.Code)
		require.GreaterOrEqual(t, wait, 5*time.Second)
		require.LessOrEqual(t, wait, time.Minute, "whole seconds, rounded up")
		cancel()
		synctest.Wait()
		status, _, _ := post(t, h, a.UID, a.seal(t, a.report(1, 2)))
		require.Equal(t, http.StatusOK, status)
	})
}

// postTooMuch posts reports that the hub sends back, and returns for how long and why.
func postTooMuch(t *testing.T, h *Hub, a *agent, reports ...bundle.Report) (time.Duration, hubapi.Error) {
	t.Helper()
	before := storedReports(t, h)
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/clusters/"+a.UID+"/reports", bytes.NewReader(requestOf(t, a.sealAll(t, reports)...))))
	require.Equal(t, http.StatusTooManyRequests, w.Code, w.Body)
	require.Equal(t, before, storedReports(t, h), "nothing is stored")
	require.NotContains(t, w.Body.String(), "ack")
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	var e hubapi.Error
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
	return time.Duration(seconds) * time.Second, e
}

func (a *agent) sealAll(t *testing.T, reports []bundle.Report) (envelopes [][]byte) {
	t.Helper()
	for _, r := range reports {
		envelopes = append(envelopes, a.seal(t, r))
	}
	return envelopes
}

// numbered returns n reports from seq on.
func (a *agent) numbered(seq int64, n int) (reports []bundle.Report) {
	for i := range n {
		reports = append(reports, a.report(1, seq+int64(i), storetest.Item("web", bundle.Compliant)))
	}
	return reports
}

func TestAClusterThatSendsTooMuchIsSentBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options admission.Options
		first   int // reports that are taken at once
		bound   string
		wait    time.Duration // at least
	}{
		{"faster than its pace", admission.Options{ReportsPerMinute: 10}, 30, "10 reports a minute", 2*time.Minute + time.Second},
		{"more reports than its quota", admission.Options{Quota: admission.Quota{Reports: 6}}, 6, "6 reports an hour", time.Second},
		{"more bytes than its quota", admission.Options{Quota: admission.Quota{Bytes: 1000}}, 3, "1000 bytes an hour", time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := storetest.NewClock()
			h, err := Open(t.TempDir(), Options{Now: c.Now, Admission: tt.options})
			require.NoError(t, err)
			t.Cleanup(func() { _ = h.Close() })
			a, other := newAgent(t, "plant-7"), newAgent(t, "plant-8")
			a.register(t, h)
			other.register(t, h)
			status, _, _ := post(t, h, a.UID, a.sealAll(t, a.numbered(1, tt.first))...)
			require.Equal(t, http.StatusOK, status)

			wait, e := postTooMuch(t, h, a, a.report(1, 100))
			require.Equal(t, hubapi.CodeOverQuota, e.Code)
			require.Contains(t, e.Message, tt.bound)
			require.GreaterOrEqual(t, wait, tt.wait)
			status, _, _ = post(t, h, other.UID, other.seal(t, other.report(1, 1)))
			require.Equal(t, http.StatusOK, status, "another cluster is taken")

			c.Add(wait)
			status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 100)))
			require.Equal(t, http.StatusOK, status, "it is taken when the hub said")
			require.Equal(t, []digest.Digest{idOf(t, a.report(1, 100))}, acked(t, h, receipt.Ack).Reports)
		})
	}
}

func TestAStrangerTakesNothingFromAClustersQuota(t *testing.T) {
	h, err := Open(t.TempDir(), Options{Admission: admission.Options{Quota: admission.Quota{Reports: 1}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	a, stranger := newAgent(t, "plant-7"), newAgent(t, "plant-7")
	a.register(t, h)
	for seq := range int64(10) {
		status, _, _ := post(t, h, a.UID, stranger.seal(t, stranger.report(1, seq+1)))
		require.Equal(t, http.StatusForbidden, status)
	}
	status, _, _ := post(t, h, a.UID, a.seal(t, a.report(1, 1)))
	require.Equal(t, http.StatusOK, status)
}

func TestOneKeyFillsNoMoreThanItsQuota(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	taken := 0
	for seq := int64(1); ; seq += 50 {
		envelopes := a.sealAll(t, a.numbered(seq, 50))
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/clusters/"+a.UID+"/reports", bytes.NewReader(requestOf(t, envelopes...))))
		if w.Code == http.StatusTooManyRequests {
			break
		}
		require.Equal(t, http.StatusOK, w.Code)
		for _, e := range envelopes {
			taken += len(e)
		}
		require.LessOrEqual(t, taken, admission.DefaultQuota.Bytes+hubapi.MaxRequestBytes)
	}
	require.LessOrEqual(t, storedReports(t, h), admission.DefaultQuota.Reports+50)
}

func TestAMonthOfReportsIsTakenAtOnce(t *testing.T) {
	h, c := newHub(t)
	a := newAgent(t, "ship-7")
	a.register(t, h)
	for day := range int64(2) {
		reports := a.numbered(1+30*day, 30)
		for i := range reports {
			for n := range 50 {
				reports[i].Items = append(reports[i].Items, storetest.Item(fmt.Sprintf("web-%d", n), bundle.Compliant))
			}
		}
		status, receipt, _ := post(t, h, a.UID, a.sealAll(t, reports)...)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, 30, receipt.Accepted)
		c.Add(30 * 24 * time.Hour)
	}
}
