package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

func scopeOf(t *testing.T, s store.AccessScope) Scope {
	t.Helper()
	parsed, err := ParseScope(s)
	require.NoError(t, err)
	return parsed
}

func TestRolesAndPermissions(t *testing.T) {
	may := map[Role][]Permission{
		Viewer:    {Open, Login, Read, ReadWhole},
		Operator:  {Open, Login, Read, ReadWhole, Operate},
		Publisher: {Open, Login, Read, ReadWhole, Publish},
		Approver:  {Open, Login, Read, ReadWhole, Approve},
		Auditor:   {Open, Login, Read, ReadWhole, Audit},
		Metrics:   {Open, Login, Measure},
		Admin:     Permissions(),
		"":        {Open},
		"root":    {Open},
	}
	for role, want := range may {
		for _, p := range append(Permissions(), "unknown") {
			require.Equal(t, slices.Contains(want, p), Identity{Role: role}.May(p), "%s %s", role, p)
		}
	}
	workspaces := Identity{Role: Viewer, Scope: scopeOf(t, store.AccessScope{Workspaces: []string{"shop"}})}
	require.True(t, workspaces.May(Read))
	require.False(t, workspaces.May(ReadWhole))
	narrow := Identity{Role: Admin, Scope: scopeOf(t, store.AccessScope{Environments: []string{"dev"}})}
	require.False(t, narrow.May(Administer), "whoever administers could give others what is out of its own scope")
}

func TestScopeOfClusters(t *testing.T) {
	for _, tt := range []struct {
		scope       store.AccessScope
		environment string
		labels      map[string]string
		want        bool
	}{
		{store.AccessScope{}, "prod", nil, true},
		{store.AccessScope{Environments: []string{"dev", "prod"}}, "prod", nil, true},
		{store.AccessScope{Environments: []string{"dev"}}, "prod", nil, false},
		{store.AccessScope{Environments: []string{"dev"}}, "", nil, false},
		{store.AccessScope{Environments: []string{"dev"}}, "DEV", nil, false},
		{store.AccessScope{Selector: "region=east"}, "prod", map[string]string{"region": "east"}, true},
		{store.AccessScope{Selector: "region=east"}, "prod", map[string]string{"region": "west"}, false},
		{store.AccessScope{Selector: "region=east"}, "prod", nil, false},
		{store.AccessScope{Selector: "gpu!=true"}, "prod", nil, true},
		{store.AccessScope{Selector: "region in (east, west),!gpu"}, "prod", map[string]string{"region": "west"}, true},
		{store.AccessScope{Environments: []string{"dev"}, Selector: "region=east"}, "dev", map[string]string{"region": "east"}, true},
		{store.AccessScope{Environments: []string{"dev"}, Selector: "region=east"}, "prod", map[string]string{"region": "east"}, false},
	} {
		require.Equal(t, tt.want, scopeOf(t, tt.scope).HasCluster(tt.environment, tt.labels), "%+v", tt)
	}
	require.False(t, Scope{AccessScope: store.AccessScope{Selector: "region=east"}}.HasCluster("dev", map[string]string{"region": "east"}),
		"a selector that nobody has parsed chooses nothing")
}

func TestScopesHaveBounds(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("e", i)
	}
	for _, s := range []store.AccessScope{
		{Environments: many},
		{Workspaces: many},
		{Environments: []string{""}},
		{Environments: []string{"a\nb"}},
		{Environments: []string{strings.Repeat("a", 513)}},
		{Selector: "region in ("},
		{Selector: strings.Repeat("a", 1025)},
		{Selector: strings.Repeat("a,", 33) + "a"},
	} {
		_, err := ParseScope(s)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.Less(t, len(err.Error()), 5000)
	}
}

func TestTokensRoundTrip(t *testing.T) {
	a, b := NewToken(), NewToken()
	require.NotEqual(t, a.ID(), b.ID())
	require.NotEqual(t, a.Hash(), b.Hash())
	got, err := ParseToken(" " + a.Reveal() + "\n")
	require.NoError(t, err)
	require.Equal(t, a, got)
	_, secret, _ := strings.Cut(strings.TrimPrefix(a.Reveal(), "wha_"), "_")
	for _, format := range []string{"%s", "%v", "%+v", "%#v", "%d", "%x", "%q"} {
		require.NotContains(t, fmt.Sprintf(format, a), secret)
		require.Contains(t, fmt.Sprintf(format, &a), a.ID())
	}
	for _, s := range []string{
		"", "wha_", "wht_" + a.Reveal()[4:], a.Reveal() + "x", a.Reveal()[:len(a.Reveal())-1], strings.ToUpper(a.Reveal()),
		"wha_0123456789ab_" + strings.Repeat("+", 43), "wha_0123456789ab_" + strings.Repeat("A", 42) + "B",
	} {
		_, err := ParseToken(s)
		require.ErrorIs(t, err, ErrToken, "%q", s)
		require.NotContains(t, err.Error(), secret)
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("wha_0123456789ab_" + strings.Repeat("A", 43))
	f.Add("Bearer wha_")
	f.Fuzz(func(t *testing.T, s string) {
		if token, err := ParseToken(s); err == nil {
			require.Equal(t, strings.TrimSpace(s), token.Reveal())
		}
	})
}
