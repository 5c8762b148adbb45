package publisher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

var errKilled = errors.New("killed")

// A fault is what becomes of one request.
type fault struct {
	name string
	// do takes the request's place.
	do func(r *http.Request, serve func() *http.Response) (*http.Response, error)
	// kills says that the publisher ends there: no later request arrives either.
	kills bool
	// want is the kind of the error. Nil means that the publisher need not notice.
	want error
}

func answers(status int, want error) fault {
	return fault{name: fmt.Sprint("answers ", status), want: want, do: func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}}
}

// breaks carries out the request where carriedOut says so, and loses its answer.
func breaks(name string, carriedOut, kills bool, cause error) fault {
	return fault{name: name, kills: kills, want: oci.ErrUnreachable, do: func(_ *http.Request, serve func() *http.Response) (*http.Response, error) {
		if carriedOut {
			serve()
		}
		return nil, cause
	}}
}

// cutShort has the answer's body end half-way.
func cutShort(_ *http.Request, serve func() *http.Response) (*http.Response, error) {
	answer := serve()
	data, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data[:len(data)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	return answer, err
}

var faults = []fault{
	breaks("killed before", false, true, errKilled),
	breaks("killed after", true, true, errKilled),
	breaks("connection reset before", false, false, syscall.ECONNRESET),
	breaks("connection reset after", true, false, syscall.ECONNRESET),
	answers(http.StatusInternalServerError, oci.ErrUnreachable),
	answers(http.StatusTooManyRequests, oci.ErrUnreachable),
	answers(http.StatusUnauthorized, oci.ErrUnauthorized),
	answers(http.StatusForbidden, oci.ErrUnauthorized),
	{name: "cut short", do: cutShort},
}

// publishWith has request k of w's publication, which counts from 1, meet f. It says whether there was one,
// and which error that has to make: denied trust documents are none.
func publishWith(w *world, line *wire, f fault, k int) (met bool, want, err error) {
	var made atomic.Int64 // deltas are made side by side
	want = f.want
	line.on = func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
		n := int(made.Add(1))
		if n == k && errors.Is(want, oci.ErrUnauthorized) && strings.Contains(r.URL.Path, "/"+bundle.TrustRepository+"/") {
			want = nil
		}
		if n == k || f.kills && n > k {
			return f.do(r, serve)
		}
		return serve(), nil
	}
	_, err = w.publish()
	line.on = nil
	return int(made.Load()) >= k, want, err
}

// Each request of a publication fails in turn. What a reader finds is whole each time, and the next
// publication completes it. Killed is also the first one to a registry. In a sample each
// request meets a third of the faults that do not kill.
func TestAPublicationWhoseAnyRequestFailsLeavesNothingIncomplete(t *testing.T) {
	t.Parallel()
	for n, f := range faults {
		for _, first := range []bool{true, false} {
			if first && !f.kills {
				continue // nothing differs from the later ones
			}
			t.Run(fmt.Sprintf("%s, for the first time: %t", f.name, first), func(t *testing.T) {
				t.Parallel()
				begin, step := 1, 1
				switch {
				case sweeptest.Full():
				case !f.kills:
					begin, step = 1+n%3, 3
				case first: // each request fails in one of the two
					step = 2
				default:
					begin, step = 2, 2
				}
				w, line := newWiredWorld(t)
				agent := w.newFollower(line.handler)
				w.mustPublish()
				for k, met := begin, true; met; k += step {
					if first {
						w, line = newWiredWorld(t)
						agent = w.newFollower(line.handler)
					}
					w.publishes(fmt.Sprint("release ", k))
					met = failAt(t, w, line, f, k, agent)
					require.Less(t, k, 100)
				}
			})
		}
	}
}

func failAt(t *testing.T, w *world, line *wire, f fault, k int, agent *follower) (met bool) {
	met, want, err := publishWith(w, line, f, k)
	if met && want != nil {
		require.ErrorIs(t, err, want, "request %d", k)
		require.Regexp(t, `^publish to oci://127.0.0.1:5000/line/a: .* 127.0.0.1:5000/line/a/\S+: (registry unreachable|unauthorized): \S`, err.Error())
	} else if !met {
		require.NoError(t, err)
	}
	require.NoError(t, agent.poll(), "request %d", k)
	w.mustPublish()
	agent.requireSettled("request %d", k)
	return met
}
