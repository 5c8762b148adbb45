package access

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

// log is an audit log with one entry a minute, of which each hundredth is ann's.
type log struct {
	store.Access
	entries int64
	read    int
}

var began = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (l *log) AuditHead(context.Context) (int64, digest.Digest, error) { return l.entries, "", nil }

func (l *log) AuditLog(_ context.Context, after int64, limit int) (all []store.AuditEntry, err error) {
	l.read++
	for at := after + 1; at <= min(after+int64(limit), l.entries); at++ {
		e := store.AuditEntry{Position: at, At: began.Add(time.Duration(at) * time.Minute), Actor: "bot (b1)", Action: "count", Object: fmt.Sprint(at)}
		if at%100 == 0 {
			e.Actor = "Ann (a1)"
		}
		all = append(all, e)
	}
	return all, nil
}

func TestTheAuditLogIsAskedFromTheNewestEntry(t *testing.T) {
	for name, tt := range map[string]struct {
		q           store.AuditQuery
		first, last int64 // positions
		n           int
		next        int64
		read        int
	}{
		"all of it, a page":              {store.AuditQuery{}, 30000, 29001, 1000, 29001, 1},
		"a few":                          {store.AuditQuery{Limit: 3}, 30000, 29998, 3, 29998, 1},
		"going on":                       {store.AuditQuery{Before: 3, Limit: 5}, 2, 1, 2, 0, 1},
		"one person":                     {store.AuditQuery{Actor: "ANN"}, 30000, 20100, 100, 20001, 10},
		"one that is far away":           {store.AuditQuery{Object: "29999", Limit: 1}, 29999, 29999, 1, 29999, 1},
		"nothing, so far":                {store.AuditQuery{Action: "approve"}, 0, 0, 0, 20001, 10},
		"of the last hours":              {store.AuditQuery{Since: began.Add(29990 * time.Minute)}, 30000, 29990, 11, 0, 3},
		"until a time":                   {store.AuditQuery{Until: began.Add(10 * time.Minute), Before: 1000}, 9, 1, 9, 0, 1},
		"in between, since it is strict": {store.AuditQuery{Since: began.Add(5 * time.Minute), Until: began.Add(6 * time.Minute), Before: 500}, 5, 5, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{entries: 30000}
			list, err := Tokens{Store: l}.AuditLog(t.Context(), tt.q)
			require.NoError(t, err)
			require.Len(t, list.Entries, tt.n)
			if tt.n > 0 {
				require.Equal(t, tt.first, list.Entries[0].Position)
				require.Equal(t, tt.last, list.Entries[tt.n-1].Position)
			}
			require.Equal(t, tt.next, list.Next)
			require.Equal(t, tt.read, l.read)
		})
	}
	list, err := Tokens{Store: &log{}}.AuditLog(t.Context(), store.AuditQuery{})
	require.NoError(t, err)
	require.Equal(t, store.AuditList{Entries: []store.AuditEntry{}}, list)
}

func TestAnAuditQueryRoundTrips(t *testing.T) {
	q := store.AuditQuery{Actor: "ann", Action: "approve", Object: "prod/x", Since: began, Until: began.Add(time.Hour), Before: 7, Limit: 9}
	got, err := store.ParseAuditQuery(q.Values(), time.Now())
	require.NoError(t, err)
	require.Equal(t, q, got)
	for _, wrong := range []url.Values{{"limit": {"1001"}}, {"limit": {"0"}}, {"before": {"x"}}, {"since": {"yesterday"}}} {
		_, err := store.ParseAuditQuery(wrong, time.Now())
		require.ErrorIs(t, err, store.ErrInvalid, "%v", wrong)
	}
}
