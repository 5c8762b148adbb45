package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

// access returns the store's access tokens and audit log.
func (f *fixture) access() store.Access {
	f.t.Helper()
	a, ok := f.Store.(store.Access)
	require.True(f.t, ok, "%T has no access tokens", f.Store)
	return a
}

// accessToken returns a token of a person, by the name.
func (f *fixture) accessToken(id, name string) store.AccessToken {
	return store.AccessToken{ID: id, Hash: []byte("hash of " + id), Name: name, Role: "viewer", CreatedAt: f.clock.Now()}
}

func accessTests() []test {
	return []test{
		{"a token is kept with all its values", func(t *testing.T, f *fixture) {
			want := f.accessToken("a1", "ann")
			want.AccessScope = store.AccessScope{Environments: []string{"prod", "stage"}, Workspaces: []string{"shop"}, Selector: "region=east,gpu!=true"}
			want.ExpiresAt = Epoch.Add(time.Hour)
			require.NoError(t, f.access().AddAccess(t.Context(), want))
			for _, f := range []*fixture{f, f.again()} {
				got, err := f.access().AccessToken(t.Context(), "a1")
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}},
		{"a token that does not exist", func(t *testing.T, f *fixture) {
			_, err := f.access().AccessToken(t.Context(), "none")
			require.ErrorIs(t, err, store.ErrUnknownAccess)
			_, err = f.access().RevokeAccess(t.Context(), "none")
			require.ErrorIs(t, err, store.ErrUnknownAccess)
			require.NoError(t, f.access().UseAccess(t.Context(), "none", Epoch, time.Hour))
			all, err := f.access().AccessTokens(t.Context())
			require.NoError(t, err)
			require.Empty(t, all)
			require.NotNil(t, all)
		}},
		{"an id is of one token, and a name of one in force", func(t *testing.T, f *fixture) {
			a := f.access()
			first := f.accessToken("a1", "ann")
			first.ExpiresAt = Epoch.Add(time.Hour)
			require.NoError(t, a.AddAccess(t.Context(), first))
			require.ErrorIs(t, a.AddAccess(t.Context(), f.accessToken("a1", "bob")), store.ErrExists)
			require.ErrorIs(t, a.AddAccess(t.Context(), f.accessToken("a2", "ann")), store.ErrExists)
			f.clock.Add(time.Hour)
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a2", "ann")), "the first has expired")
			_, err := a.RevokeAccess(t.Context(), "ann")
			require.NoError(t, err)
			f.clock.Add(time.Second)
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a3", "ann")), "the second is revoked")
			all, err := a.AccessTokens(t.Context())
			require.NoError(t, err)
			var ids []string
			for _, one := range all {
				ids = append(ids, one.ID)
			}
			require.Equal(t, []string{"a3", "a2", "a1"}, ids, "newest first")
		}},
		{"a token is revoked by its id or its name, once", func(t *testing.T, f *fixture) {
			a := f.access()
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a1", "ann")))
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a2", "bob")))
			f.clock.Add(time.Minute)
			at := f.clock.Now()
			for _, key := range []string{"a1", "bob"} {
				got, err := a.RevokeAccess(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, at, got.RevokedAt)
			}
			f.clock.Add(time.Minute)
			got, err := f.again().access().RevokeAccess(t.Context(), "a1")
			require.NoError(t, err)
			require.Equal(t, at, got.RevokedAt, "the first time counts")
			got, err = a.AccessToken(t.Context(), "a2")
			require.NoError(t, err)
			require.Equal(t, at, got.RevokedAt)
		}},
		{"sessions repeat names, are renewed, and are removed a week after their end", func(t *testing.T, f *fixture) {
			a := f.access()
			session := func(id string) store.AccessToken {
				s := f.accessToken(id, "ann")
				s.Subject, s.ExpiresAt = "7 at https://login.example.com", f.clock.Now().Add(time.Hour)
				return s
			}
			require.NoError(t, a.AddAccess(t.Context(), session("s1")))
			require.NoError(t, a.AddAccess(t.Context(), session("s2")))
			require.ErrorIs(t, a.AddAccess(t.Context(), session("s2")), store.ErrExists)
			_, err := a.RevokeAccess(t.Context(), "ann")
			require.ErrorIs(t, err, store.ErrUnknownAccess, "a name is a token's")
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a1", "ann")))
			renewed := session("s1")
			renewed.Role, renewed.AccessScope, renewed.ExpiresAt = "approver", store.AccessScope{Environments: []string{"prod"}}, f.clock.Now().Add(2*time.Hour)
			require.NoError(t, a.RenewAccess(t.Context(), renewed))
			got, err := f.again().access().AccessToken(t.Context(), "s1")
			require.NoError(t, err)
			require.Equal(t, renewed, got)
			_, err = a.RevokeAccess(t.Context(), "s2")
			require.NoError(t, err)
			for _, id := range []string{"s2", "a1", "none"} {
				require.ErrorIs(t, a.RenewAccess(t.Context(), store.AccessToken{ID: id}), store.ErrUnknownAccess, id)
			}
			f.clock.Add(7*24*time.Hour + 90*time.Minute)
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a2", "bob")))
			all, err := a.AccessTokens(t.Context())
			require.NoError(t, err)
			var ids []string
			for _, one := range all {
				ids = append(ids, one.ID)
			}
			require.Equal(t, []string{"a2", "a1", "s1"}, ids)
		}},
		{"tokens wait until they are accepted, but for those of no use", func(t *testing.T, f *fixture) {
			a := f.access()
			for id, name := range map[string]string{"a1": "ann", "a2": "bob", "a3": "eve"} {
				require.NoError(t, a.AddAccess(t.Context(), f.accessToken(id, name)))
			}
			_, err := a.RevokeAccess(t.Context(), "bob")
			require.NoError(t, err)
			f.token("t1", scope())
			n, err := a.HoldTokens(t.Context())
			require.NoError(t, err)
			require.Equal(t, 3, n)
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a4", "new")))
			waiting := func() (ids []string) {
				all, err := f.again().access().AccessTokens(t.Context())
				require.NoError(t, err)
				for _, one := range all {
					if one.Waits {
						ids = append(ids, one.ID)
					}
				}
				return ids
			}
			require.Equal(t, []string{"a1", "a3"}, waiting())
			tokens, err := f.Tokens(t.Context())
			require.NoError(t, err)
			require.Equal(t, store.TokenWaits, tokens[0].State)
			n, err = a.AcceptTokens(t.Context())
			require.NoError(t, err)
			require.Equal(t, 3, n)
			require.Empty(t, waiting())
			tokens, err = f.Tokens(t.Context())
			require.NoError(t, err)
			require.Equal(t, store.TokenGood, tokens[0].State)
		}},
		{"the last use is noted as often as is asked for", func(t *testing.T, f *fixture) {
			a := f.access()
			require.NoError(t, a.AddAccess(t.Context(), f.accessToken("a1", "ann")))
			for _, tt := range []struct{ at, every, want time.Duration }{
				{0, time.Hour, 0}, {59 * time.Minute, time.Hour, 0}, {59 * time.Minute, time.Minute, 59 * time.Minute}, {2 * time.Hour, time.Hour, 2 * time.Hour}, {30 * time.Minute, time.Minute, 2 * time.Hour},
			} {
				require.NoError(t, a.UseAccess(t.Context(), "a1", Epoch.Add(tt.at), tt.every))
				got, err := a.AccessToken(t.Context(), "a1")
				require.NoError(t, err)
				require.Equal(t, Epoch.Add(tt.want), got.UsedAt)
			}
		}},
		{"the audit log is read page by page, in order, from all processes", func(t *testing.T, f *fixture) {
			other := f.again()
			var want []store.AuditEntry
			for i := range 7 {
				e := store.AuditEntry{
					At: f.clock.Now(), Actor: "ann (a1)", Action: "retire cluster", Object: fmt.Sprint("plant-", i), Reason: "sold",
					Detail: "uid " + fmt.Sprint(i), Environment: "prod", Workspace: "shop",
				}
				f.clock.Add(time.Second)
				require.NoError(t, []*fixture{f, other}[i%2].access().Audit(t.Context(), e))
				want = append(want, e)
			}
			var got []store.AuditEntry
			var previous digest.Digest
			after := int64(0)
			for {
				page, err := f.access().AuditLog(t.Context(), after, 3)
				require.NoError(t, err)
				if len(page) == 0 {
					break
				}
				require.LessOrEqual(t, len(page), 3)
				for _, e := range page {
					require.Equal(t, after+1, e.Position)
					chained, err := e.Chained(previous)
					require.NoError(t, err)
					require.Equal(t, chained, e.Digest)
					after, previous, e.Position, e.Digest = e.Position, e.Digest, 0, ""
					got = append(got, e)
				}
			}
			require.Equal(t, want, got)
			position, head, err := other.access().AuditHead(t.Context())
			require.NoError(t, err)
			require.Equal(t, after, position)
			require.Equal(t, previous, head)
		}},
		{"a database belongs to the hub of one key", func(t *testing.T, f *fixture) {
			pinned, err := f.access().PinnedKey(t.Context())
			require.NoError(t, err)
			require.Empty(t, pinned)
			var started sync.WaitGroup
			for range 4 { // the first starts of several
				other := f.again()
				started.Go(func() {
					if err := other.access().PinKey(t.Context(), "mine"); err != nil {
						t.Error(err)
					}
				})
			}
			started.Wait()
			require.NoError(t, f.access().PinKey(t.Context(), "mine"))
			require.ErrorIs(t, f.access().PinKey(t.Context(), "other"), store.ErrOtherKey)
			require.ErrorIs(t, f.again().access().PinKey(t.Context(), "other"), store.ErrOtherKey)
			pinned, err = f.access().PinnedKey(t.Context())
			require.NoError(t, err)
			require.Equal(t, "mine", pinned)
		}},
	}
}
