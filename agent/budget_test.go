package agent

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

// decoding is an engine that decodes the manifests that it gets, as those for clusters do.
type decoding struct {
	reconcilers.Reconciler
	t *testing.T
}

func (d decoding) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	data, err := os.ReadFile(a.Dir + "/f.yaml")
	require.NoError(d.t, err)
	_, err = manifests.Parse("f.yaml", data)
	require.NoError(d.t, err)
	return d.Reconciler.Apply(ctx, a)
}

// 1.1 KB in the registry became 4 GiB at each agent, which died of it again and again.
func TestAnAssignmentOfTooManyManifestsFailsAlone(t *testing.T) {
	t.Parallel()
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	s := newSite(t)
	s.opts.Engines.Adapter = "kubernetes"
	s.opts.Engines.Reconcilers["kubernetes"] = decoding{s.opts.Engines.Reconcilers["directory"], t}
	s.publish(s.draft(1, map[string]string{
		"a-bomb/f.yaml": object + "data:\n  a: &a \"" + strings.Repeat("x", 1<<20) + "\"\nspec: [" + strings.Repeat("*a,", 4000) + "]\n",
		"b-x/f.yaml":    object,
	}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := s.once()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20))
	require.Equal(t, bundle.Failed, r.Status.Items[0].State)
	require.Equal(t, "TooLarge", r.Status.Items[0].Reason)
	require.Contains(t, r.Status.Items[0].Message, "its manifests come to more than 33554432 bytes")
	require.Equal(t, bundle.Compliant, r.Status.Items[1].State)

	s.opts.MaxManifests = 1000 // a small machine
	s.publish(s.draft(2, map[string]string{"a-bomb/f.yaml": object + strings.Repeat("# long\n", 200), "b-x/f.yaml": object}))
	r = s.once()
	require.Equal(t, "TooLarge", r.Status.Items[0].Reason)
	require.Equal(t, bundle.Compliant, r.Status.Items[1].State)
	s.opts.MaxManifests = 2000
	require.Equal(t, bundle.Compliant, s.once().Status.State)
}
