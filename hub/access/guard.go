package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// ErrNoCredentials means that a request carries no credentials of a Source's kind.
var ErrNoCredentials = errors.New("no credentials")

// Source says who sends a request.
type Source interface {
	// Identify returns the identity that the request's credentials prove. The error is ErrNoCredentials if it carries none of
	// the source's kind, a *hubapi.Error if they are refused, or else that of what the source asks. With a refusal, the identity
	// has the name and the ID of credentials that were right once.
	Identify(r *http.Request) (Identity, error)
}

// Anonymous is a Source that gives each request without credentials a role, but for those that a browser sends from a page of another
// site. It is the last one of a Guard, and only for a hub that listens on loopback.
type Anonymous struct{ Role Role }

// Identify implements Source.
func (a Anonymous) Identify(r *http.Request) (Identity, error) {
	if http.NewCrossOriginProtection().Check(r) != nil {
		return Identity{}, unauthenticated("a page of another site has sent this")
	}
	return Identity{Name: "anonymous", Role: a.Role}, nil
}

// Route is a route of a hub, and what it needs.
type Route struct {
	// Pattern is one of http.ServeMux, with a method.
	Pattern    string
	Permission Permission
	Handler    http.Handler
}

// Options are the parts of a Guard.
type Options struct {
	// Sources are asked in order, until one finds its credentials.
	Sources []Source
	// Client returns the address that a request is counted by; empty for none. Nil means the one that it comes from.
	Client func(*http.Request) string
	// Away reports whether identities come from memory, since the database is away; nil means never. Nothing is changed then.
	Away func() bool
	// SignedIn notes that an identity has sent a request from an address, or that its token, whose secret was right, was refused
	// with an error. It is called once for each token and address, and again after a day without a request. Nil notes nothing.
	SignedIn func(ctx context.Context, i Identity, client string, refused error) error
	// Fail answers a request for which a Source has failed. Nil answers 503.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Now is nil for time.Now.
	Now func() time.Time
	// RequestsPerMinute bounds the requests of each token, and of each address; zero means DefaultRequestsPerMinute.
	RequestsPerMinute int
	// SignIn is true if people sign in on a page: browsers do not ask for a token then.
	SignIn bool
}

// Bounds of requests.
const (
	// DefaultRequestsPerMinute is as much as some hundred people and scripts with one token want.
	DefaultRequestsPerMinute = 6000
	// failuresPerMinute bounds the wrong tokens of an address; as many may come at once. A secret of 256 bits is not
	// guessed: this protects the database, and makes a script with an old token visible.
	failuresPerMinute = 10
	// recheckEvery is how often a request that takes long, such as a stream of events, has its identity checked again.
	recheckEvery = 5 * time.Second
	// awayRetry is the time after which a client tries again if the database is away.
	awayRetry = 30 * time.Second
)

// Guard lets requests through to handlers. It may be used by several goroutines.
type Guard struct {
	Options
	byAddress, byToken, failures *rate

	mu   sync.Mutex
	good generations[struct{}] // hashes of the credentials that were right lately
	seen generations[bool]     // tokens and addresses that SignedIn was told of
}

// NewGuard returns a guard that has seen no request.
func NewGuard(o Options) *Guard {
	if o.Client == nil {
		o.Client = func(r *http.Request) string {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			return host
		}
	}
	if o.Fail == nil {
		o.Fail = func(w http.ResponseWriter, _ *http.Request, _ error) {
			(&hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the hub cannot tell who this is; try again later", RetryAfter: awayRetry}).Write(w)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	perMinute := cmp.Or(o.RequestsPerMinute, DefaultRequestsPerMinute)
	return &Guard{
		Options:   o,
		byAddress: newRate(perMinute, perMinute), byToken: newRate(perMinute, perMinute),
		failures: newRate(failuresPerMinute, failuresPerMinute),
		good:     generations[struct{}]{length: time.Hour},
		seen:     generations[bool]{length: 24 * time.Hour},
	}
}

// Require returns a handler that lets requests with the permission through to next, which finds the identity with From, and
// answers all others: 401 without a valid token, 403 without the permission, 429 for too many. While next runs, the token is
// checked again, and the request's context ends within seconds if it is not valid any more.
func (g *Guard) Require(p Permission, next http.Handler) http.Handler {
	if p == Open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		identity, err := g.identify(r)
		if err == nil && !identity.May(p) {
			err = &hubapi.Error{Code: hubapi.CodeForbidden, Message: fmt.Sprintf("%s has role %s%s, which does not allow this", identity.Actor(), identity.Role, scoped(identity))}
		}
		if err == nil && g.Away != nil && g.Away() && !p.reads() {
			err = &hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the hub's database is away, and nothing can be changed; try again later", RetryAfter: awayRetry}
		}
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		ctx, cancel := context.WithCancel(With(r.Context(), identity))
		defer cancel()
		defer g.watch(r, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Bound returns a handler that lets at most so many requests a minute of an address through to next. It is for Open routes that cost more than
// their answer.
func (g *Guard) Bound(perMinute int, next http.Handler) http.Handler {
	each := newRate(perMinute, perMinute)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait, ok := each.take(g.Client(r), 1, g.Now()); !ok {
			g.refuse(w, r, busy(wait, "too many sign-ins from this address"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func scoped(i Identity) string {
	if i.Whole() {
		return ""
	}
	return " and a scope"
}

// identify asks the sources, within the bounds of the client's address and of its token.
func (g *Guard) identify(r *http.Request) (Identity, error) {
	now, client := g.Now(), g.Client(r)
	if wait, ok := g.byAddress.take(client, 1, now); !ok {
		return Identity{}, busy(wait, "too many requests from this address")
	}
	presented := r.Header.Get("Authorization")
	if wait, ok := g.failures.take(client, 0, now); !ok && presented != "" && !g.wasGood(presented, now) {
		return Identity{}, busy(wait, "too many requests with a wrong token from this address")
	}
	identity, err := g.ask(r)
	var refused *hubapi.Error
	if presented != "" && errors.As(err, &refused) {
		_, _ = g.failures.take(client, 1, now)
	}
	if identity.ID != "" {
		g.signedIn(r.Context(), identity, client, err)
	}
	if err != nil {
		return Identity{}, err
	}
	if identity.ID == "" {
		return identity, nil
	}
	if presented != "" {
		g.nowGood(presented, now)
	}
	if wait, ok := g.byToken.take(identity.ID, 1, now); !ok {
		return Identity{}, busy(wait, "too many requests with this token")
	}
	return identity, nil
}

// signedIn calls SignedIn, unless it has been called for the token and the address lately. What it could not note, it is told of
// again with the next request.
func (g *Guard) signedIn(ctx context.Context, i Identity, client string, refused error) {
	if g.SignedIn == nil {
		return
	}
	key := fmt.Sprint(i.ID, " ", refused != nil, " ", client)
	g.mu.Lock()
	known, _ := g.seen.get(key, g.Now())
	g.seen.set(key, true, g.Now())
	g.mu.Unlock()
	if known || g.SignedIn(ctx, i, client, refused) == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen.set(key, false, g.Now())
}

// ask returns the answer of the first source that finds its credentials.
func (g *Guard) ask(r *http.Request) (Identity, error) {
	for _, s := range g.Sources {
		identity, err := s.Identify(r)
		if !errors.Is(err, ErrNoCredentials) {
			return identity, err
		}
	}
	if g.SignIn {
		return Identity{}, unauthenticated("this needs a person who has signed in, or an access token")
	}
	return Identity{}, unauthenticated("this needs an access token")
}

func (g *Guard) wasGood(credentials string, now time.Time) bool {
	sum := sha256.Sum256([]byte(credentials))
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.good.get(string(sum[:]), now)
	return ok
}

func (g *Guard) nowGood(credentials string, now time.Time) {
	sum := sha256.Sum256([]byte(credentials))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.good.set(string(sum[:]), struct{}{}, now)
}

// watch asks the sources again while a request runs, and calls cancel once they refuse it. The caller calls stop.
func (g *Guard) watch(r *http.Request, cancel func()) (stop func()) {
	var again *time.Timer
	var mu sync.Mutex // so that stop sees the timer
	mu.Lock()
	defer mu.Unlock()
	ended := false
	again = time.AfterFunc(recheckEvery, func() {
		_, err := g.ask(r)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ended:
		case err != nil:
			cancel()
		default:
			again.Reset(recheckEvery)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		again.Stop()
	}
}

// refuse answers with an error.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refused *hubapi.Error
	if !errors.As(err, &refused) {
		g.Fail(w, r, err)
		return
	}
	if refused.Code == hubapi.CodeUnauthenticated {
		challenge := `Bearer realm="wherry hub"`
		if strings.Contains(r.Header.Get("Accept"), "text/html") && !g.SignIn { // a browser asks its person then
			challenge = `Basic realm="wherry hub: the password is an access token", charset="UTF-8"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	refused.Write(w)
}

func busy(wait time.Duration, why string) error {
	return &hubapi.Error{Code: hubapi.CodeBusy, Message: why, RetryAfter: max(wait, time.Second)}
}

// Headers returns a handler that tells browsers to keep the answers of next apart from other sites: no scripts but the hub's own, no frames, no
// address in links to elsewhere.
func Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy":              "no-referrer",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
