package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func requireCode(t *testing.T, want hubapi.Code, err error) *hubapi.Error {
	t.Helper()
	var e *hubapi.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Code)
	return e
}

func TestPaceDividesWhatAHubTakesAmongThoseWhoSend(t *testing.T) {
	p := newPacer(1000, DefaultQuota)
	at := epoch
	require.EqualValues(t, 1000, p.pace("a", at).ReportsPerMinute)
	require.EqualValues(t, 1000, p.pace("a", at).ReportsPerMinute)
	for i := range 9 {
		p.pace(fmt.Sprint(i), at)
	}
	require.EqualValues(t, 100, p.pace("a", at).ReportsPerMinute)
	at = at.Add(time.Minute)
	require.EqualValues(t, 100, p.pace("a", at).ReportsPerMinute, "those of the last minute may not have ended")
	at = at.Add(time.Minute)
	require.EqualValues(t, 1000, p.pace("a", at).ReportsPerMinute)
	for i := range 5000 {
		p.pace(fmt.Sprint(i), at)
	}
	require.EqualValues(t, 1, p.pace("a", at).ReportsPerMinute)
	require.EqualValues(t, 1000, p.pace("a", at.Add(-time.Hour)).ReportsPerMinute, "a clock that is set back")
}

func TestAFailedStoreCostsNothing(t *testing.T) {
	p := newPacer(1000, Quota{Reports: 10, Bytes: 1000})
	for range 5 {
		done, err := p.charge("a", 10, 100, epoch)
		require.NoError(t, err)
		done(false)
	}
	require.NoError(t, p.check("a", epoch))
	p.note("b", epoch.Add(time.Minute))
	require.Empty(t, p.accounts, "what is full is forgotten")
}

func TestOneClusterDoesNotHoldUpTheOthers(t *testing.T) {
	p := newPacer(1000, DefaultQuota)
	var ends []func(bool)
	for range maxStoring {
		done, err := p.charge("a", 1, 10, epoch)
		require.NoError(t, err)
		ends = append(ends, done)
	}
	_, err := p.charge("a", 1, 10, epoch)
	requireCode(t, hubapi.CodeBusy, err)
	_, err = p.charge("b", 1, 10, epoch)
	require.NoError(t, err)
	ends[0](true)
	_, err = p.charge("a", 1, 10, epoch)
	require.NoError(t, err)
}
