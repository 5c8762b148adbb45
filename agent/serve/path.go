package serve

import (
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// maxPath bounds the path of a request, in bytes: a name of 255, a digest of SHA-512 and the parts between.
const maxPath = 600

// The kinds of requests.
const (
	kindBase      = "base" // whether this is a registry
	kindManifest  = "manifests"
	kindBlob      = "blobs"
	kindTags      = "tags"
	kindReferrers = "referrers"
)

// route is a parsed request. name is the repository in the request, and repository the one in the layout.
type route struct {
	kind, name, repository string
	tag                    string        // of a manifest that is asked for by tag
	digest                 digest.Digest // else
}

// fault is an answer that is an error of the distribution specification.
type fault struct {
	status        int
	code, message string
}

var (
	notFound      = &fault{404, "UNSUPPORTED", "there is nothing at this path"}
	nameInvalid   = &fault{400, "NAME_INVALID", "this is not the name of a repository"}
	nameUnknown   = &fault{404, "NAME_UNKNOWN", "the repository is not served here"}
	digestInvalid = &fault{400, "DIGEST_INVALID", "this is not a digest"}
	noManifest    = &fault{404, "MANIFEST_UNKNOWN", "the manifest is not served here"}
	noBlob        = &fault{404, "BLOB_UNKNOWN", "the blob is not served here"}
)

// parse returns the route of a URL. No path is cleaned or decoded: the names and digests of the specification need no
// percent-encoding.
func parse(u *url.URL, platform string) (route, *fault) {
	if u.RawPath != "" || len(u.Path) > maxPath {
		return route{}, notFound
	}
	rest, ok := strings.CutPrefix(u.Path, "/v2")
	switch {
	case !ok:
		return route{}, notFound
	case rest == "" || rest == "/":
		return route{kind: kindBase}, nil
	case rest[0] != '/':
		return route{}, notFound
	}
	r, bad := split(rest[1:])
	if bad != nil {
		return r, bad
	}
	r.repository, ok = inStore(r.name, u.Query().Get("ns"), platform)
	if !ok {
		return r, nameUnknown
	}
	return r, nil
}

// split takes the kind and the reference off the end of a path.
func split(path string) (r route, bad *fault) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return r, notFound
	}
	head, reference := path[:i], path[i+1:]
	i = strings.LastIndexByte(head, '/')
	if i < 1 {
		return r, notFound
	}
	r.name, r.kind = head[:i], head[i+1:]
	if !isName(r.name) {
		return r, nameInvalid
	}
	switch r.kind {
	case kindManifest:
		if oci.CheckTag(reference) == nil {
			r.tag = reference
			return r, nil
		}
	case kindBlob, kindReferrers:
	case kindTags:
		if reference == "list" {
			return r, nil
		}
		return r, notFound
	default:
		return r, notFound
	}
	r.digest = digest.Digest(reference)
	if r.digest.Validate() != nil {
		return r, digestInvalid
	}
	return r, nil
}

// hostName matches a host in references to images, with or without a port.
var hostName = lazyregexp.New(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?$`)

// isName reports whether name is one of a repository, whose first part may be a host with its port.
func isName(name string) bool {
	host, rest, ok := strings.Cut(name, "/")
	if host = withPort(host); ok && isHost(host) {
		return len(name) <= 255 && hostName.MatchString(host) && oci.CheckName(rest) == nil
	}
	return oci.CheckName(name) == nil
}

// isHost reports whether the first part of a name is a host: whether the repository is one that was carried here.
func isHost(first string) bool { return strings.ContainsAny(first, ".:") || first == "localhost" }

// inStore returns the repository in the layout for a name as it was asked for. The agent's own repositories lie below its
// platform's name; those that were carried here have their host as first part, or in the parameter ns.
func inStore(name, ns, platform string) (string, bool) {
	if ns != "" {
		ns = hubHost(ns)
		return ns + "/" + name, isHost(ns) && !strings.Contains(ns, "/") && isName(ns+"/"+name)
	}
	if own, ok := strings.CutPrefix(name, platform+"/"); ok {
		first, _, _ := strings.Cut(own, "/")
		return own, !isHost(first)
	}
	first, rest, ok := strings.Cut(name, "/")
	first = withPort(first)
	return hubHost(first) + "/" + rest, ok && isHost(first)
}

// writtenPort matches a host whose port is written with '_', as in oci.MirrorName: clients take no name with a colon.
var writtenPort = lazyregexp.New(`^[a-zA-Z0-9.-]+_[0-9]{1,5}$`)

// withPort returns the host that the first part of a name stands for.
func withPort(first string) string {
	if writtenPort.MatchString(first) {
		return strings.Replace(first, "_", ":", 1)
	}
	return first
}

// hubHost returns the one name that Docker Hub has in references, for the others that it answers to.
func hubHost(host string) string {
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return "docker.io"
	}
	return host
}
