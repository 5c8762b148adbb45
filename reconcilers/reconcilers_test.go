package reconcilers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

func TestMessagesAreCutBetweenRunes(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("a", bundle.MaxMessageBytes)} {
		require.Equal(t, s, reconcilers.Clip(s))
	}
	for pad := range 4 {
		got := reconcilers.Clip(strings.Repeat("a", pad) + strings.Repeat("é€🚢", bundle.MaxMessageBytes))
		require.LessOrEqual(t, len(got), bundle.MaxMessageBytes)
		require.Greater(t, len(got), bundle.MaxMessageBytes-8)
		require.True(t, utf8.ValidString(got))
		require.True(t, strings.HasSuffix(got, "…"))
	}
}

func TestMessagesThatAreNotUTF8StayReadable(t *testing.T) {
	got := reconcilers.Clip("\xff" + strings.Repeat("a", 2*bundle.MaxMessageBytes))
	require.Greater(t, len(got), bundle.MaxMessageBytes-8, "one odd byte does not cost the rest")
}

func TestTheStateSaysWhetherTryingAgainCanHelp(t *testing.T) {
	err := errors.New("no")
	require.Equal(t, reconcilers.Result{State: bundle.Failed, Reason: "A", Fault: reconcilers.FaultRelease, Message: "no"}, reconcilers.Failure("A", err))
	require.Equal(t, reconcilers.Result{State: bundle.Pending, Reason: "A", Message: "no"}, reconcilers.Waiting("A", err))
	require.Equal(t, reconcilers.Result{State: bundle.Progressing, Reason: "Interrupted", Message: "no"}, reconcilers.Interrupted(err))
}

func TestAnErrorKeepsItsReasonAndFaultUnderMoreWords(t *testing.T) {
	missing := &reconcilers.Error{Reason: "EngineMissing", Fault: reconcilers.FaultSite, Err: errors.New("no such program")}
	require.Nil(t, reconcilers.Known(errors.New("anything")))
	known := reconcilers.Known(fmt.Errorf("apply shop: %w", missing))
	require.Equal(t, reconcilers.Result{State: bundle.Failed, Reason: "EngineMissing", Fault: reconcilers.FaultSite, Message: "apply shop: no such program"}, known.Result())
	require.ErrorIs(t, known, missing.Err)
	passes := &reconcilers.Error{Reason: "DiskFull", Err: errors.New("no room")}
	require.Equal(t, reconcilers.Result{State: bundle.Pending, Reason: "DiskFull", Message: "no room"}, passes.Result())
}
