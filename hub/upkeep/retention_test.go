package upkeep

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

const day = 24 * time.Hour

// trimmed notes what is to be removed. Stores remove it; see hub/store/storetest.
type trimmed struct {
	store.Evidence
	envelopes, history []time.Time
	err                error
}

func (t *trimmed) Trim(_ context.Context, envelopes, history time.Time) (store.Trimmed, error) {
	t.envelopes, t.history = append(t.envelopes, envelopes), append(t.history, history)
	return store.Trimmed{Envelopes: 1}, t.err
}

func TestWhatIsTrimmed(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name               string
		retention          Retention
		unsent             time.Time
		envelopes, history time.Time
		none               bool
	}{
		{"both", Retention{90 * day, 400 * day}, time.Time{}, now.Add(-90 * day), now.Add(-400 * day), false},
		{"envelopes alone", Retention{Envelopes: 90 * day}, time.Time{}, now.Add(-90 * day), time.Time{}, false},
		{"history alone", Retention{History: 90 * day}, time.Time{}, time.Time{}, now.Add(-90 * day), false},
		{"an upper hub is to get older ones", Retention{90 * day, 400 * day}, now.Add(-95 * day), now.Add(-95 * day), now.Add(-400 * day), false},
		{"an upper hub is to get newer ones", Retention{90 * day, 400 * day}, now.Add(-5 * day), now.Add(-90 * day), now.Add(-400 * day), false},
		{"nothing", Retention{}, time.Time{}, time.Time{}, time.Time{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var of trimmed
			_, err := tt.retention.Trim(t.Context(), &of, now, tt.unsent)
			require.NoError(t, err)
			if tt.none {
				require.Empty(t, of.envelopes)
				return
			}
			require.Equal(t, []time.Time{tt.envelopes}, of.envelopes)
			require.Equal(t, []time.Time{tt.history}, of.history)
		})
	}
}

func TestRetentionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		of, known := &trimmed{err: errors.New("database is locked")}, true
		var counted int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- Retention{90 * day, 400 * day}.Run(ctx, of, Options{
				Log: slog.New(slog.NewTextHandler(&log, nil)), Unsent: func() (time.Time, bool) { return time.Time{}, known },
				Trimmed: func(t store.Trimmed) { counted += t.Envelopes },
			})
		}()
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		require.Len(t, of.envelopes, 4, "a failure is no end")
		require.Contains(t, log.String(), "database is locked")
		of.err = nil
		known = false
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, of.envelopes[4], "nobody knows what the upper hub has")
		require.NotZero(t, of.history[4])
		require.EqualValues(t, 5, counted)
		cancel()
		require.NoError(t, <-ended)
	})
}
