package publisher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// messages returns those of drone's releases, the newest first.
func (w *world) messages() []string {
	w.t.Helper()
	list, err := catalog.ListReleases(w.t.Context(), oci.Reference{Location: w.loc, Repository: "bundles/dev/drone"}, published.MaxListed, w.now, w.opts.OCI)
	require.NoError(w.t, err)
	var all []string
	for _, l := range list {
		all = append(all, l.Message)
	}
	return all
}

func TestAMessageStaysWithItsContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	require.NotContains(t, w.verified("drone", "latest").Manifest.Annotations, bundle.AnnotationMessage)

	w.opts.Message = "Web 2"
	w.says("v2")
	w.mustPublish()
	require.NotContains(t, w.verified("large", "latest").Manifest.Annotations, bundle.AnnotationMessage, "nothing was released there")
	require.Equal(t, []string{"Web 2", ""}, w.messages())

	w.opts.Message = "" // a timer publishes
	w.now = w.now.Add(80 * 24 * time.Hour)
	w.mustPublish()
	require.Equal(t, []string{"Web 2", "Web 2", ""}, w.messages(), "the same content is signed again")

	w.says("v3")
	w.mustPublish()
	require.Equal(t, []string{"", "Web 2", "Web 2", ""}, w.messages())
}

func TestRingsKeepTheMessageOfWhatTheyHave(t *testing.T) {
	t.Parallel()
	w := newRingWorld(t, "layout")
	w.opts.Message = "First"
	w.to("")
	w.opts.Message = "Second"
	w.says("v2")
	w.to("")
	w.opts.Message = ""
	w.to("broad")
	message := func(tag string) string { return bundle.MessageOf(w.verified("drone", tag).Manifest) }
	require.Equal(t, "Second", message("latest"), "it has reached all rings, as it was published to the first")
	w.opts.Message = "Third"
	w.says("v3")
	w.to("")
	w.now = w.now.Add(80 * 24 * time.Hour)
	w.opts.Message = "Renewal"
	w.to("")
	require.Equal(t, "Second", message("latest"))
	require.Equal(t, "Third", message("ring-canary"))
}

func TestAHostileMessageIsNotPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.opts.Message = "\x1b[2J"
	_, err := w.publish()
	require.ErrorAs(t, err, new(*usage.Error))
	require.EqualError(t, err, "message: it must be one line, without control characters")
}

func TestAMessageIsAPartOfWhatWaitsForSignatures(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	q.small("v1")
	q.opts.Message = "Anna's"
	q.outcomes(q.anna)
	q.opts.Message = "Bob's"
	q.outcomes(q.bob)
	q.now = q.now.Add(time.Minute)
	q.opts.Message = ""
	q.outcomes(q.anna)
	require.Equal(t, "Bob's", bundle.MessageOf(q.released("drone").Manifest), "who gives no message signs the one that is there")
}
