package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

// scope is that of a token for one drone, good for a day.
func scope() store.TokenScope {
	return store.TokenScope{Type: "drone", Uses: 1, ExpiresAt: Epoch.Add(24 * time.Hour)}
}

func (f *fixture) token(id string, s store.TokenScope) {
	f.t.Helper()
	require.NoError(f.t, f.AddToken(f.t.Context(), id, keyOf(1000), s))
}

// granted enrolls a cluster with a fixed decision, and returns the facts for it.
func (f *fixture) granted(c store.Cluster, token string, g store.Grant) (known store.Standing) {
	f.t.Helper()
	require.NoError(f.t, f.Enroll(f.t.Context(), c, token, func(s store.Standing) (store.Grant, error) {
		known = s
		return g, nil
	}))
	return known
}

// admit is the smallest decision that a hub could make: a token with uses left registers the cluster.
func admit(c store.Cluster) func(store.Standing) (store.Grant, error) {
	return func(s store.Standing) (store.Grant, error) {
		switch {
		case s.Used && s.InForce:
			return store.Grant{}, nil
		case s.Token == nil || s.Token.State != store.TokenGood:
			return store.Grant{}, errors.New("no")
		}
		return store.Grant{Use: true, Register: &c}, nil
	}
}

func enrollmentTests() []test {
	return []test{
		{"tokens are kept without a secret, newest first", tokensAreKeptWithoutASecretNewestFirst},
		{"a token that is not acceptable is not kept", aTokenThatIsNotAcceptableIsNotKept},
		{"the state of a token", theStateOfAToken},
		{"a token expires", aTokenExpires},
		{"what decides an enrollment is known", whatDecidesAnEnrollmentIsKnown},
		{"an enrollment registers what was granted", anEnrollmentRegistersWhatWasGranted},
		{"an enrollment that is refused changes nothing", anEnrollmentThatIsRefusedChangesNothing},
		{"many agents at once get no more uses than there are", manyAgentsAtOnceGetNoMoreUsesThanThereAre},
		{"an ephemeral cluster that is silent is retired once", anEphemeralClusterThatIsSilentIsRetiredOnce},
		{"a person decides about an ephemeral cluster", aPersonDecidesAboutAnEphemeralCluster},
		{"a rotated key speaks for what came before", aRotatedKeySpeaksForWhatCameBefore},
		{"a rotation that is refused changes nothing", aRotationThatIsRefusedChangesNothing},
	}
}

func tokensAreKeptWithoutASecretNewestFirst(t *testing.T, f *fixture) {
	first := scope()
	first.Labels, first.Environment, first.Ring, first.Uses = map[string]string{"site": "north"}, "dev", "canary", 3
	f.token("one", first)
	f.clock.Add(time.Minute)
	once := scope()
	once.Uses = 0
	f.token("two", once)
	all, err := f.Tokens(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Token{
		{ID: "two", TokenScope: scope(), Left: 1, State: store.TokenGood, CreatedAt: Epoch.Add(time.Minute)},
		{ID: "one", TokenScope: first, Left: 3, State: store.TokenGood, CreatedAt: Epoch},
	}, all)
}

func aTokenThatIsNotAcceptableIsNotKept(t *testing.T, f *fixture) {
	for name, change := range map[string]func(*store.TokenScope){
		"no type":       func(s *store.TokenScope) { s.Type = "" },
		"it has ended":  func(s *store.TokenScope) { s.ExpiresAt = Epoch },
		"for ever":      func(s *store.TokenScope) { s.ExpiresAt = Epoch.AddDate(2, 0, 0) },
		"too many uses": func(s *store.TokenScope) { s.Uses = store.MaxTokenUses + 1 },
	} {
		s := scope()
		change(&s)
		require.ErrorIs(t, f.AddToken(t.Context(), "x", keyOf(1000), s), store.ErrInvalid, name)
	}
	all, err := f.Tokens(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

func theStateOfAToken(t *testing.T, f *fixture) {
	state := func() store.TokenState {
		all, err := f.Tokens(t.Context())
		require.NoError(t, err)
		return all[0].State
	}
	s := scope()
	s.Uses = 2
	f.token("one", s)
	a := cluster("plant-7", 7)
	f.granted(a, "one", store.Grant{Use: true, Register: &a})
	require.Equal(t, store.TokenGood, state())
	b := cluster("plant-8", 8)
	f.granted(b, "one", store.Grant{Use: true, Register: &b})
	require.Equal(t, store.TokenUsedUp, state())
	f.clock.Add(24 * time.Hour)
	require.Equal(t, store.TokenUsedUp, state())
	require.NoError(t, f.RevokeToken(t.Context(), "one"))
	require.NoError(t, f.RevokeToken(t.Context(), "one"))
	require.Equal(t, store.TokenRevoked, state())
	require.ErrorIs(t, f.RevokeToken(t.Context(), "none"), store.ErrUnknownToken)
}

func aTokenExpires(t *testing.T, f *fixture) {
	f.token("one", scope())
	f.clock.Add(24 * time.Hour)
	all, err := f.Tokens(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.TokenExpired, all[0].State)
	require.Equal(t, 1, all[0].Left)
}

func whatDecidesAnEnrollmentIsKnown(t *testing.T, f *fixture) {
	c := cluster("plant-7", 7)
	require.Equal(t, store.Standing{}, f.granted(c, "none", store.Grant{}), "nothing of a token that nobody has")
	f.token("one", scope())
	known := f.granted(c, "one", store.Grant{})
	require.Equal(t, "one", known.Token.ID)
	require.Equal(t, keyOf(1000), known.TokenKey)
	known.Token, known.TokenKey = nil, nil
	require.Equal(t, store.Standing{}, known, "a new agent")

	f.granted(c, "one", store.Grant{Use: true, Register: &c})
	known = f.granted(c, "one", store.Grant{})
	require.True(t, known.Used && known.InForce)
	require.True(t, known.Registered.HasKey(kidOf(t, c.Key)))
	require.NoError(t, known.Taken)
	require.Zero(t, known.Token.Left)

	sameName, sameKey := cluster("plant-7", 8), cluster("plant-8", 7)
	sameName.UID = "uid-8"
	require.ErrorIs(t, f.granted(sameName, "one", store.Grant{}).Taken, store.ErrExists)
	require.ErrorIs(t, f.granted(sameKey, "one", store.Grant{}).Taken, store.ErrExists)

	_, err := f.RetireCluster(t.Context(), c.UID, "scrapped")
	require.NoError(t, err)
	for _, who := range []store.Cluster{c, sameKey} {
		known = f.granted(who, "one", store.Grant{})
		require.Equal(t, "scrapped", known.Retired.Reason, "by uid, and by key")
		require.Equal(t, c.UID, known.Retired.UID)
		require.False(t, known.InForce)
	}
	require.True(t, f.granted(c, "one", store.Grant{}).Used)
}

func anEnrollmentRegistersWhatWasGranted(t *testing.T, f *fixture) {
	f.token("one", scope())
	c := cluster("plant-7", 7)
	labelled := c
	labelled.Labels = map[string]string{"site": "north"}
	f.granted(c, "one", store.Grant{Use: true, Register: &labelled})
	r, err := f.Registered(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, labelled.Labels, r.Labels)
	require.Equal(t, store.DefaultExpectedInterval, r.ExpectedInterval)
}

func anEnrollmentThatIsRefusedChangesNothing(t *testing.T, f *fixture) {
	f.token("one", scope())
	c := cluster("plant-7", 7)
	refusal := errors.New("refused")
	err := f.Enroll(t.Context(), c, "one", func(store.Standing) (store.Grant, error) {
		return store.Grant{Use: true, Register: &c}, refusal
	})
	require.ErrorIs(t, err, refusal)
	_, err = f.Registered(t.Context(), c.UID)
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	require.False(t, f.granted(c, "one", store.Grant{}).Used)
	c.Name = ""
	require.ErrorIs(t, f.Enroll(t.Context(), c, "one", admit(c)), store.ErrInvalid)
}

func manyAgentsAtOnceGetNoMoreUsesThanThereAre(t *testing.T, f *fixture) {
	s := scope()
	s.Uses = 3
	f.token("one", s)
	other := f.again()
	var all sync.WaitGroup
	for i := range uint64(6) {
		c := cluster(fmt.Sprint("plant-", i), 100+i)
		for _, at := range []store.Store{f.Store, other.Store, f.Store} {
			all.Go(func() { _ = at.Enroll(t.Context(), c, "one", admit(c)) })
		}
	}
	all.Wait()
	registered, err := f.Registrations(t.Context())
	require.NoError(t, err)
	require.Len(t, registered, 3)
}

func aRotatedKeySpeaksForWhatCameBefore(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	next := keyOf(2)
	r := store.Rotation{UID: c.UID, Previous: kidOf(t, c.Key), Key: next, Until: order(1, 5)}
	require.NoError(t, f.Rotate(t.Context(), r, func(k store.Keys, taken error) (bool, error) {
		require.NoError(t, taken)
		require.Len(t, k.Current, 1)
		return true, nil
	}))
	keys, err := f.Keys(t.Context(), c.UID)
	require.NoError(t, err)
	require.Len(t, keys.Current, 1)
	require.Equal(t, next, keys.Current[kidOf(t, next)])
	require.Equal(t, map[string]store.PreviousKey{r.Previous: {Key: c.Key, Until: order(1, 5)}}, keys.Previous)
	registered, err := f.Registered(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, []string{kidOf(t, next)}, registered.KeyIDs)

	c.Key = keyOf(3)
	_, err = f.ReplaceCluster(t.Context(), c)
	require.NoError(t, err)
	keys, err = f.Keys(t.Context(), c.UID)
	require.NoError(t, err)
	require.Empty(t, keys.Previous, "a person's replacement ends what previous keys speak for")
}

func aRotationThatIsRefusedChangesNothing(t *testing.T, f *fixture) {
	all := f.added("plant-7", "plant-8")
	r := store.Rotation{UID: all[0].UID, Previous: kidOf(t, all[0].Key), Key: all[1].Key, Until: order(1, 5)}
	before, err := f.Keys(t.Context(), r.UID)
	require.NoError(t, err)
	refusal := errors.New("refused")
	require.ErrorIs(t, f.Rotate(t.Context(), r, func(_ store.Keys, taken error) (bool, error) {
		require.ErrorIs(t, taken, store.ErrExists, "the key of another cluster")
		return true, refusal
	}), refusal)
	require.NoError(t, f.Rotate(t.Context(), r, func(store.Keys, error) (bool, error) { return false, nil }))
	after, err := f.Keys(t.Context(), r.UID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	r.UID = "nobody"
	never := func(store.Keys, error) (bool, error) { return false, errors.New("not to be asked") }
	require.ErrorIs(t, f.Rotate(t.Context(), r, never), store.ErrUnknownCluster)
	_, err = f.RetireCluster(t.Context(), "plant-7", "")
	require.NoError(t, err)
	r.UID = all[0].UID
	require.ErrorIs(t, f.Rotate(t.Context(), r, never), store.ErrRetired)
}

// ephemeral makes a token whose clusters may be silent for two hours, and registers clusters with it.
func (f *fixture) ephemeral(token string, all ...store.Cluster) {
	f.t.Helper()
	s := scope()
	s.Uses, s.EphemeralSeconds = 10, 2*60*60
	f.token(token, s)
	for _, c := range all {
		f.granted(c, token, store.Grant{Use: true, Register: &c})
	}
}

// silent retires the silent clusters, and returns their names.
func (f *fixture) silent() []string {
	f.t.Helper()
	gone, err := f.RetireSilent(f.t.Context())
	require.NoError(f.t, err)
	return names(gone)
}

func anEphemeralClusterThatIsSilentIsRetiredOnce(t *testing.T, f *fixture) {
	never, heard, stays := cluster("never", 1), cluster("heard", 2), cluster("stays", 3)
	f.ephemeral("e1", never, heard)
	all, err := f.Tokens(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(7200), all[0].EphemeralSeconds)
	f.token("t1", scope())
	f.granted(stays, "t1", store.Grant{Use: true, Register: &stays})
	f.clock.Add(time.Hour)
	f.ingested(heard, reportOf(heard, store.Order{Incarnation: 1, Seq: 1}))
	require.Empty(t, f.silent())
	f.clock.Add(time.Hour + time.Second)
	require.Equal(t, []string{"never"}, f.silent())
	require.Empty(t, f.silent())
	f.clock.Add(time.Hour)
	for i, once := range inParallel(4, func() []string { return f.silent() }) {
		if len(once) > 0 {
			require.Equal(t, []string{"heard"}, once, i)
		}
	}
	require.Equal(t, []string{"stays"}, names(f.registrations()))
	r, err := f.Registration(t.Context(), "heard")
	require.NoError(t, err)
	require.Equal(t, "silent for more than 2h, and registered with an ephemeral token", r.RetiredReason)
	log, err := f.access().AuditLog(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, log, 2, "each once")
	require.Equal(t, "hub retire cluster never ("+never.UID+") "+never.Environment, log[0].Actor+" "+log[0].Action+" "+log[0].Object+" "+log[0].Environment)
	require.Equal(t, r.RetiredReason, log[1].Reason)

	// With the same token it may come back, with its key or another; with another token it may not.
	for _, tt := range []struct {
		c     store.Cluster
		token string
		want  bool
	}{{heard, "e1", true}, {store.Cluster{Identity: heard.Identity, Key: keyOf(9)}, "e1", true}, {heard, "t1", false}, {store.Cluster{Identity: heard.Identity, Key: never.Key}, "e1", false}} {
		s := f.granted(tt.c, tt.token, store.Grant{})
		require.NotNil(t, s.Retired)
		require.Equal(t, tt.want, s.Returns)
	}
	f.granted(heard, "e1", store.Grant{Register: &heard})
	require.Equal(t, []string{"heard", "stays"}, names(f.registrations()))
	require.Empty(t, f.silent(), "its time begins again")
	f.clock.Add(2*time.Hour + time.Second)
	require.Equal(t, []string{"heard"}, f.silent())

	require.NoError(t, f.RevokeToken(t.Context(), "e1"))
	require.False(t, f.granted(heard, "e1", store.Grant{}).Returns)
}

func aPersonDecidesAboutAnEphemeralCluster(t *testing.T, f *fixture) {
	sold, kept, back := cluster("sold", 1), cluster("kept", 2), cluster("back", 3)
	f.ephemeral("e1", sold, kept, back)
	_, err := f.RetireCluster(t.Context(), "sold", "stolen")
	require.NoError(t, err)
	require.False(t, f.granted(sold, "e1", store.Grant{}).Returns)
	other := kept
	other.Ring = "canary"
	_, err = f.ReplaceCluster(t.Context(), other)
	require.NoError(t, err)
	f.clock.Add(3 * time.Hour)
	require.Equal(t, []string{"back"}, f.silent())
	_, err = f.AddCluster(t.Context(), back)
	require.NoError(t, err)
	f.clock.Add(3 * time.Hour)
	require.Empty(t, f.silent())
}

// inParallel returns what several calls at the same time return.
func inParallel[T any](n int, do func() T) []T {
	all := make([]T, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { all[i] = do() })
	}
	calls.Wait()
	return all
}

// registrations returns the registered clusters.
func (f *fixture) registrations() []store.Registration {
	f.t.Helper()
	all, err := f.Registrations(f.t.Context())
	require.NoError(f.t, err)
	return all
}
