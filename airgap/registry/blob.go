package registry

import (
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// serveBlob answers a request for a blob, if this is one and its repository has it. Distribution takes 4 MiB of memory for each such
// request, however small the blob, which is most of what a fleet costs that looks for a release at one time. All else, errors too, is
// left to distribution.
func (r *Registry) serveBlob(w http.ResponseWriter, req *http.Request) bool {
	if req.Method != http.MethodGet || path.Clean(req.URL.Path) != req.URL.Path {
		return false
	}
	rest, isRegistry := strings.CutPrefix(req.URL.Path, "/v2/")
	name, text, isBlob := strings.Cut(rest, "/blobs/")
	d, err := digest.Parse(text)
	if !isRegistry || !isBlob || err != nil || d.Algorithm() != digest.SHA256 {
		return false
	}
	link, err := r.root.ReadFile(path.Join("repositories", name, "_layers/sha256", d.Encoded(), "link"))
	if err != nil || string(link) != d.String() { // the repository does not have it
		return false
	}
	f, err := r.root.Open(path.Join("blobs/sha256", d.Encoded()[:2], d.Encoded(), "data"))
	if err != nil {
		return false
	}
	defer f.Close()
	h := w.Header()
	h.Set("Docker-Distribution-Api-Version", "registry/2.0")
	h.Set("Docker-Content-Digest", d.String())
	h.Set("ETag", `"`+d.String()+`"`)
	h.Set("Cache-Control", "max-age=31536000")
	h.Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, req, "", time.Time{}, f)
	return true
}

// openRoot opens the folder in which distribution's driver keeps what is pushed to dir.
func openRoot(dir string) (*os.Root, error) {
	content := path.Join(dir, "docker/registry/v2")
	if err := os.MkdirAll(content, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(content)
}
