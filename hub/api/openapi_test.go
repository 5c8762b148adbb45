package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/store"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// operation is a route of the document.
type operation struct {
	api.Operation
	body any // a value of the type of the request's body; nil for none
	// text is the media type of an answer that is not JSON.
	text string
}

// newAccess has the fields of the body that makes an access token.
type newAccess struct {
	Name string `json:"name"`
	Role string `json:"role"`
	store.AccessScope
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// whyRetired is the body that retires a cluster.
type whyRetired struct {
	Reason string `json:"reason,omitempty"`
}

// operations are all routes that are documented: those that read the fleet, and those below.
func operations() (all []operation) {
	for _, o := range api.Operations() {
		all = append(all, operation{Operation: o, body: o.Body})
	}
	add := func(pattern, summary string, body, answer any, parameters ...api.Parameter) {
		all = append(all, operation{api.Operation{Pattern: pattern, Summary: summary, Answer: answer, Parameters: parameters}, body, ""})
	}
	text := func(pattern, summary, kind string) {
		all = append(all, operation{api.Operation{Pattern: pattern, Summary: summary}, nil, kind})
	}
	add("GET /v1/whoami", "Who asks, with role, scope, expiry and what it may do", nil, store.WhoAmI{})
	add("GET /v1/registrations", "What is registered, and what was retired, by name", nil, store.RegistrationList{})
	add("POST /v1/clusters", "Register a cluster", store.NewCluster{}, store.AddedCluster{})
	add("DELETE /v1/clusters/{cluster}", "End a registration as if it had never been", nil, store.Registration{})
	add("POST /v1/clusters/{cluster}/retire", "End the registration of a cluster that is gone", whyRetired{}, store.Registration{})
	add("POST /v1/clusters/{cluster}/unshare", "End the suspicion that two agents share an identity", nil, store.Registration{})
	add("GET /v1/tokens", "Enrollment tokens, newest first", nil, store.TokenList{})
	add("POST /v1/tokens", "Make an enrollment token", store.TokenScope{}, store.CreatedToken{})
	add("DELETE /v1/tokens/{token}", "Revoke an enrollment token", nil, store.CreatedToken{})
	add("GET /v1/access", "Access tokens, newest first", nil, store.AccessTokenList{})
	add("POST /v1/access", "Make an access token; its secret is told once", newAccess{}, store.CreatedAccess{})
	add("DELETE /v1/access/{token}", "Revoke an access token, by id or name", nil, store.AccessToken{})
	add("GET /v1/audit", "The audit log, newest first", nil, store.AuditList{},
		api.Parameter{Name: "actor", About: "a part of the actor, whatever the case", Example: "ann"},
		api.Parameter{Name: "action", About: "a part of the action, whatever the case", Example: "approve"},
		api.Parameter{Name: "object", About: "a part of the object, whatever the case", Example: "prod"},
		api.Parameter{Name: "decision", About: "only decisions about promotion: approve, reject, override, pause, resume, or any", Example: "approve"},
		api.Parameter{Name: "since", About: "only entries at or after that time: a time in RFC 3339, a day, or a duration back from now", Example: "7d"},
		api.Parameter{Name: "until", About: "only entries before that time", Example: "2026-11-21"},
		api.Parameter{Name: "before", About: "continues a list: the next of the page before", Example: "100"},
		api.Parameter{Name: "limit", About: "the entries of one answer, at most 1000", Example: "10"})
	add("GET /v1/decisions", "Decisions about promotion into an environment, newest first; who asks verifies them", nil, store.DecisionList{},
		api.Parameter{Name: "environment", About: "the environment that is to get the commit", Required: true, Example: "prod"},
		api.Parameter{Name: "platform", About: "of this platform only", Example: "default"})
	add("POST /v1/decisions", "Decide, for the name of the access token; the hub sets by and issuedAt, signs and stores it", bundle.Decision{}, store.StoredDecision{})
	add("PUT /v1/promotion", "Post what gates say of a platform's chain, at each look; GET /v1/environments has it", store.Promotion{}, store.PostedPromotion{})
	add(hubapi.ReportsPattern, "Bring reports, which their agent has signed", hubapi.Reports{}, hubapi.Receipt{})
	add(hubapi.EnrollPattern, "Ask to be registered, with a signed envelope", json.RawMessage{}, hubapi.Enrolled{})
	add(hubapi.ReleasesPattern, "Bring an environment record and its releases, which a publisher has signed", binaryBody(hubapi.ArchiveContentType), hubapi.Learned{})
	add("GET /openapi.json", "This document", nil, json.RawMessage{})
	text("GET /healthz", "Answers while the process lives", "text/plain")
	text("GET /readyz", "Answers while the database takes writes", "text/plain")
	text("GET /metrics", "Metrics of the hub, in Prometheus' text format", "text/plain")
	return all
}

// object is a JSON object, whose fields are written in the order of their names.
type object = map[string]any

// documenter makes the document. Schemas are those of the types of answers; descriptions are the comments of their fields.
type documenter struct {
	schemas  object
	types    map[string]reflect.Type
	comments map[string]string // by package, type and field
}

func TestTheDocumentIsThatOfTheRoutesAndTypes(t *testing.T) {
	d := documenter{schemas: object{}, types: map[string]reflect.Type{}, comments: comments(t)}
	paths := object{}
	for _, o := range operations() {
		method, path, _ := strings.Cut(inDocument(o.Pattern), " ")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = d.operation(method, path, o)
	}
	d.schemaOf(reflect.TypeFor[hubapi.Error]())
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "wherry hub", "version": "1",
			"summary":     "What runs where, why, since when, against which commit",
			"description": "Fields are only ever added, and empty ones are left out; ignore those that you do not know. Times are RFC 3339 in UTC.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []any{object{"url": "/"}},
		"security": []any{object{"bearer": []any{}}, object{"basic": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer", "description": "An access token, wha_ID_SECRET."},
				"basic":  object{"type": "http", "scheme": "basic", "description": "Any name, and an access token as the password."},
			},
			"responses": object{
				"Refused": object{
					"description": "Nothing was changed. People read error; scripts branch on code.",
					"content":     object{"application/json": object{"schema": ref("Error")}},
				},
			},
		},
	}
	var made bytes.Buffer
	enc := json.NewEncoder(&made)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	require.NoError(t, enc.Encode(document))
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", made.Bytes(), 0o644))
		return
	}
	want, got := strings.Split(made.String(), "\n"), strings.Split(string(api.Document()), "\n")
	for i := range max(len(want), len(got)) { // the whole difference is too long to read
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("openapi.json is not that of the types from line %d on; run \"go test ./hub/api -update\"", i+1)
		}
	}
}

// inDocument returns a pattern as the document has it: two paths that differ only in the names of their variables are one.
func inDocument(pattern string) string { return strings.Replace(pattern, "{uid}", "{cluster}", 1) }

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func (d *documenter) operation(method, path string, o operation) object {
	parameters := []any{}
	for _, m := range inPath.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, p := range o.Parameters {
		one := object{"name": p.Name, "in": "query", "description": p.About, "schema": object{"type": "string"}}
		if p.Required {
			one["required"] = true
		}
		if p.Example != "" {
			one["example"] = p.Example
		}
		if p.Name == "limit" {
			one["schema"] = object{"type": "integer", "minimum": 1, "maximum": 1000}
			one["example"] = 100
		}
		parameters = append(parameters, one)
	}
	if o.Stream {
		parameters = append(parameters, object{"name": "Last-Event-ID", "in": "header", "description": "as after", "schema": object{"type": "string"}})
	}
	content := object{}
	switch {
	case o.text != "":
		content[o.text] = object{"schema": object{"type": "string"}}
	case o.Stream:
		content["text/event-stream"] = object{"schema": d.schemaOf(reflect.TypeOf(o.Answer))}
	default:
		content["application/json"] = object{"schema": d.schemaOf(reflect.TypeOf(o.Answer))}
		if o.List {
			content["text/csv"] = object{"schema": object{"type": "string"}}
			content["application/x-ndjson"] = object{"schema": object{"type": "string"}}
		}
	}
	made := object{
		"operationId": operationID(method, path), "summary": o.Summary, "parameters": parameters,
		"responses": object{"200": object{"description": "OK", "content": content}, "default": object{"$ref": "#/components/responses/Refused"}},
	}
	if o.body != nil {
		content := object{"application/json": object{"schema": d.schemaOf(reflect.TypeOf(o.body))}}
		if kind, binary := o.body.(binaryBody); binary {
			content = object{string(kind): object{}}
		}
		made["requestBody"] = object{"required": true, "content": content}
	}
	if open[o.Pattern] {
		made["security"] = []any{}
	}
	return made
}

// binaryBody is the media type of a request that is not JSON.
type binaryBody string

// open are the routes that need no access token.
var open = map[string]bool{
	hubapi.ReportsPattern: true, hubapi.EnrollPattern: true, "GET /healthz": true, "GET /readyz": true, "GET /openapi.json": true,
}

// operationID returns a name such as getClustersReports.
func operationID(method, path string) string {
	id := strings.ToLower(method)
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/v1"), "/") {
		part = strings.TrimSuffix(part, ".json")
		if name, variable := strings.CutPrefix(part, "{"); variable {
			part = "By" + strings.ToUpper(name[:1]) + strings.TrimSuffix(name[1:], "}")
		} else if part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		id += part
	}
	return id
}

// name returns the name of a type's schema: that of fleet's types is the type's, others have their package's before it.
func (d *documenter) name(t reflect.Type) string {
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	switch pkg {
	case "hubapi":
		if t.Name() == "Error" {
			return "Error"
		}
	case "fleet", "api", "api_test":
		return strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + t.Name()
}

func (d *documenter) schemaOf(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schemaOf(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schemaOf(t.Elem())}
	case reflect.Struct:
		name := d.name(t)
		if known := d.types[name]; known == nil {
			d.types[name] = t
			schema := object{"type": "object"}
			d.schemas[name] = schema
			properties, required := object{}, []string{}
			d.fields(t, properties, &required)
			schema["properties"] = properties
			if slices.Sort(required); len(required) > 0 {
				schema["required"] = required
			}
			if about := d.comments[t.PkgPath()+"."+t.Name()]; about != "" {
				schema["description"] = about
			}
		} else if known != t {
			panic("two types have the schema " + name)
		}
		return ref(name)
	}
	panic("no schema for " + t.String())
}

func (d *documenter) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && name == "" {
			d.fields(f.Type, properties, required)
			continue
		}
		schema := maps.Clone(d.schemaOf(f.Type))
		if about := d.comments[t.PkgPath()+"."+t.Name()+"."+f.Name]; about != "" {
			schema["description"] = about
		}
		properties[name] = schema
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, name)
		}
	}
}

// comments returns the comments of the types, and of their fields, in the packages of answers.
func comments(t *testing.T) map[string]string {
	all := map[string]string{}
	const module = "github.com/wherry-dev/wherry/"
	for _, dir := range []string{"hub/fleet", "hub/store", "hub/manage", "hub/api", "bundle", "bundle/hubapi", "bundle/ledger"} {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			require.NoError(t, err)
			for _, decl := range parsed.Decls {
				types, ok := decl.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range types.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						commentsOf(all, module+dir+"."+s.Name.Name, s, types)
					}
				}
			}
		}
	}
	return all
}

func commentsOf(all map[string]string, name string, s *ast.TypeSpec, decl *ast.GenDecl) {
	all[name] = said(s.Doc)
	if all[name] == "" && len(decl.Specs) == 1 {
		all[name] = said(decl.Doc)
	}
	structure, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range structure.Fields.List {
		for _, field := range f.Names {
			about := said(f.Doc)
			if about == "" {
				about = said(f.Comment)
			}
			all[name+"."+field.Name] = about
		}
	}
}

func said(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// TestTheDocumentHasTheFormOfOpenAPI checks what version 3.1 of the specification requires.
func TestTheDocumentHasTheFormOfOpenAPI(t *testing.T) {
	var d struct {
		OpenAPI string `json:"openapi"`
		Info    struct {
			Title, Version string
		} `json:"info"`
		Paths      map[string]map[string]map[string]any `json:"paths"`
		Components struct {
			Schemas         map[string]any `json:"schemas"`
			SecuritySchemes map[string]any `json:"securitySchemes"`
			Responses       map[string]any `json:"responses"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(api.Document(), &d))
	require.Regexp(t, `^3\.1\.\d+$`, d.OpenAPI)
	require.NotEmpty(t, d.Info.Title)
	require.NotEmpty(t, d.Info.Version)
	ids, templates := map[string]bool{}, map[string]bool{}
	for path, methods := range d.Paths {
		require.True(t, strings.HasPrefix(path, "/"))
		template := inPath.ReplaceAllString(path, "{}")
		require.False(t, templates[template], "%s is twice in the document", template)
		templates[template] = true
		for method, o := range methods {
			require.Contains(t, []string{"get", "post", "put", "delete", "patch", "head", "options", "trace"}, method)
			id := o["operationId"].(string)
			require.False(t, ids[id], "two operations are %s", id)
			ids[id] = true
			variables := map[string]bool{}
			for _, m := range inPath.FindAllStringSubmatch(path, -1) {
				variables[m[1]] = true
			}
			names := map[string]bool{}
			for _, p := range o["parameters"].([]any) {
				one := p.(map[string]any)
				name, in := one["name"].(string), one["in"].(string)
				require.False(t, names[in+name], "%s has %s twice", id, name)
				names[in+name] = true
				require.Contains(t, []string{"path", "query", "header", "cookie"}, in)
				require.NotNil(t, one["schema"])
				if in == "path" {
					require.Equal(t, true, one["required"])
					require.True(t, variables[name], "%s: %s is not in the path", id, name)
					delete(variables, name)
				}
			}
			require.Empty(t, variables, id)
			responses := o["responses"].(map[string]any)
			require.NotEmpty(t, responses)
			for status, r := range responses {
				require.Regexp(t, `^([1-5]\d\d|[1-5]XX|default)$`, status)
				one := r.(map[string]any)
				require.True(t, one["$ref"] != nil || one["description"] != nil, "%s %s", id, status)
			}
		}
	}
	refs := regexp.MustCompile(`"\$ref": "([^"]+)"`).FindAllStringSubmatch(string(api.Document()), -1)
	require.NotEmpty(t, refs)
	for _, r := range refs {
		parts := strings.Split(strings.TrimPrefix(r[1], "#/components/"), "/")
		require.Len(t, parts, 2, r[1])
		known := map[string]map[string]any{"schemas": d.Components.Schemas, "responses": d.Components.Responses}[parts[0]]
		require.Contains(t, known, parts[1], r[1])
	}
	for name := range d.Components.Schemas {
		require.Regexp(t, `^[a-zA-Z0-9._-]+$`, name)
	}
}
