// Package lazyregexp has regular expressions that are compiled on first use, so that a command compiles only those that it
// needs. As package variables of package regexp, they made a sixth of all allocations before main.
//
//	var tagName = lazyregexp.New(`^[a-z]+$`)
//
// The methods are those of [regexp.Regexp]. An expression that does not compile panics on first use; a test compiles
// all expressions of the module.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression. It may be used by several goroutines.
type Regexp struct {
	expression string
	once       sync.Once
	compiled   *regexp.Regexp
}

// New returns a regular expression, which has to be a literal so that the test finds it. The compiler inlines New: a package
// variable costs nothing at start.
func New(expression string) *Regexp { return &Regexp{expression: expression} }

func (r *Regexp) regexp() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.expression) })
	return r.compiled
}

func (r *Regexp) MatchString(s string) bool              { return r.regexp().MatchString(s) }
func (r *Regexp) FindString(s string) string             { return r.regexp().FindString(s) }
func (r *Regexp) FindStringIndex(s string) []int         { return r.regexp().FindStringIndex(s) }
func (r *Regexp) FindStringSubmatch(s string) []string   { return r.regexp().FindStringSubmatch(s) }
func (r *Regexp) Split(s string, n int) []string         { return r.regexp().Split(s, n) }
func (r *Regexp) ReplaceAllString(src, to string) string { return r.regexp().ReplaceAllString(src, to) }

func (r *Regexp) FindAllString(s string, n int) []string { return r.regexp().FindAllString(s, n) }

func (r *Regexp) FindAllSubmatch(b []byte, n int) [][][]byte {
	return r.regexp().FindAllSubmatch(b, n)
}

func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.regexp().FindAllStringSubmatch(s, n)
}

func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.regexp().FindAllStringSubmatchIndex(s, n)
}

func (r *Regexp) ReplaceAllStringFunc(src string, to func(string) string) string {
	return r.regexp().ReplaceAllStringFunc(src, to)
}
