package forge

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// requestPaths are the paths of change requests below their repositories, as browsers show them.
var requestPaths = []struct {
	kind Kind
	path *lazyregexp.Regexp
}{
	{GitLab, lazyregexp.New(`^(.+)/-/merge_requests/([0-9]{1,9})(?:/.*)?$`)},
	{Azure, lazyregexp.New(`^(.+/_git/[^/]+)/pullrequest/([0-9]{1,9})(?:/.*)?$`)},
	{Gitea, lazyregexp.New(`^(.+)/pulls/([0-9]{1,9})(?:/.*)?$`)},
	{GitHub, lazyregexp.New(`^(.+)/pull/([0-9]{1,9})(?:/.*)?$`)},
}

// RequestOf reads the URL of a change request, as a browser shows it. The path says which kind of forge it is at. Errors
// repeat no credentials.
func RequestOf(text string) (Run, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return Run{}, fmt.Errorf("not the URL of a change request")
	}
	if u.User != nil {
		return Run{}, fmt.Errorf("credentials do not belong into the URL of a change request")
	}
	for _, p := range requestPaths {
		m := p.path.FindStringSubmatch(u.EscapedPath())
		if m == nil {
			continue
		}
		number, err := strconv.Atoi(m[2])
		if err != nil || number == 0 {
			break
		}
		return Run{URL: u.Scheme + "://" + u.Host + m[1], Kind: p.kind, Number: number}, nil
	}
	return Run{}, fmt.Errorf("%s://%s%s is not the URL of a change request", u.Scheme, u.Host, u.EscapedPath())
}
