package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle/oci"
)

const (
	maxTags      = 1000 // of one answer
	maxReferrers = 1000
	maxQuery     = 1 << 10 // bytes of a URL's query
	bodyTime     = 5 * time.Second
)

// reportsPath begins the paths of hubapi.ReportsPattern, and readyPath is where a hub, or who takes reports for it, says that it works.
const reportsPath, readyPath = "/v1/clusters/", "/readyz"

// Handler answers the requests of the OCI distribution specification v1.1 that read.
type Handler struct {
	platform string
	blobs    *blobs
	catalog  *catalog
	counters *Counters
	reports  http.Handler // nil where nothing is taken
}

// NewHandler returns the handler for the layout in the folder dir, which need not be there yet. The repositories of the
// agent itself lie below the platform's name. Counters and log may be nil.
func NewHandler(dir, platform string, counters *Counters, log *slog.Logger) *Handler {
	if counters == nil {
		counters = new(Counters)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &blobs{dir: dir, log: log, known: map[digest.Digest]compared{}}
	return &Handler{platform: platform, blobs: b, catalog: &catalog{blobs: b}, counters: counters}
}

// Name is the header Server of all answers. By it, agents know that a registry is the endpoint of another agent.
const Name = "wherry-agent"

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	counted := &recorder{ResponseWriter: w}
	defer func() { h.counters.add(counted.code()) }()
	counted.Header().Set("Server", Name)
	if h.reports != nil && (req.URL.Path == readyPath || strings.HasPrefix(req.URL.Path, reportsPath)) {
		counted.Header().Set("X-Content-Type-Options", "nosniff")
		h.reports.ServeHTTP(counted, req)
		return
	}
	counted.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	counted.Header().Set("X-Content-Type-Options", "nosniff")
	if req.ContentLength != 0 { // nothing is read from a body, so nothing is to wait for one
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
		counted.Header().Set("Connection", "close")
	}
	if bad := h.answer(counted, req); bad != nil {
		bad.send(counted)
	}
}

func (h *Handler) answer(w http.ResponseWriter, req *http.Request) *fault {
	if len(req.URL.RawQuery) > maxQuery {
		return &fault{http.StatusRequestURITooLong, "UNSUPPORTED", "the query is too long"}
	}
	r, bad := parse(req.URL, h.platform)
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return &fault{http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only"}
	}
	if bad != nil {
		return bad
	}
	if r.kind == kindBase {
		sendJSON(w, "application/json", struct{}{})
		return nil
	}
	repo, err := h.catalog.repository(r.repository)
	if err != nil {
		return &fault{http.StatusInternalServerError, "UNKNOWN", "the store cannot be read"}
	}
	if repo == nil {
		return nameUnknown
	}
	switch r.kind {
	case kindManifest:
		return h.manifest(w, req, r, repo)
	case kindBlob:
		return h.blob(w, req, r, repo)
	case kindTags:
		return h.tags(w, req, r, repo)
	}
	return h.referrers(w, req, r, repo)
}

func (h *Handler) manifest(w http.ResponseWriter, req *http.Request, r route, repo *repository) *fault {
	m, ok := repo.resolve(r.tag, r.digest)
	if !ok {
		return noManifest
	}
	return h.send(w, req, m.desc.Digest, mediaTypeOf(m), noManifest)
}

// mediaTypeOf is the media type of a manifest: the one that it gives itself, which its digest covers.
func mediaTypeOf(m manifest) string {
	if m.refs.MediaType != "" {
		return m.refs.MediaType
	}
	if m.desc.MediaType != "" {
		return m.desc.MediaType
	}
	return ocispec.MediaTypeImageManifest
}

func (h *Handler) blob(w http.ResponseWriter, req *http.Request, r route, repo *repository) *fault {
	all := repo.all()
	_, isBlob := all.blobs[r.digest]
	if _, isManifest := all.manifests[r.digest]; !isBlob && !isManifest {
		return noBlob
	}
	return h.send(w, req, r.digest, "application/octet-stream", noBlob)
}

// send sends the content with that digest, or the range of it that was asked for.
func (h *Handler) send(w http.ResponseWriter, req *http.Request, d digest.Digest, mediaType string, missing *fault) *fault {
	f, _, err := h.blobs.open(d)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errDamaged):
		return missing
	case err != nil:
		return &fault{http.StatusInternalServerError, "UNKNOWN", "the content cannot be read"}
	}
	defer f.Close()
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", d.String())
	w.Header().Set("ETag", `"`+d.String()+`"`)
	// Several ranges at once are more work than bytes. A server may ignore the header.
	if ranges := req.Header.Values("Range"); len(ranges) > 1 || len(ranges) == 1 && strings.Contains(ranges[0], ",") {
		req.Header.Del("Range")
	}
	http.ServeContent(w, req, "", time.Time{}, f)
	return nil
}

func (h *Handler) tags(w http.ResponseWriter, req *http.Request, r route, repo *repository) *fault {
	query, n := req.URL.Query(), maxTags
	if s := query.Get("n"); s != "" {
		asked, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return &fault{http.StatusBadRequest, "PAGINATION_NUMBER_INVALID", "n is not a number of tags"}
		}
		n = min(n, int(asked))
	}
	last := query.Get("last")
	if last != "" && oci.CheckTag(last) != nil {
		return &fault{http.StatusBadRequest, "TAG_INVALID", "last is not a tag"}
	}
	names, more := repo.tagNames(last, n)
	if more && n > 0 {
		next := url.Values{"n": {strconv.Itoa(n)}, "last": {names[len(names)-1]}}
		if ns := query.Get("ns"); ns != "" {
			next.Set("ns", ns)
		}
		w.Header().Set("Link", fmt.Sprintf("</v2/%s/tags/list?%s>; rel=\"next\"", r.name, next.Encode()))
	}
	if names == nil {
		names = []string{}
	}
	sendJSON(w, "application/json", struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{r.name, names})
	return nil
}

func (h *Handler) referrers(w http.ResponseWriter, req *http.Request, r route, repo *repository) *fault {
	artifactType := req.URL.Query().Get("artifactType")
	if artifactType != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	sendJSON(w, ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: repo.referrers(r.digest, artifactType, maxReferrers),
	})
	return nil
}

// send answers with the error.
func (f *fault) send(w http.ResponseWriter) {
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	body := struct {
		Errors []problem `json:"errors"`
	}{[]problem{{f.code, f.message}}}
	data, _ := json.Marshal(body) // of plain strings
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(f.status)
	_, _ = w.Write(data)
}

func sendJSON(w http.ResponseWriter, mediaType string, v any) {
	data, _ := json.Marshal(v)
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// ReadFrom lets a file go from the disk to the connection without passing through this process, where that can be.
func (r *recorder) ReadFrom(from io.Reader) (int64, error) { return io.Copy(r.ResponseWriter, from) }

// Unwrap is asked for by http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}
