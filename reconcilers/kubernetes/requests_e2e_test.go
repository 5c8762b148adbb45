//go:build e2e

package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/bundle"
)

func TestRequestsAreFew(t *testing.T) {
	s := newSite(t)
	config, made := counted(s.Config)
	count := func(call func()) requests { call(); return made.take() }
	asks := func(n int64) requests { return requests{objects: n} }
	first := func(n int64, r requests) { // with discovery
		t.Helper()
		require.Equal(t, n, r.objects)
		require.GreaterOrEqual(t, r.kinds, int64(2))
	}
	content := func(v string) string {
		return configMap("one", "a", "1") + configMap("two", "a", v) + configMap("three", "a", "1")
	}
	require.Zero(t, count(func() { s.r = s.reconciler(t, config) }), "a constructor asks nobody")
	apply := func(v string) func() {
		return func() { s.apply(t, "shop", content(v), bundle.Compliant, "") }
	}
	first(3*3, count(apply("1"))) // for each object: get, dry run, apply
	require.Equal(t, asks(3*2), count(apply("1")), "unchanged: get, dry run")
	require.Equal(t, asks(3*2+1), count(apply("2")), "one changed")
	observe := func() {
		require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), s.assignment(t, "shop", content("2"))).State)
	}
	require.Equal(t, asks(3), count(observe), "known to agree: get")
	s.r = s.reconciler(t, config)
	first(3*2, count(observe)) // after a restart: get, dry run
	require.Equal(t, asks(3), count(observe))
}

// requests are those to an API server.
type requests struct {
	objects int64
	kinds   int64 // discovery: two, and one more for each group that the API server has no fresh answer for
}

var kindsPath = regexp.MustCompile(`^/(api(/[^/]+)?|apis(/[^/]+){0,2})$`)

func asksForKinds(r *http.Request) bool { return kindsPath.MatchString(r.URL.Path) }

// counter counts requests.
type counter struct{ objects, kinds atomic.Int64 }

// take returns the counts, and resets them.
func (c *counter) take() requests { return requests{c.objects.Swap(0), c.kinds.Swap(0)} }

// counted returns access that counts.
func counted(config *rest.Config) (*rest.Config, *counter) {
	made := &counter{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if asksForKinds(r) {
				made.kinds.Add(1)
			} else {
				made.objects.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	return config, made
}

// TestACallCutOffAtAnyRequestIsCompleted ends apply and remove at each of their requests, once before it
// arrives and once before its answer does, and lets a new process carry on.
func TestACallCutOffAtAnyRequestIsCompleted(t *testing.T) {
	first := configMap("stays", "a", "1") + configMap("changes", "a", "1") + configMap("goes", "a", "1")
	second := configMap("stays", "a", "1") + configMap("changes", "a", "2") + configMap("comes", "a", "1")
	for _, answered := range []bool{false, true} {
		for _, call := range []string{"apply", "remove"} {
			t.Run(fmt.Sprintf("%s, arrived: %t", call, answered), func(t *testing.T) {
				for cut, finished := 0, false; !finished; cut++ {
					s := newSite(t)
					s.apply(t, "shop", first, bundle.Compliant, "")
					s.r = s.reconciler(t, cutAfter(s.Config, cut, answered))
					a := s.assignment(t, "shop", second)
					if call == "remove" {
						finished = s.r.Remove(t.Context(), a).State == bundle.Removed
						s.r = s.reconciler(t, s.Config)
						s.remove(t, "shop")
						for _, name := range []string{"stays", "changes", "goes"} {
							require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, name), "%s after %d requests", name, cut)
						}
						continue
					}
					finished = s.r.Apply(t.Context(), a).State == bundle.Compliant
					s.r = s.reconciler(t, s.Config)
					s.apply(t, "shop", second, bundle.Compliant, "")
					require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "goes"), "after %d requests", cut)
					require.Equal(t, map[string]string{"a": "2"}, s.data(t, "changes"))
					s.remove(t, "shop")
					for _, name := range []string{"stays", "changes", "comes"} {
						require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, name), "%s after %d requests", name, cut)
					}
				}
			})
		}
	}
}

// cutAfter returns access that breaks down after some requests: the next one, or its answer, gets lost.
func cutAfter(config *rest.Config, requests int, answered bool) *rest.Config {
	config = rest.CopyConfig(config)
	left := int64(requests)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			now := atomic.AddInt64(&left, -1)
			if now >= 0 {
				return next.RoundTrip(r)
			}
			if answered && now == -1 {
				if res, err := next.RoundTrip(r); err == nil {
					res.Body.Close()
				}
			}
			return nil, errors.New("cut off")
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
