package manage_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// user sends requests to a hub with an access token.
type user struct {
	*testing.T
	hub   *hub.Hub
	token string
	id    string
}

func login(t *testing.T, h *hub.Hub, name string, role access.Role, scope store.AccessScope) user {
	t.Helper()
	secret, kept, err := h.Access().Create(t.Context(), access.Request{Name: name, Role: role, AccessScope: scope})
	require.NoError(t, err)
	return user{t, h, secret.Reveal(), kept.ID}
}

// do sends a request, decodes the answer into into unless that is nil, and returns "status", or "status code".
func (u user) do(method, path string, body, into any) string {
	u.Helper()
	var sent bytes.Buffer
	switch b := body.(type) {
	case nil:
	case string:
		sent.WriteString(b)
	default:
		require.NoError(u, json.NewEncoder(&sent).Encode(b))
	}
	r := httptest.NewRequest(method, path, &sent)
	r.Header.Set("Authorization", "Bearer "+u.token)
	w := httptest.NewRecorder()
	u.hub.Handler().ServeHTTP(w, r)
	if w.Code != 200 {
		var e hubapi.Error
		require.NoError(u, json.Unmarshal(w.Body.Bytes(), &e), w.Body)
		if into, ok := into.(*string); ok {
			*into = e.Message
		}
		return fmt.Sprintf("%d %s", w.Code, e.Code)
	}
	if into != nil {
		require.NoError(u, json.Unmarshal(w.Body.Bytes(), into), w.Body)
	}
	return "200"
}

// cluster is the body that registers a cluster of an environment and region. Its key depends on its name.
func cluster(t *testing.T, name, environment, region string) store.NewCluster {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	pem, err := bundle.MarshalPublicKey(ed25519.NewKeyFromSeed(seed).Public())
	require.NoError(t, err)
	labels := map[string]string{}
	if region != "" {
		labels["region"] = region
	}
	return store.NewCluster{
		Identity: store.Identity{UID: "uid-" + name, Name: name, Type: "drone", Environment: environment, Labels: labels},
		Key:      string(pem),
	}
}

func TestClustersAreRegisteredAndRetired(t *testing.T) {
	h := open(t)
	op := login(t, h, "op", access.Operator, store.AccessScope{})
	var added store.AddedCluster
	c := cluster(t, "plant-7", "dev", "eu")
	c.ExpectedSeconds = 7200
	require.Equal(t, "200", op.do("POST", "/v1/clusters", c, &added))
	require.True(t, added.Changed)
	require.Equal(t, int64(7200), added.Cluster.ExpectedSeconds)
	require.Equal(t, map[string]string{"region": "eu"}, added.Cluster.Labels)
	require.Equal(t, "200", op.do("POST", "/v1/clusters", c, &added))
	require.False(t, added.Changed)
	c.Environment = "prod"
	require.Equal(t, "403 AlreadyRegistered", op.do("POST", "/v1/clusters", c, nil))
	c.Replace = true
	require.Equal(t, "200", op.do("POST", "/v1/clusters", c, nil))
	var gone store.Registration
	require.Equal(t, "200", op.do("POST", "/v1/clusters/plant-7/unshare", nil, nil))
	require.Equal(t, "200", op.do("POST", "/v1/clusters/plant-7/retire", `{"reason":"sold"}`, &gone))
	require.Equal(t, "uid-plant-7", gone.UID)
	require.Equal(t, "200", op.do("POST", "/v1/clusters/uid-plant-7/retire", nil, &gone))
	require.Equal(t, "sold", gone.RetiredReason)
	c = cluster(t, "other", "dev", "")
	require.Equal(t, "200", op.do("POST", "/v1/clusters", c, nil))
	require.Equal(t, "200", op.do("DELETE", "/v1/clusters/other", nil, nil))
	require.Equal(t, "404 NotFound", op.do("DELETE", "/v1/clusters/other", nil, nil))

	admin := login(t, h, "root", access.Admin, store.AccessScope{})
	var log store.AuditList
	require.Equal(t, "200", admin.do("GET", "/v1/audit", nil, &log))
	var lines []string
	slices.Reverse(log.Entries)
	for _, e := range log.Entries[1:] {
		lines = append(lines, strings.TrimSpace(e.Actor+": "+e.Action+" "+e.Object+" "+e.Environment+" "+e.Reason))
	}
	actor := "op (" + op.id + "): "
	require.Equal(t, []string{
		actor + "sign in 192.0.2.1",
		actor + "register cluster plant-7 (uid-plant-7) dev",
		actor + "replace cluster plant-7 (uid-plant-7) prod",
		actor + "retire cluster plant-7 (uid-plant-7) prod sold",
		actor + "register cluster other (uid-other) dev",
		actor + "remove cluster other (uid-other) dev",
		"local: create access token root (" + admin.id + ")",
		"root (" + admin.id + "): sign in 192.0.2.1",
	}, lines)
	log = store.AuditList{}
	require.Equal(t, "200", admin.do("GET", "/v1/audit?actor=OP&action=cluster&object=plant-7&limit=1", nil, &log))
	require.Len(t, log.Entries, 1)
	require.Equal(t, "retire cluster", log.Entries[0].Action)
	next := log.Next
	log = store.AuditList{}
	require.Equal(t, "200", admin.do("GET", fmt.Sprintf("/v1/audit?actor=op&action=cluster&object=plant-7&before=%d", next), nil, &log))
	require.Len(t, log.Entries, 2)
	require.Equal(t, "replace cluster", log.Entries[0].Action)
	require.Zero(t, log.Next)
	for _, wrong := range []string{"before=x", "limit=-1", "since=yesterday", "after=1", "actor=a&actor=b"} {
		require.Equal(t, "400 BadRequest", admin.do("GET", "/v1/audit?"+wrong, nil, nil), wrong)
	}
}

// What is outside an operator's scope is answered as what does not exist, and cannot be taken over.
func TestAnOperatorActsWithinItsScope(t *testing.T) {
	h := open(t)
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	for _, c := range []store.NewCluster{cluster(t, "mine", "dev", "eu"), cluster(t, "far", "dev", "us"), cluster(t, "prod", "prod", "eu"), cluster(t, "gone", "prod", "eu")} {
		require.Equal(t, "200", root.do("POST", "/v1/clusters", c, nil))
	}
	require.Equal(t, "200", root.do("POST", "/v1/clusters/gone/retire", nil, nil))
	op := login(t, h, "op", access.Operator, store.AccessScope{Environments: []string{"dev"}, Selector: "region=eu"})

	for _, name := range []string{"far", "prod", "gone", "uid-far", "uid-prod", "uid-gone", "nobody"} {
		for _, request := range []string{"DELETE /v1/clusters/%s", "POST /v1/clusters/%s/retire", "POST /v1/clusters/%s/unshare"} {
			method, path, _ := strings.Cut(fmt.Sprintf(request, name), " ")
			var said string
			require.Equal(t, "404 NotFound", op.do(method, path, nil, &said), path)
			require.Equal(t, fmt.Sprintf("cluster %q: not registered", name), said)
		}
	}

	// Neither by registering in another part of the fleet, nor by taking over what is there.
	require.Equal(t, "400 BadRequest", op.do("POST", "/v1/clusters", cluster(t, "new", "prod", "eu"), nil))
	require.Equal(t, "400 BadRequest", op.do("POST", "/v1/clusters", cluster(t, "new", "dev", ""), nil))
	steal := func(uid, name string) (said string) {
		c := cluster(t, "new", "dev", "eu")
		c.UID, c.Name, c.Replace = uid, name, true
		require.Equal(t, "403 AlreadyRegistered", op.do("POST", "/v1/clusters", c, &said))
		return said
	}
	told := map[string]bool{}
	for _, uid := range []string{"uid-far", "uid-prod", "uid-gone"} {
		told[steal(uid, "new")] = true
	}
	for _, name := range []string{"far", "prod"} {
		told[steal("uid-new", name)] = true
	}
	require.Len(t, told, 1, "nothing is told of what is in the way: %v", told)

	// A cluster in the scope whose name is the uid of another is no way to that.
	trap := cluster(t, "trap", "dev", "eu")
	trap.Name = "uid-prod"
	require.Equal(t, "200", op.do("POST", "/v1/clusters", trap, nil))
	take := cluster(t, "new", "dev", "eu")
	take.UID, take.Replace = "uid-prod", true
	require.Equal(t, "403 AlreadyRegistered", op.do("POST", "/v1/clusters", take, nil))
	var gone store.Registration
	require.Equal(t, "200", op.do("DELETE", "/v1/clusters/uid-prod", nil, &gone))
	require.Equal(t, "uid-trap", gone.UID)

	require.Equal(t, "200", op.do("POST", "/v1/clusters/mine/retire", nil, nil))
	all, err := h.Registrations(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2, "far and prod stay")
}

func TestEnrollmentTokensOfAScope(t *testing.T) {
	h := open(t)
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	op := login(t, h, "op", access.Operator, store.AccessScope{Environments: []string{"dev"}, Selector: "region=eu"})
	scope := func(environment, region string) store.TokenScope {
		s := store.TokenScope{Type: "drone", Environment: environment, ExpiresAt: time.Now().Add(time.Hour)}
		if region != "" {
			s.Labels = map[string]string{"region": region}
		}
		return s
	}
	var made, foreign store.CreatedToken
	require.Equal(t, "200", root.do("POST", "/v1/tokens", scope("prod", "eu"), &foreign))
	require.Equal(t, "200", root.do("POST", "/v1/tokens", scope("", "eu"), nil))
	require.Equal(t, "400 BadRequest", op.do("POST", "/v1/tokens", scope("prod", "eu"), nil))
	require.Equal(t, "400 BadRequest", op.do("POST", "/v1/tokens", scope("", "eu"), nil), "it would register clusters of any environment")
	require.Equal(t, "400 BadRequest", op.do("POST", "/v1/tokens", scope("dev", ""), nil), "the agent would choose its labels")
	require.Equal(t, "200", op.do("POST", "/v1/tokens", scope("dev", "eu"), &made))
	parsed, err := bundle.ParseEnrollToken(made.Token)
	require.NoError(t, err)
	require.Equal(t, made.ID, parsed.ID())
	var list store.TokenList
	require.Equal(t, "200", op.do("GET", "/v1/tokens", nil, &list))
	require.Len(t, list.Tokens, 1)
	require.Equal(t, 1, list.Tokens[0].Uses)
	require.Equal(t, "404 NotFound", op.do("DELETE", "/v1/tokens/"+foreign.ID, nil, nil))
	require.Equal(t, "404 NotFound", op.do("DELETE", "/v1/tokens/nobody", nil, nil))
	require.Equal(t, "200", op.do("DELETE", "/v1/tokens/"+made.Token, nil, nil))
	require.Equal(t, "200", root.do("GET", "/v1/tokens", nil, &list))
	require.Len(t, list.Tokens, 3)
}

func TestAccessTokensOverHTTP(t *testing.T) {
	h := open(t)
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	var made store.CreatedAccess
	wanted := map[string]any{"name": "ann", "role": "viewer", "environments": []string{"dev"}, "expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
	require.Equal(t, "200", root.do("POST", "/v1/access", wanted, &made))
	require.Equal(t, "403 AlreadyRegistered", root.do("POST", "/v1/access", wanted, nil))
	ann := user{t, h, made.Token, made.Access.ID}
	var me store.WhoAmI
	require.Equal(t, "200", ann.do("GET", "/v1/whoami", nil, &me))
	require.Equal(t, "ann", me.Name)
	require.Equal(t, "viewer", me.Role)
	require.Equal(t, []string{"dev"}, me.Environments)
	require.Equal(t, []string{"login", "read", "read-whole"}, me.May)
	require.Zero(t, me.CreatedAt)
	require.Equal(t, made.Access.ExpiresAt.UnixMilli(), me.ExpiresAt.UnixMilli())
	require.Equal(t, "403 Forbidden", ann.do("POST", "/v1/access", wanted, nil))
	require.Equal(t, "403 Forbidden", ann.do("GET", "/v1/audit", nil, nil))
	var list store.AccessTokenList
	require.Equal(t, "200", root.do("GET", "/v1/access", nil, &list))
	require.Len(t, list.Access, 2)
	data, err := json.Marshal(list)
	require.NoError(t, err)
	require.NotContains(t, strings.ToLower(string(data)), "hash")
	require.Equal(t, "404 NotFound", root.do("DELETE", "/v1/access/nobody", nil, nil))
	require.Equal(t, "200", root.do("DELETE", "/v1/access/ann", nil, nil))
	require.Equal(t, "401 Unauthenticated", ann.do("GET", "/v1/whoami", nil, nil))
}

func TestBadBodies(t *testing.T) {
	h := open(t)
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	for _, path := range []string{"/v1/clusters", "/v1/tokens", "/v1/access"} {
		for body, want := range map[string]string{
			"":              "400 BadRequest",
			"{":             "400 BadRequest",
			"[]":            "400 BadRequest",
			`{"role":7}`:    "400 BadRequest",
			`{"unknown":1}`: "400 BadRequest",
			`{}`:            "400 BadRequest",
			`{}{}`:          "400 BadRequest",
			`{"name":"` + strings.Repeat("a", 1<<17) + `"}`: "413 TooLarge",
		} {
			require.Equal(t, want, root.do("POST", path, body, nil), "%s %.40s", path, body)
		}
	}
	c := cluster(t, "x", "dev", "")
	c.Key = "-----BEGIN PRIVATE KEY-----"
	require.Equal(t, "400 BadRequest", root.do("POST", "/v1/clusters", c, nil))
	c = cluster(t, "x", "dev", "")
	c.ExpectedSeconds = -1
	require.Equal(t, "400 BadRequest", root.do("POST", "/v1/clusters", c, nil))
	c.ExpectedSeconds = 1 << 62
	require.Equal(t, "400 BadRequest", root.do("POST", "/v1/clusters", c, nil))
	require.Equal(t, "400 BadRequest", root.do("POST", "/v1/clusters/x/retire", `{"why":1}`, nil))
	var said string
	require.Equal(t, "404 NotFound", root.do("POST", "/v1/clusters/%1b%5b31m/retire", nil, &said))
	require.NotContains(t, said, "\x1b")
}

func TestAHubDecidesForTheNameOfTheToken(t *testing.T) {
	h := open(t)
	anna := login(t, h, "anna", access.Approver, store.AccessScope{Environments: []string{"prod"}})
	viewer := login(t, h, "screen", access.Viewer, store.AccessScope{})
	approval := bundle.Decision{
		Action: bundle.Approve, Platform: "coffee", Environment: "prod", From: "stage", By: "ben", IssuedAt: time.Unix(0, 0).UTC(),
		Contents: map[string]digest.Digest{"drone": digest.FromString("drone")},
	}
	var signed, again store.StoredDecision
	require.Equal(t, "200", anna.do("POST", "/v1/decisions", approval, &signed))
	got, _, err := bundle.OpenDecision(signed.Envelope, h.PublicKey())
	require.NoError(t, err)
	require.Equal(t, "anna", got.By, "not whom the request names")
	require.True(t, signed.Own)

	reject := approval
	reject.Action, reject.Reason = bundle.Reject, "the maps are wrong"
	require.Equal(t, "200", anna.do("POST", "/v1/decisions", reject, &again))
	require.True(t, again.IssuedAt.After(signed.IssuedAt), "also in the same second")
	var list store.DecisionList
	require.Equal(t, "200", viewer.do("GET", "/v1/decisions?environment=prod&platform=coffee", nil, &list))
	require.Equal(t, []store.StoredDecision{again, signed}, list.Decisions)
	require.Equal(t, "200", viewer.do("GET", "/v1/decisions?environment=prod&platform=tea", nil, &list))
	require.Empty(t, list.Decisions)

	approval.Environment = "dev"
	require.Equal(t, "403 Forbidden", anna.do("POST", "/v1/decisions", approval, nil), "outside the scope")
	require.Equal(t, "403 Forbidden", viewer.do("POST", "/v1/decisions", approval, nil))
	reject.Reason = ""
	require.Equal(t, "400 BadRequest", anna.do("POST", "/v1/decisions", reject, nil))
	require.Equal(t, "400 BadRequest", anna.do("POST", "/v1/decisions", nil, nil))
	require.Equal(t, "400 BadRequest", viewer.do("GET", "/v1/decisions", nil, nil))
	some := login(t, h, "some", access.Approver, store.AccessScope{Workspaces: []string{"shop"}})
	require.Equal(t, "403 Forbidden", some.do("POST", "/v1/decisions", reject, nil), "a promotion is of all workspaces")
	require.Equal(t, "403 Forbidden", some.do("GET", "/v1/decisions?environment=prod", nil, nil), "and so is what was decided")
	part := login(t, h, "part", access.Viewer, store.AccessScope{Environments: []string{"prod"}, Selector: "region=eu"})
	require.Equal(t, "403 Forbidden", part.do("GET", "/v1/decisions?environment=prod", nil, nil))

	var audit store.AuditList
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	require.Equal(t, "200", root.do("GET", "/v1/audit", nil, &audit))
	var said []string
	for _, e := range audit.Entries {
		if strings.HasSuffix(e.Action, "promotion") {
			said = append(said, strings.Join([]string{e.Action, e.Object, e.Environment, e.Reason}, " "))
		}
	}
	require.Equal(t, []string{"reject promotion coffee/prod prod the maps are wrong", "approve promotion coffee/prod prod "}, said)
}
