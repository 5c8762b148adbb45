package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

func TestATroubleIsToldOnceAndThenOnceAnHour(t *testing.T) {
	var out strings.Builder
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	log := slog.New(newRepeats(slog.NewTextHandler(&out, nil), func() time.Time { return now }))
	told := func() int {
		n := strings.Count(out.String(), "\n")
		out.Reset()
		return n
	}
	away := fmt.Errorf("read: %w", store.ErrUnavailable)
	for range 100 {
		log.Error("request not answered", "path", "/v1/clusters", "err", away)
	}
	require.Equal(t, 1, told())
	log.Error("not ready", "err", away)
	log.Error("request not answered", "err", store.ErrCorrupt)
	require.Equal(t, 2, told(), "another message, and another trouble")
	for range 2 {
		log.Error("request not answered", "err", errors.New("something else"))
		log.Info("hub is ready")
	}
	require.Equal(t, 4, told(), "what is no trouble of the database is always told")
	for range 61 {
		now = now.Add(quietFor - time.Second)
		log.Error("request not answered", "err", away)
	}
	require.Zero(t, told())
	now = now.Add(quietFor - time.Second)
	log.Error("request not answered", "err", away)
	require.Contains(t, out.String(), "more=160")
	require.Equal(t, 1, told())
	now = now.Add(quietFor)
	log.Error("request not answered", "err", away)
	require.Equal(t, 1, told(), "it was over, and has begun again")
}
