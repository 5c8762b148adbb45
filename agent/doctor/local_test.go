package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

func TestWhatIsMissingOrFailedIsNotCalledOK(t *testing.T) {
	e := &examination{carry: &carry.Status{Artifacts: 4, Missing: 1, MissingBytes: 210 << 20, MissingAtMost: true}}
	f := checkCarry(t.Context(), e)
	require.Equal(t, diagnosis.Warning, f.Result)
	require.Equal(t, "1 of 4 artifacts are missing, at most 210 MiB", f.Message)
	require.NotEmpty(t, f.Remedy)
	e.carry = &carry.Status{Artifacts: 4}
	require.Equal(t, diagnosis.OK, checkCarry(t.Context(), e).Result)

	require.Equal(t, diagnosis.Warning, stated(bundle.Failed, "running; state failed").Result)
	require.Equal(t, diagnosis.Warning, stated(bundle.Rejected, "running; state rejected").Result)
	require.Equal(t, diagnosis.OK, stated(bundle.Progressing, "running; state progressing").Result)
}

func TestAClockThatIsRightIsShown(t *testing.T) {
	e := &examination{Subject: Subject{Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }}, skew: new(time.Duration)}
	require.Equal(t, diagnosis.Okf("it agrees with the registry's: 2026-03-01T12:00:00Z"), checkClock(t.Context(), e))
	e.skew, e.issuedAt = nil, e.Now().Add(-time.Hour)
	require.Equal(t, diagnosis.Okf("it is 2026-03-01T12:00:00Z, later than the newest release was issued"), checkClock(t.Context(), e))
}
