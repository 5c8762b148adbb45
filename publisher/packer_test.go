package publisher

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestWhatIsPackedAsItIsRenderedIsTheSame(t *testing.T) {
	w := newWorld(t, "layout")
	w.mustPublish()
	before := w.state()

	large, small := &w.result.ClusterTypes[1], &w.result.ClusterTypes[2]
	small.Annotations = map[string]string{scheduler.PinAnnotation: scheduler.PinCommit}
	small.Assignments = []scheduler.Assignment{assignment("small", "web-live", "v1")}
	large.Failures = []scheduler.Failure{{Name: "db-live", ClusterType: "large", Err: errors.New("it fails")}}
	w.opts.Packed = pack.NewPacker(nil, "dev")
	for i := range w.result.ClusterTypes {
		require.NoError(t, w.opts.Packed.Take(&w.result.ClusterTypes[i]))
	}
	require.Nil(t, w.result.ClusterTypes[0].Assignments[0].Files)
	require.NotNil(t, large.Assignments[0].Files, "a failure may be held")
	require.NotNil(t, small.Assignments[0].Files, "pins are to come")

	large.Failures, small.Annotations, small.Assignments = nil, nil, nil
	outcomes, p := w.mustPublish()
	require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomeUnchanged}, outcomes)
	require.Equal(t, 2, row(t, p, "drone").Assignments)
	require.Equal(t, before, w.state())

	w.opts.Unread = []platform.Unread{{Registration: "shop", Err: errors.New("unreachable")}}
	_, err := w.publish()
	require.ErrorContains(t, err, "exclude each other")
}
