package api_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// world is a hub with data that serves, and an access token of role admin.
type world struct {
	*testing.T
	dir    string
	hub    *hub.Hub
	clock  *storetest.Clock
	server *httptest.Server
	token  string
	// keys are those of the agents, by uid.
	keys map[string]ed25519.PrivateKey
}

// newWorld returns a hub with the clusters of storetest.Fleet, two reports of one of them, and two releases of their type.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{T: t, dir: dir, clock: storetest.NewClock(), keys: map[string]ed25519.PrivateKey{}}
	var err error
	w.hub, err = hub.Open(dir, hub.Options{Now: w.clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.hub.Close() })
	token, err := w.hub.FirstAccess(t.Context())
	require.NoError(t, err)
	w.token = token.Reveal()
	w.publish(dir)
	storetest.Fleet(w.clock, func(id store.Identity, items ...bundle.Item) {
		id.Labels = map[string]string{"region": "east", "site": id.Name}
		w.register(id)
		if len(items) > 0 {
			r := storetest.Snapshot(id, store.Order{Incarnation: 1, Seq: 1}, items...)
			r.Observed = &bundle.ReportRelease{Digest: storetest.Release(1).Digest, Sequence: 1, Number: 1, BaseCommit: storetest.Release(1).BaseCommit}
			w.report(id, r)
		}
	})
	good := storetest.Identity("a-good")
	newer := storetest.Item("drone", bundle.Drifted)
	newer.Version, newer.Content, newer.Reason, newer.Message, newer.ConfigDigest = "1.1.0", digest.FromString("newer"), "Changed", "by hand", digest.FromString("config")
	r := storetest.Snapshot(good, store.Order{Incarnation: 1, Seq: 2}, newer)
	r.OccurredAt = w.clock.Now()
	r.Observed = &bundle.ReportRelease{Digest: storetest.Release(2).Digest, Sequence: 2, Number: 2, BaseCommit: storetest.Release(2).BaseCommit, IssuedAt: storetest.Epoch}
	w.report(good, r)
	w.server = httptest.NewServer(w.hub.Handler())
	t.Cleanup(w.server.Close)
	return w
}

// publish stores releases and a record as the hub does that has verified them.
func (w *world) publish(dir string) {
	w.Helper()
	db, err := sqlite.Open(filepath.Join(dir, hub.DatabaseFile), sqlite.Options{Now: w.clock.Now})
	require.NoError(w, err)
	_, err = db.AddReleases(w.Context(), []store.PublishedRelease{storetest.Release(1), storetest.Release(2)})
	require.NoError(w, err)
	_, err = db.AddRecord(w.Context(), storetest.Record(2, storetest.Release(2).Digest))
	require.NoError(w, err)
	require.NoError(w, db.Close())
}

func (w *world) register(id store.Identity) {
	w.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(w, err)
	w.keys[id.UID] = private
	_, err = w.hub.AddCluster(w.Context(), store.Cluster{Identity: id, Key: public})
	require.NoError(w, err)
}

func (w *world) seal(uid string, r bundle.Report) []byte {
	w.Helper()
	body, err := json.Marshal(r)
	require.NoError(w, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, w.keys[uid])
	require.NoError(w, err)
	return envelope
}

func (w *world) report(id store.Identity, r bundle.Report) {
	w.Helper()
	result, err := w.hub.Import(w.Context(), [][]byte{w.seal(id.UID, r)}, store.ViaHTTP)
	require.NoError(w, err)
	require.Equal(w, 1, result.Accepted)
}

// ask sends a request and returns the status and the body of the answer.
func (w *world) ask(method, path string, body []byte, headers ...string) (int, []byte, http.Header) {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.server.URL+path, bytes.NewReader(body))
	require.NoError(w, err)
	request.Header.Set("Authorization", "Bearer "+w.token)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(w, err)
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") == fleet.EventStream { // it has no end
		first := make([]byte, 16<<10)
		n, err := answer.Body.Read(first)
		if err != io.EOF { // one that does not follow may have nothing to tell
			require.NoError(w, err)
		}
		return answer.StatusCode, first[:n], answer.Header
	}
	all, err := io.ReadAll(answer.Body)
	require.NoError(w, err)
	return answer.StatusCode, all, answer.Header
}

// documented is the document, with the schemas of its answers made strict: what they do not name is refused.
type documented struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name, In string
			Required bool
			Example  any
		} `json:"parameters"`
		RequestBody json.RawMessage `json:"requestBody"`
		Responses   map[string]struct {
			Content map[string]json.RawMessage `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	compiler *jsonschema.Compiler
}

const documentURL = "https://hub.example/openapi.json"

func readDocument(t *testing.T) *documented {
	t.Helper()
	d := &documented{compiler: jsonschema.NewCompiler()}
	require.NoError(t, json.Unmarshal(api.Document(), d))
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.Document()))
	require.NoError(t, err)
	for _, schema := range whole.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
		if s := schema.(map[string]any); s["properties"] != nil {
			s["additionalProperties"] = false
		}
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	require.NoError(t, d.compiler.AddResource(documentURL, whole))
	return d
}

// check requires that a value is as the schema at a place of the document says.
func (d *documented) check(t *testing.T, place string, body []byte) {
	t.Helper()
	schema, err := d.compiler.Compile(documentURL + "#" + place)
	require.NoError(t, err, place)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err, "%s", body)
	require.NoError(t, schema.Validate(value), "%s\n%s", place, body)
}

// placeOf returns the place of the schema of an answer.
func placeOf(method, path string) string {
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(path)
	return "/paths/" + url.PathEscape(escaped) + "/" + method + "/responses/200/content/application~1json/schema"
}

func TestEachRouteIsDocumentedAndEachDocumentedOneIsThere(t *testing.T) {
	d := readDocument(t)
	h, err := hub.Open(t.TempDir(), hub.Options{})
	require.NoError(t, err)
	defer h.Close()
	programs := regexp.MustCompile(`^[A-Z]+ (/v1/.*|/healthz|/readyz|/metrics|/openapi\.json)$`) // all others are for browsers
	var routes, found []string
	for _, r := range h.Routes() {
		if programs.MatchString(r.Pattern) {
			routes = append(routes, inDocument(r.Pattern))
		}
	}
	for path, methods := range d.Paths {
		for method := range methods {
			found = append(found, strings.ToUpper(method)+" "+path)
		}
	}
	require.ElementsMatch(t, routes, found)
}

// requests are what the routes that change something, or need more than a name, are asked with.
func (w *world) requests(t *testing.T) map[string][]byte {
	fresh := storetest.Identity("fresh")
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	pem, err := bundle.MarshalPublicKey(public)
	require.NoError(t, err)
	marshal := func(v any) []byte {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		return data
	}
	again := storetest.Snapshot(storetest.Identity("b-bad"), store.Order{Incarnation: 1, Seq: 9}, storetest.Item("drone", bundle.Failed))
	return map[string][]byte{
		"POST /v1/clusters":                   marshal(map[string]any{"uid": fresh.UID, "name": fresh.Name, "type": "drone", "environment": "dev", "key": string(pem)}),
		"POST /v1/clusters/{cluster}/retire":  marshal(map[string]any{"reason": "gone"}),
		"POST /v1/clusters/{cluster}/unshare": nil,
		"POST /v1/tokens":                     marshal(map[string]any{"type": "drone", "uses": 1, "expiresAt": w.clock.Now().Add(time.Hour)}),
		"POST /v1/decisions": marshal(map[string]any{
			"action": "reject", "platform": "default", "environment": "prod", "from": "dev", "reason": "the maps are wrong",
			"contents": map[string]any{"drone": storetest.Release(2).Digest}, "schema": 1, "issuedAt": w.clock.Now(),
		}),
		"POST /v1/content":                marshal([]fleet.AskedWorkload{{Key: ledger.Key{Workload: "drone"}, Since: w.clock.Now().Add(time.Minute)}}),
		"POST /v1/access":                 marshal(map[string]any{"name": "ci", "role": "viewer"}),
		inDocument(hubapi.ReportsPattern): marshal(map[string]any{"reports": []json.RawMessage{w.seal("uid-b-bad", again)}}),
	}
}

func TestAnswersAreAsDocumented(t *testing.T) {
	d, w := readDocument(t), newWorld(t)
	reports, err := client.Client{URL: w.server.URL, Token: w.token}.Reports(t.Context(), "a-good", fleet.Query{})
	require.NoError(t, err)
	names := map[string]string{
		"cluster": "a-good", "report": reports.Reports[0].Name, "release": storetest.Release(2).Digest.String(), "other": storetest.Release(1).Digest.String(),
	}
	token := func(path string, field string) string { // of the first one
		_, body, _ := w.ask(http.MethodGet, path, nil)
		var list map[string][]struct{ ID, Name string }
		require.NoError(t, json.Unmarshal(body, &list), "%s", body)
		return list[field][0].ID
	}
	bodies := w.requests(t)
	// Those that read come first, and those that remove last.
	order := []string{"get", "post", "delete"}
	for _, method := range order {
		for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
			o, known := d.Paths[path][method]
			if !known {
				continue
			}
			pattern := strings.ToUpper(method) + " " + path
			body, described := bodies[pattern]
			if method == "post" && !described {
				if pattern != hubapi.EnrollPattern && pattern != "POST /v1/releases" { // which have tests of their own
					t.Errorf("%s is not asked by this test", pattern)
				}
				continue
			}
			to := path
			for _, m := range inPath.FindAllStringSubmatch(path, -1) {
				name := names[m[1]]
				switch {
				case pattern == inDocument(hubapi.ReportsPattern):
					name = "uid-b-bad"
				case path == "/v1/tokens/{token}":
					name = token("/v1/tokens", "tokens")
				case path == "/v1/access/{token}":
					name = "ci"
				case path == "/v1/clusters/{cluster}/retire":
					name = "c-new"
				case path == "/v1/clusters/{cluster}/unshare":
					name = "a-good"
				case pattern == "DELETE /v1/clusters/{cluster}":
					name = "fresh"
				}
				to = strings.ReplaceAll(to, m[0], url.PathEscape(name))
			}
			required := url.Values{}
			for _, p := range o.Parameters {
				if p.Required && p.In == "query" {
					required.Set(p.Name, fmt.Sprint(p.Example))
				}
			}
			if path == "/v1/rollout" {
				required.Set("environment", "dev")
				required.Set("commit", storetest.Release(2).BaseCommit)
			}
			if path == "/v1/content" {
				required.Set("environment", "dev")
				required.Set("record", storetest.Record(2, storetest.Release(2).Digest).Digest.String())
			}
			if path == "/v1/candidate" {
				required.Set("environment", "prod")
				required.Set("from", "dev")
				required.Set("platform", storetest.Release(2).Platform)
			}
			if path == "/v1/compare" {
				required.Set("left", "environment=dev")
				required.Set("right", "environment=prod")
			}
			w.askAsDocumented(d, method, path, to, required, body)
			if method != "get" {
				continue
			}
			for _, p := range o.Parameters {
				if p.In != "query" || p.Example == nil || path == "/v1/events" && p.Name == "after" {
					continue
				}
				with := maps.Clone(required)
				if with.Has(p.Name) {
					continue
				}
				with.Set(p.Name, fmt.Sprint(p.Example))
				status, answer, _ := w.ask(http.MethodGet, to+"?"+with.Encode(), nil)
				require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, status, "%s?%s: %s", to, with.Encode(), answer)
				if status != http.StatusOK {
					d.check(t, "/components/schemas/Error", answer)
				}
			}
			if len(o.Parameters) > 0 {
				with := maps.Clone(required)
				with.Set("xyzzy", "1")
				status, answer, _ := w.ask(http.MethodGet, to+"?"+with.Encode(), nil)
				require.Equal(t, http.StatusBadRequest, status, "%s takes any parameter", to)
				d.check(t, "/components/schemas/Error", answer)
			}
		}
	}
}

// askAsDocumented asks a route, and requires an answer in each of its documented forms.
func (w *world) askAsDocumented(d *documented, method, path, to string, values url.Values, body []byte) {
	w.Helper()
	if len(values) > 0 {
		to += "?" + values.Encode()
	}
	for _, kind := range slices.Sorted(maps.Keys(d.Paths[path][method].Responses["200"].Content)) {
		status, answer, header := w.ask(strings.ToUpper(method), to, body, "Accept", kind)
		require.Equal(w, http.StatusOK, status, "%s %s: %s", method, to, answer)
		require.True(w, strings.HasPrefix(header.Get("Content-Type"), kind), "%s %s: %s", method, to, header.Get("Content-Type"))
		switch kind {
		case hubapi.ContentType:
			d.check(w.T, placeOf(method, path), answer)
		case "application/x-ndjson":
			require.NotEmpty(w, answer, "%s has rows in this test", to)
		}
	}
}

func TestEventsAreAsDocumented(t *testing.T) {
	d, w := readDocument(t), newWorld(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+"/v1/events?after=0", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+w.token)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	kinds := map[string]int{}
	for block := range readBlocks(answer.Body) {
		kind, rest, is := strings.Cut(strings.TrimPrefix(block, "event: "), "\ndata: ")
		if !is {
			continue
		}
		data, _, _ := strings.Cut(rest, "\n")
		d.check(t, "/components/schemas/Event", []byte(data))
		if kinds[kind]++; strings.Contains(data, `"version":"1.1.0"`) {
			break // the last report
		}
	}
	require.Greater(t, kinds[fleet.EventChange], 5)
	require.Equal(t, 4, kinds[fleet.EventCluster])
	require.Greater(t, kinds[fleet.EventPublished], 0)
}
