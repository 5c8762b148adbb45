package demo_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/demo"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// A day after it was filled, no cluster more is silent, and gates count what people have decided.
func TestTheSampleFleetLivesOn(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	filledAt, dir := now, t.TempDir()
	h, err := hub.Open(dir, hub.Options{Now: func() time.Time { return now }, Anonymous: access.Admin})
	require.NoError(t, err)
	defer h.Close()
	ticks, filled, done := make(chan time.Time), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- demo.Live(t.Context(), filepath.Join(dir, hub.DatabaseFile), 60, filledAt, ticks, func() { close(filled) })
	}()
	select {
	case <-filled:
	case err := <-done:
		require.NoError(t, err)
	}
	answers, err := h.Answers(t.Context(), store.AccessScope{})
	require.NoError(t, err)
	silent := func() int {
		list, err := answers.Clusters(t.Context(), fleet.Query{Limit: 1})
		require.NoError(t, err)
		return list.Totals.States[store.Stale]
	}
	toStage := func() (*fleet.Judged, store.JudgedRule) {
		all, err := answers.Environments(t.Context(), fleet.Query{Environments: []string{"stage"}})
		require.NoError(t, err)
		j := all.Environments[0].Judged
		for _, r := range j.Gate("").Rules {
			if r.Rule == "approvals" {
				return j, r
			}
		}
		return j, store.JudgedRule{}
	}
	before := silent()
	j, rule := toStage()
	require.False(t, j.Old)
	require.Equal(t, store.GateWaits, rule.Result)

	all, err := answers.Candidate(t.Context(), "coffee", "dev", "stage", "")
	require.NoError(t, err)
	body, err := json.Marshal(bundle.Decision{Action: bundle.Approve, Platform: "coffee", Environment: "stage", From: "dev", BaseCommit: all.BaseCommit, Contents: all.Contents})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/decisions", bytes.NewReader(body)))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	for range 24 {
		now = now.Add(time.Hour)
		ticks <- now
	}
	close(ticks)
	require.NoError(t, <-done)
	require.Equal(t, before, silent())
	j, rule = toStage()
	require.False(t, j.Old)
	require.Equal(t, store.GatePasses, rule.Result)
	require.Equal(t, store.GatePasses, j.Gate("").Result, "it has soaked")
}
