package agent

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// The record of an assignment whose content was applied at epoch, in each state, and what an engine's
// answer one minute later makes of it.
func TestAnswersMoveAnAssignmentFromStateToState(t *testing.T) {
	content := digest.FromString("content")
	minute := epoch.Add(time.Minute)
	for _, tc := range []struct {
		name   string
		before record
		answer reconcilers.Result
		rules  rules
		state  bundle.State
		reason string
		since  time.Time
	}{
		{"applied at once", record{Item: bundle.Item{State: bundle.Applying, Since: epoch}}, reconcilers.Result{State: bundle.Compliant}, rules{}, bundle.Compliant, "", minute},
		{"still compliant", record{Item: bundle.Item{State: bundle.Compliant, Since: epoch}}, reconcilers.Result{State: bundle.Compliant}, rules{}, bundle.Compliant, "", epoch},
		{"compliant, but not for long enough", record{Item: bundle.Item{State: bundle.Applying, Since: epoch}}, reconcilers.Result{State: bundle.Compliant}, rules{Settle: time.Minute}, bundle.Progressing, "Settling", minute},
		{
			"compliant for long enough",
			record{Item: bundle.Item{State: bundle.Progressing, Since: epoch}, HealthyAt: epoch},
			reconcilers.Result{State: bundle.Compliant},
			rules{Settle: time.Minute},
			bundle.Compliant, "", minute,
		},
		{"progressing", record{AppliedAt: epoch}, reconcilers.Result{State: bundle.Progressing, Reason: "Rolling"}, rules{Deadline: time.Minute}, bundle.Progressing, "Rolling", minute},
		{"progressing for too long", record{AppliedAt: epoch}, reconcilers.Result{State: bundle.Progressing}, rules{Deadline: time.Second}, bundle.Failed, "DeadlineExceeded", minute},
		{"fetching for longer than an engine may take", record{AppliedAt: epoch}, reconcilers.Result{State: bundle.Pulling, Reason: "Fetching"}, rules{Deadline: time.Second}, bundle.Pulling, "Fetching", minute},
		{
			"progressing again a good while after it was applied",
			record{Item: bundle.Item{State: bundle.Compliant, Since: epoch}, AppliedAt: epoch, HealthyAt: epoch},
			reconcilers.Result{State: bundle.Progressing},
			rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"progressing toward what it has drifted from long after it was applied",
			record{Item: bundle.Item{State: bundle.Applying, Since: minute}, AppliedAt: epoch, Before: &standing{bundle.Drifted, minute}},
			reconcilers.Result{State: bundle.Progressing},
			rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"progressing again after it has failed by itself",
			record{Item: bundle.Item{State: bundle.Applying, Since: minute}, AppliedAt: epoch, Before: &standing{bundle.Failed, epoch}},
			reconcilers.Result{State: bundle.Progressing},
			rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"too late as before, after another attempt",
			record{Item: bundle.Item{State: bundle.Applying, Since: minute}, AppliedAt: epoch, Before: &standing{bundle.Failed, epoch}, Late: true},
			reconcilers.Result{State: bundle.Progressing},
			rules{Deadline: time.Second},
			bundle.Failed, "DeadlineExceeded", epoch,
		},
		{
			"under way at last, after it had to wait",
			record{Item: bundle.Item{State: bundle.Pending, Since: epoch}, AppliedAt: epoch},
			reconcilers.Result{State: bundle.Progressing},
			rules{Deadline: time.Second},
			bundle.Progressing, "", minute,
		},
		{
			"failed as before, after another attempt",
			record{Item: bundle.Item{State: bundle.Applying, Since: minute}, Before: &standing{bundle.Failed, epoch}},
			reconcilers.Result{State: bundle.Failed, Reason: "ApplyFailed"},
			rules{},
			bundle.Failed, "ApplyFailed", epoch,
		},
		{
			"failed no longer",
			record{Item: bundle.Item{State: bundle.Applying, Since: minute}, Before: &standing{bundle.Failed, epoch}},
			reconcilers.Result{State: bundle.Compliant},
			rules{},
			bundle.Compliant, "", minute,
		},
		{"drifted", record{Item: bundle.Item{State: bundle.Compliant, Since: epoch}}, reconcilers.Result{State: bundle.Drifted, Reason: "Differs"}, rules{}, bundle.Drifted, "Differs", minute},
		{"gone", record{Removing: true}, reconcilers.Result{State: bundle.Removed}, rules{}, bundle.Removed, "", minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.before.Spec.Content, tc.before.Applied = content, content
			got := tc.before.after(tc.answer, tc.rules, minute)
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
	r := record{}.after(reconcilers.Result{State: bundle.Failed, Message: string(long)}, rules{}, epoch)
	require.LessOrEqual(t, len(r.Item.Message), bundle.MaxMessageBytes)
}

func TestListingAnAssignmentAgainKeepsHowItStands(t *testing.T) {
	a := bundle.Assignment{Name: "shop-main", Content: digest.FromString("1")}
	r := record{}.listed(a, "directory", epoch)
	require.Equal(t, bundle.Pending, r.Item.State)
	r = r.begun("directory", epoch).after(reconcilers.Result{State: bundle.Compliant, Revision: "r1"}, rules{}, epoch)
	later := epoch.Add(time.Hour)

	same := r.listed(a, "directory", later)
	require.Equal(t, r.Item, same.Item)

	a.ServiceAccount = "shop/wherry-retail"
	confined := r.listed(a, "directory", later)
	require.Equal(t, bundle.Pending, confined.Item.State)
	require.True(t, confined.stale("directory"), "somebody else is to apply it")

	a.Content = digest.FromString("2")
	changed := r.listed(a, "directory", later)
	require.Equal(t, bundle.Pending, changed.Item.State)
	require.Equal(t, later, changed.Item.Since)
	require.True(t, changed.stale("directory"))
	require.True(t, r.stale("kubernetes"))

	a.Content = digest.FromString("1")
	a.RestartOnConfig = true
	require.Equal(t, bundle.Pending, r.listed(a, "directory", later).Item.State, "the same files are to be brought about in another way")
	asked := r.listed(a, "directory", later).begun("directory", later)
	require.False(t, asked.stale("directory"))

	gone := r.dropped(later)
	require.True(t, gone.Removing)
	back := gone.listed(bundle.Assignment{Name: "shop-main", Content: digest.FromString("1")}, "directory", later)
	require.False(t, back.Removing)
}

func TestAnotherDigestOfWhatIsFetchedIsToBeApplied(t *testing.T) {
	a := bundle.Assignment{Name: "shop-dev", Content: digest.FromString("content")}
	a.Fetched = []bundle.FetchedArtifact{{Reference: "oci://registry.example/models/eye:1", Digest: digest.FromString("1")}}
	r := record{}.listed(a, "directory", epoch).begun("directory", epoch)
	r = r.after(reconcilers.Result{State: bundle.Pulling}, rules{}, epoch)
	require.True(t, r.unsettled(), "it is looked at again")
	r = r.after(reconcilers.Result{State: bundle.Compliant}, rules{}, epoch)
	require.Equal(t, bundle.Compliant, r.listed(a, "directory", epoch).Item.State)
	require.False(t, r.stale("directory"))

	a.Fetched = []bundle.FetchedArtifact{{Reference: "oci://registry.example/models/eye:1", Digest: digest.FromString("2")}}
	r = r.listed(a, "directory", epoch)
	require.Equal(t, bundle.Pending, r.Item.State)
	require.True(t, r.stale("directory"))
}

func TestTheFaultOfAFailureIsKept(t *testing.T) {
	content := digest.FromString("content")
	failed := func(adapter, reason string, fault reconcilers.Fault) record {
		spec := bundle.Assignment{Content: content}
		return record{Item: bundle.Item{State: bundle.Failed, Adapter: adapter, Reason: reason}, Spec: spec, Applied: spec.Desired(), Adapter: adapter, Fault: fault}
	}
	t.Run("as the engine gives it", func(t *testing.T) {
		for given, want := range map[reconcilers.Fault]reconcilers.Fault{
			reconcilers.FaultSite: reconcilers.FaultSite, reconcilers.FaultRelease: reconcilers.FaultRelease, "": reconcilers.FaultRelease,
		} {
			r := failed("ansible", "EngineMissing", "").after(reconcilers.Result{State: bundle.Failed, Reason: "Other", Fault: given}, rules{}, epoch)
			require.Equal(t, want, r.Fault)
			require.Equal(t, want == reconcilers.FaultRelease, r.blames())
			require.Empty(t, r.begun("ansible", epoch).Fault, "which is no failure any more")
			require.Equal(t, want, r.listed(r.Spec, r.Item.Adapter, epoch).fault())
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
			require.Equal(t, tc.want == reconcilers.FaultRelease, r.blames(), "%+v", tc)
		}
		old, seen := failed("zarf", "ZarfTooOld", ""), failed("zarf", "ZarfTooOld", "").after(reconcilers.Result{State: bundle.Failed, Reason: "ZarfTooOld", Fault: reconcilers.FaultSite}, rules{}, epoch)
		require.False(t, seen.same(old), "so that it is written")
	})
}
