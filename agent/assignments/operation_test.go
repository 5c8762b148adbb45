package assignments

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// What an assignment needs by how it stands, where the engine directory has its content, and is the one to have it.
func TestAnAssignmentNeedsWhatItsStateSays(t *testing.T) {
	spec := bundle.Assignment{Name: "a-x", Content: digest.FromString("1")}
	stands := func(state bundle.State, change func(*Record)) Record {
		r := Record{Spec: spec, Item: bundle.Item{State: state}, Applied: spec.Desired(), Adapter: "directory"}
		if change != nil {
			change(&r)
		}
		return r
	}
	reported := func(r *Record) {
		r.Spec.Drift, r.Reached.Desired = "report", r.Applied
	}
	for _, tc := range []struct {
		name            string
		record          Record
		configured      bool
		due, unfinished Operation
	}{
		{"compliant", stands(bundle.Compliant, nil), true, Nothing, Nothing},
		{"suspended", stands(bundle.Suspended, nil), true, Nothing, Nothing},
		{"in progress", stands(bundle.Progressing, nil), true, Nothing, Observe},
		{"being fetched", stands(bundle.Pulling, nil), true, Nothing, Observe},
		{"interrupted", stands(bundle.Applying, nil), true, Change, Change},
		{"waits", stands(bundle.Pending, nil), true, Change, Change},
		{"failed", stands(bundle.Failed, nil), true, Change, Nothing},
		{"drifted", stands(bundle.Drifted, nil), true, Correct, Nothing},
		{"drifted, and only to be reported", stands(bundle.Drifted, reported), true, Nothing, Nothing},
		{"failed, and only to be reported", stands(bundle.Failed, reported), true, Observe, Nothing},
		{"interrupted, and only to be reported", stands(bundle.Applying, reported), true, Observe, Observe},
		{"other content", stands(bundle.Pending, func(r *Record) { r.Applied = "" }), true, Change, Change},
		{"with another engine", stands(bundle.Pending, func(r *Record) { r.Adapter = "flux" }), true, Change, Change},
		{"without its engine", stands(bundle.Failed, func(r *Record) { r.Applied = "" }), false, Nothing, Nothing},
		{"in progress with an engine that has gone", stands(bundle.Progressing, func(r *Record) { r.Adapter = "flux" }), false, Nothing, Nothing},
		{"to be removed", stands(bundle.Pending, func(r *Record) { r.Removing = true }), true, Change, Change},
		{"could not be removed", stands(bundle.Failed, func(r *Record) { r.Removing = true }), true, Change, Nothing},
		{"to be removed without its engine", stands(bundle.Progressing, func(r *Record) { r.Removing = true }), false, Change, Change},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.due, tc.record.Due("directory", tc.configured))
			require.Equal(t, tc.unfinished, tc.record.Unfinished("directory"))
			require.Equal(t, tc.due > Observe, tc.due.Changes())
		})
	}
}
