package hubapi

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCodes(t *testing.T) {
	docs, err := os.ReadFile("../../docs/hub.md")
	require.NoError(t, err)
	reference, err := os.ReadFile("../../docs/reference/hub.md")
	require.NoError(t, err)
	for _, tc := range []struct {
		code                 Code
		status               int
		permanent, untrusted bool
	}{
		{CodeUnknownCluster, 403, false, true},
		{CodeUnknownKey, 403, false, true},
		{CodeBadSignature, 403, true, true},
		{CodeWrongCluster, 403, true, true},
		{CodeBadReport, 403, true, false},
		{CodeTooLarge, 413, true, false},
		{CodeConflict, 403, true, false},
		{CodeKeyReplaced, 403, true, true},
		{CodeRetired, 403, true, true},
		{CodeBadRequest, 400, true, false},
		{CodeBusy, 429, true, false},
		{CodeOverQuota, 429, true, false},
		{CodeTooSlow, 408, true, false},
		{CodeWrongHost, 421, true, false},
		{CodeUnavailable, 503, true, false},
		{CodeUnauthenticated, 401, true, false},
		{CodeForbidden, 403, true, false},
		{CodeNotFound, 404, true, false},
		{CodeUnknownName, 404, true, false},
		{CodeForgotten, 410, true, false},
		{CodeBadToken, 403, true, false},
		{CodeTokenExpired, 403, true, false},
		{CodeTokenUsed, 403, true, false},
		{CodeTokenRevoked, 403, true, false},
		{CodeWrongScope, 403, true, false},
		{CodeWrongHub, 403, true, false},
		{CodeExists, 403, true, false},
		{CodeSharedIdentity, 403, true, false},
	} {
		require.Equal(t, tc.status, tc.code.Status(), tc.code)
		require.Equal(t, tc.permanent, tc.code.Permanent(), tc.code)
		require.Equal(t, tc.untrusted, tc.code.Untrusted(), tc.code)
		require.Contains(t, string(docs)+string(reference), "`"+string(tc.code)+"`", "the documentation explains every code")
	}
}

func TestURLs(t *testing.T) {
	for _, base := range []string{"https://hub.example:8443", "https://hub.example:8443/"} {
		reports, err := ReportsURL(base, "a/b c")
		require.NoError(t, err)
		require.Equal(t, "https://hub.example:8443/v1/clusters/a%2Fb%20c/reports", reports)
		enroll, err := EnrollURL(base)
		require.NoError(t, err)
		require.Equal(t, "https://hub.example:8443/v1/enroll", enroll)
	}
	behind, err := EnrollURL("https://proxy.example/hub")
	require.NoError(t, err)
	require.Equal(t, "https://proxy.example/hub/v1/enroll", behind)
	_, err = ReportsURL("http://[::1", "uid")
	require.Error(t, err)
}

// The pattern and the URL are two spellings of one path.
func TestAHubTakesReportsWhereAgentsSendThem(t *testing.T) {
	for _, uid := range []string{"uid-1", "a/b", "ä", "%2F"} {
		mux := http.NewServeMux()
		got := ""
		mux.HandleFunc(ReportsPattern, func(_ http.ResponseWriter, r *http.Request) { got = r.PathValue("uid") })
		address, err := ReportsURL("http://hub", uid)
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
		require.NoError(t, err)
		mux.ServeHTTP(nil, r)
		require.Equal(t, uid, got)
	}
}

func TestARejectionIsPermanentUnlessItSaysOtherwise(t *testing.T) {
	for body, want := range map[string]bool{`{}`: true, `{"permanent":true}`: true, `{"permanent":false}`: false} {
		var r Receipt
		require.NoError(t, json.Unmarshal([]byte(`{"rejected":[`+body+`]}`), &r))
		require.Equal(t, want, r.Rejected[0].Permanent, body)
	}
	require.Error(t, json.Unmarshal([]byte(`{"rejected":[{"index":"x"}]}`), new(Receipt)))
}

func TestWireFormat(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value any
		want  string
	}{
		{"an empty receipt", Receipt{Rejected: []Rejection{}}, `{"accepted":0,"duplicates":0,"rejected":[],"pace":{"reportsPerMinute":0}}`},
		{
			"a full receipt",
			Receipt{
				Ack: json.RawMessage(`{}`), Accepted: 1, Duplicates: 2, Pace: Pace{ReportsPerMinute: 3},
				Rejected: []Rejection{{Index: 4, ID: "sha256:5", Cluster: "6", Reason: CodeConflict, Message: "7", Permanent: true}},
				Identity: &IdentityHint{Reason: CodeSharedIdentity, Message: "8"},
			},
			`{"ack":{},"accepted":1,"duplicates":2,"rejected":[{"index":4,"id":"sha256:5","cluster":"6","reason":"Conflict","message":"7","permanent":true}],` +
				`"identity":{"reason":"SharedIdentity","message":"8"},"pace":{"reportsPerMinute":3}}`,
		},
		{"a request", Reports{Reports: []json.RawMessage{json.RawMessage(`{}`)}}, `{"reports":[{}]}`},
		{"an enrollment", Enrolled{Enrollment: json.RawMessage(`{}`)}, `{"enrolment":{}}`},
		{"an error", Error{Code: CodeBusy, Message: "later"}, `{"code":"Busy","error":"later"}`},
	} {
		data, err := json.Marshal(tc.value)
		require.NoError(t, err)
		require.Equal(t, tc.want, string(data), tc.name)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "0": 0, "-5": 0, "90": 90 * time.Second,
		"9223372036854775807":           math.MaxInt64 / time.Second * time.Second,
		"Sat, 21 Nov 2026 12:01:00 GMT": time.Minute,
		"Sat, 21 Nov 2026 11:00:00 GMT": 0,
	} {
		require.Equal(t, want, RetryAfter(http.Header{"Retry-After": {value}}, now), value)
	}
	for wait, want := range map[time.Duration]string{time.Second: "1", time.Second + 1: "2", time.Minute: "60"} {
		h := http.Header{}
		SetRetryAfter(h, wait)
		require.Equal(t, want, h.Get("Retry-After"))
	}
}

func TestAnErrorIsAnAnswer(t *testing.T) {
	var err error = &Error{Code: CodeOverQuota, Message: "later <soon>", RetryAfter: 1500 * time.Millisecond}
	var e *Error
	require.ErrorAs(t, err, &e)
	w := httptest.NewRecorder()
	e.Write(w)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	require.Equal(t, ContentType, w.Header().Get("Content-Type"))
	require.Equal(t, "{\"code\":\"OverQuota\",\"error\":\"later <soon>\"}\n", w.Body.String())
	w = httptest.NewRecorder()
	(&Error{Code: CodeTooSlow}).Write(w)
	require.Empty(t, w.Header().Get("Retry-After"))
}

func TestPause(t *testing.T) {
	require.Zero(t, Pace{}.Pause(500, time.Hour))
	require.Equal(t, 30*time.Second, Pace{ReportsPerMinute: 100}.Pause(50, time.Hour))
	require.Equal(t, time.Hour, Pace{ReportsPerMinute: 1}.Pause(500, time.Hour))
}

func TestLimitsThatDocsName(t *testing.T) {
	docs, err := os.ReadFile("../../docs/reference/hub.md")
	require.NoError(t, err)
	for _, text := range []string{"1 to 500 DSSE envelopes", "1 MiB and 4 KiB together", "at most 4 MiB unpacked", "longer than 20 minutes"} {
		require.Contains(t, strings.Join(strings.Fields(string(docs)), " "), text)
	}
	require.Equal(t, []any{500, 1<<20 + 4<<10, 4 << 20, 20 * time.Minute}, []any{MaxReports, MaxRequestBytes, MaxInflatedBytes, MaxBodyTime})
}
