package agent

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Contact is the registry's word on what the tag names. What says nothing of that may come from anybody on the way.
func TestContactIsAnAnswerToWhatWasAsked(t *testing.T) {
	t.Parallel()
	answers := func(status int) func(*site) {
		return func(s *site) {
			hook := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
			s.registry.hook.Store(&hook)
		}
	}
	layout := func(make bool) func(*site) {
		return func(s *site) {
			dir := filepath.Join(s.t.TempDir(), "usb")
			loc, err := oci.Parse("oci-layout:" + dir)
			require.NoError(s.t, err)
			if make {
				other, err := loc.Repository("other", oci.Options{})
				require.NoError(s.t, err)
				_, err = agenttest.New(s.stream, 9, s.now, nil, s.key).Publish(context.Background(), other)
				require.NoError(s.t, err)
			}
			s.linked, err = loc.Repository(s.stream.Repository(), oci.Options{})
			require.NoError(s.t, err)
		}
	}
	for _, tc := range []struct {
		name    string
		meet    func(*site)
		reason  string
		contact bool
	}{
		{"unchanged", func(*site) {}, "", true},
		{"no such tag", answers(http.StatusNotFound), "NotFound", true},
		{"no login", answers(http.StatusUnauthorized), "Unreachable", false},
		{"forbidden", answers(http.StatusForbidden), "Unreachable", false},
		{"out of order", answers(http.StatusServiceUnavailable), "Unreachable", false},
		{"a layout without the tag", layout(true), "NotFound", true},
		{"no layout", layout(false), "NotFound", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			before := *s.once().Status.LastContact
			s.now = s.now.Add(time.Minute)
			tc.meet(s)

			r := s.once()

			require.Equal(t, tc.reason, r.Status.Reason, r.Status.Message)
			require.Equal(t, tc.contact, r.Status.LastContact.After(before))
		})
	}
}
