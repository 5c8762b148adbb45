package admission

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

func TestABodyIsReadWholeAndLeavesNothing(t *testing.T) {
	g := New(Options{})
	broken := errors.New("the link is down")
	for _, tt := range []struct {
		name string
		body io.Reader
		code hubapi.Code
		is   error
	}{
		{"nothing", bytes.NewReader(nil), "", nil},
		{"a small one", bytes.NewReader(make([]byte, 100)), "", nil},
		{"as much as is allowed", bytes.NewReader(make([]byte, 10_000)), "", nil},
		{"more than is allowed", bytes.NewReader(make([]byte, 10_001)), hubapi.CodeTooLarge, nil},
		{"cut off", io.MultiReader(bytes.NewReader(make([]byte, 100)), errorReader{broken}), "", store.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", tt.body)
			w := httptest.NewRecorder()
			body, done, err := g.ReadBody(w, r, 10_000)
			switch {
			case tt.code != "":
				requireCode(t, tt.code, err)
			case tt.is != nil:
				require.ErrorIs(t, err, tt.is)
			default:
				require.NoError(t, err)
				_, bytes := g.bodies.Used()
				require.GreaterOrEqual(t, bytes, len(body), "it counts until it is done with")
				done()
			}
			if err != nil {
				require.Equal(t, "close", w.Header().Get("Connection"), "nothing more of the body is awaited")
			}
			held, bytes := g.bodies.Used()
			require.Zero(t, held)
			require.Zero(t, bytes)
		})
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestWorkAtOneTimeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		begun, ended := 0, make(chan func(), maxRequests)
		for range maxRequests {
			go func() {
				if end, err := g.BeginReports(ctx); err == nil {
					ended <- end
				}
			}()
		}
		synctest.Wait()
		begun = len(ended)
		require.Equal(t, maxIngests, begun, "the others wait")
		_, err := g.BeginReports(ctx)
		e := requireCode(t, hubapi.CodeBusy, err)
		require.GreaterOrEqual(t, e.RetryAfter, minRetry)
		require.Less(t, e.RetryAfter, maxRetry)

		(<-ended)()
		synctest.Wait()
		require.Len(t, ended, maxIngests, "the next one begins")
		cancel()
		synctest.Wait()
		for range maxIngests {
			(<-ended)()
		}
		require.Zero(t, g.pacer.requests)
		require.Empty(t, g.ingests)
	})
}

func TestEnrollmentsWaitForOneAnother(t *testing.T) {
	g := New(Options{})
	var ends []func()
	for range maxEnrollments {
		end, err := g.BeginEnrollment(t.Context())
		require.NoError(t, err)
		ends = append(ends, end)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.BeginEnrollment(ctx)
	require.ErrorIs(t, err, context.Canceled)
	ends[0]()
	_, err = g.BeginEnrollment(t.Context())
	require.NoError(t, err)
}

func TestOptionsLeftOpenAreTheDefaults(t *testing.T) {
	g := New(Options{Quota: Quota{Reports: 1}})
	require.Equal(t, Quota{Reports: 1, Bytes: DefaultQuota.Bytes}, g.pacer.quota)
	require.EqualValues(t, DefaultReportsPerMinute, g.Pace("a", time.Time{}).ReportsPerMinute)
}
