package assignments

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// The record of an assignment whose content was applied at epoch, in each state, and what an engine's
// answer one minute later makes of it.
func TestAnswersMoveAnAssignmentFromStateToState(t *testing.T) {
	content := digest.FromString("content")
	minute := epoch.Add(time.Minute)
	for _, tc := range []struct {
		name   string
		before Record
		answer reconcilers.Result
		rules  Rules
		state  bundle.State
		reason string
		since  time.Time
	}{
		{"applied at once", Record{Item: bundle.Item{State: bundle.Applying, Since: epoch}}, reconcilers.Result{State: bundle.Compliant}, Rules{}, bundle.Compliant, "", minute},
		{"still compliant", Record{Item: bundle.Item{State: bundle.Compliant, Since: epoch}}, reconcilers.Result{State: bundle.Compliant}, Rules{}, bundle.Compliant, "", epoch},
		{"compliant, but not for long enough", Record{Item: bundle.Item{State: bundle.Applying, Since: epoch}}, reconcilers.Result{State: bundle.Compliant}, Rules{Settle: time.Minute}, bundle.Progressing, "Settling", minute},
		{
			"compliant for long enough",
			Record{Item: bundle.Item{State: bundle.Progressing, Since: epoch}, HealthyAt: epoch},
			reconcilers.Result{State: bundle.Compliant},
			Rules{Settle: time.Minute},
			bundle.Compliant, "", minute,
		},
		{"progressing", Record{AppliedAt: epoch}, reconcilers.Result{State: bundle.Progressing, Reason: "Rolling"}, Rules{Deadline: time.Minute}, bundle.Progressing, "Rolling", minute},
		{"progressing for too long", Record{AppliedAt: epoch}, reconcilers.Result{State: bundle.Progressing}, Rules{Deadline: time.Second}, bundle.Failed, "DeadlineExceeded", minute},
		{"fetching for longer than an engine may take", Record{AppliedAt: epoch}, reconcilers.Result{State: bundle.Pulling, Reason: "Fetching"}, Rules{Deadline: time.Second}, bundle.Pulling, "Fetching", minute},
		{
			"progressing again a good while after it was applied",
			Record{Item: bundle.Item{State: bundle.Compliant, Since: epoch}, AppliedAt: epoch, HealthyAt: epoch},
			reconcilers.Result{State: bundle.Progressing},
			Rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"progressing toward what it has drifted from long after it was applied",
			Record{Item: bundle.Item{State: bundle.Applying, Since: minute}, AppliedAt: epoch, Before: &Standing{bundle.Drifted, minute}},
			reconcilers.Result{State: bundle.Progressing},
			Rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"progressing again after it has failed by itself",
			Record{Item: bundle.Item{State: bundle.Applying, Since: minute}, AppliedAt: epoch, Before: &Standing{bundle.Failed, epoch}},
			reconcilers.Result{State: bundle.Progressing},
			Rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"too late as before, after another attempt",
			Record{Item: bundle.Item{State: bundle.Applying, Since: minute}, AppliedAt: epoch, Before: &Standing{bundle.Failed, epoch}, Late: true},
			reconcilers.Result{State: bundle.Progressing},
			Rules{Deadline: time.Second},
			bundle.Failed, "DeadlineExceeded", epoch,
		},
		{
			"under way at last, after it had to wait",
			Record{Item: bundle.Item{State: bundle.Pending, Since: epoch}, AppliedAt: epoch},
			reconcilers.Result{State: bundle.Progressing},
			Rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"failed as before, after another attempt",
			Record{Item: bundle.Item{State: bundle.Applying, Since: minute}, Before: &Standing{bundle.Failed, epoch}},
			reconcilers.Result{State: bundle.Failed, Reason: "ApplyFailed"},
			Rules{},
			bundle.Failed, "ApplyFailed", epoch,
		},
		{
			"failed no longer",
			Record{Item: bundle.Item{State: bundle.Applying, Since: minute}, Before: &Standing{bundle.Failed, epoch}},
			reconcilers.Result{State: bundle.Compliant},
			Rules{},
			bundle.Compliant, "", minute,
		},
		{"drifted", Record{Item: bundle.Item{State: bundle.Compliant, Since: epoch}}, reconcilers.Result{State: bundle.Drifted, Reason: "Differs"}, Rules{}, bundle.Drifted, "Differs", minute},
		{"gone", Record{Removing: true}, reconcilers.Result{State: bundle.Removed}, Rules{}, bundle.Removed, "", minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.before.Spec.Content, tc.before.Applied = content, content
			got := tc.before.After(tc.answer, tc.rules, minute)
			require.Equal(t, tc.state, got.Item.State)
			require.Equal(t, tc.reason, got.Item.Reason)
			require.Equal(t, tc.since, got.Item.Since)
			require.Nil(t, got.Before)
		})
	}
}

func TestAMessageIsCut(t *testing.T) {
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	r := Record{}.After(reconcilers.Result{State: bundle.Failed, Message: string(long)}, Rules{}, epoch)
	require.LessOrEqual(t, len(r.Item.Message), bundle.MaxMessageBytes)
}

func TestListingAnAssignmentAgainKeepsHowItStands(t *testing.T) {
	a := bundle.Assignment{Name: "shop-main", Content: digest.FromString("1")}
	r := Record{}.Listed(a, "directory", epoch)
	require.Equal(t, bundle.Pending, r.Item.State)
	r = r.Begun("directory", epoch).After(reconcilers.Result{State: bundle.Compliant, Revision: "r1"}, Rules{}, epoch)
	later := epoch.Add(time.Hour)

	same := r.Listed(a, "directory", later)
	require.Equal(t, r.Item, same.Item)

	a.ServiceAccount = "shop/wherry-retail"
	confined := r.Listed(a, "directory", later)
	require.Equal(t, bundle.Pending, confined.Item.State)
	require.True(t, confined.Stale("directory"), "somebody else is to apply it")

	a.Content = digest.FromString("2")
	changed := r.Listed(a, "directory", later)
	require.Equal(t, bundle.Pending, changed.Item.State)
	require.Equal(t, later, changed.Item.Since)
	require.True(t, changed.Stale("directory"))
	require.True(t, r.Stale("kubernetes"))

	a.Content = digest.FromString("1")
	a.RestartOnConfig = true
	require.Equal(t, bundle.Pending, r.Listed(a, "directory", later).Item.State, "the same files are to be brought about in another way")
	asked := r.Listed(a, "directory", later).Begun("directory", later)
	require.False(t, asked.Stale("directory"))

	gone := r.Dropped(later)
	require.True(t, gone.Removing)
	back := gone.Listed(bundle.Assignment{Name: "shop-main", Content: digest.FromString("1")}, "directory", later)
	require.False(t, back.Removing)
}

func TestAnotherDigestOfWhatIsFetchedIsToBeApplied(t *testing.T) {
	a := bundle.Assignment{Name: "shop-dev", Content: digest.FromString("content")}
	a.Fetched = []bundle.FetchedArtifact{{Reference: "oci://registry.example/models/eye:1", Digest: digest.FromString("1")}}
	r := Record{}.Listed(a, "directory", epoch).Begun("directory", epoch)
	r = r.After(reconcilers.Result{State: bundle.Pulling}, Rules{}, epoch)
	require.True(t, r.Unsettled(), "it is looked at again")
	r = r.After(reconcilers.Result{State: bundle.Compliant}, Rules{}, epoch)
	require.Equal(t, bundle.Compliant, r.Listed(a, "directory", epoch).Item.State)
	require.False(t, r.Stale("directory"))

	a.Fetched = []bundle.FetchedArtifact{{Reference: "oci://registry.example/models/eye:1", Digest: digest.FromString("2")}}
	r = r.Listed(a, "directory", epoch)
	require.Equal(t, bundle.Pending, r.Item.State)
	require.True(t, r.Stale("directory"))
}

func TestTheFaultOfAFailureIsKept(t *testing.T) {
	content := digest.FromString("content")
	failed := func(adapter, reason string, fault reconcilers.Fault) Record {
		spec := bundle.Assignment{Content: content}
		return Record{Item: bundle.Item{State: bundle.Failed, Adapter: adapter, Reason: reason}, Spec: spec, Applied: spec.Desired(), Adapter: adapter, Fault: fault}
	}
	t.Run("as the engine gives it", func(t *testing.T) {
		for given, want := range map[reconcilers.Fault]reconcilers.Fault{
			reconcilers.FaultSite: reconcilers.FaultSite, reconcilers.FaultRelease: reconcilers.FaultRelease, "": reconcilers.FaultRelease,
		} {
			r := failed("ansible", "EngineMissing", "").After(reconcilers.Result{State: bundle.Failed, Reason: "Other", Fault: given}, Rules{}, epoch)
			require.Equal(t, want, r.Fault)
			require.Equal(t, want == reconcilers.FaultRelease, r.Blames())
			require.Empty(t, r.Begun("ansible", epoch).Fault, "which is no failure any more")
			require.Equal(t, want, r.Listed(r.Spec, r.Item.Adapter, epoch).fault())
		}
	})
	t.Run("and judged by the reason where an earlier version did not keep it", func(t *testing.T) {
		for _, tc := range []struct {
			adapter, reason string
			fault, want     reconcilers.Fault
		}{
			{"zarf", "ZarfTooOld", "", reconcilers.FaultSite},
			{"flux", "KindNotServed", "", reconcilers.FaultSite},
			{"kubernetes", "KindNotServed", "", reconcilers.FaultRelease},
			{"kubernetes", "Conflict", "", reconcilers.FaultRelease},
			{"zarf", "ZarfTooOld", reconcilers.FaultRelease, reconcilers.FaultRelease},
		} {
			r := failed(tc.adapter, tc.reason, tc.fault)
			require.Equal(t, tc.want, r.fault(), "%+v", tc)
			require.Equal(t, tc.want == reconcilers.FaultRelease, r.Blames(), "%+v", tc)
		}
		old, seen := failed("zarf", "ZarfTooOld", ""), failed("zarf", "ZarfTooOld", "").After(reconcilers.Result{State: bundle.Failed, Reason: "ZarfTooOld", Fault: reconcilers.FaultSite}, Rules{}, epoch)
		require.False(t, seen.Same(old), "so that it is written")
	})
}
