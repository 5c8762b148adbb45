package show

import "github.com/wherry-dev/wherry/bundle/lazyregexp"

// credentials finds those of URLs within a text.
var credentials = lazyregexp.New(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'/?#]*@`)

// query finds the queries of URLs within a text, which may hold tokens too.
var query = lazyregexp.New(`([A-Za-z][A-Za-z0-9+.-]*://[^\s"'?#]*)\?[^\s"'#]*`)

// Redact returns a text without the credentials and queries of the URLs in it.
func Redact(s string) string {
	return query.ReplaceAllString(credentials.ReplaceAllString(s, "$1"), "$1")
}
