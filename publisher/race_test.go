package publisher

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// turn is one publisher's run, which stops before its request number at until it is resumed.
type turn struct {
	paused chan bool // true where it stopped, false where it ended first
	resume chan bool // false kills it where it stands
	done   chan error
}

// start runs w's publication up to its request at, which counts from 1, and waits for that.
func start(w *world, line *wire, at int) (_ *turn, stopped bool) {
	t := &turn{paused: make(chan bool, 1), resume: make(chan bool), done: make(chan error, 1)}
	n, killed := 0, false
	line.on = func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
		if !isAboutTags(r) && !killed {
			return serve(), nil
		}
		if n++; n == at {
			t.paused <- true
			killed = !<-t.resume
		}
		if killed {
			return nil, errKilled
		}
		return serve(), nil
	}
	go func() {
		_, err := w.publish()
		line.on = nil
		t.paused <- false
		t.done <- err
	}()
	return t, <-t.paused
}

// end lets it go on, or kills it, and waits for its end.
func (t *turn) end(goOn bool) error {
	select {
	case t.resume <- goOn:
		return <-t.done
	case err := <-t.done:
		return err
	}
}

// Two publishers, A and B, each stop once, at every pair of their requests: A up to i, B up to j, the rest
// of A, the rest of B. Whatever one of them overwrote, all ends on one newest release. Where B is killed
// instead, whoever publishes next puts it right. A sample is each fifth pair, in one way.
func TestTwoPublishersInterleavedAtAnyTwoRequestsEndTheSameEverywhere(t *testing.T) {
	t.Parallel()
	var ways []way
	for _, ahead := range []time.Duration{-10 * time.Second, 0, 10 * time.Second} {
		for _, content := range []string{"new", "newer"} {
			ways = append(ways, way{content, ahead, false}, way{content, ahead, true})
		}
	}
	pairs, step := 0, sweeptest.Every(5)
	for i, ended := 1, false; !ended; i++ {
		for j, bEnded := 1+i%step, false; !bEnded; j += step {
			pairs++
			if !sweeptest.Full() {
				ended, bEnded = interleave(t, i, j, ways[(i+5*j)%len(ways)])
				continue
			}
			for _, w := range ways {
				aEnds, bEnds := interleave(t, i, j, w)
				ended, bEnded = ended || aEnds, bEnded || bEnds
			}
		}
	}
	require.Greater(t, pairs, 40)
}

// way is how publisher B differs from A, which publishes "new".
type way struct {
	content string
	ahead   time.Duration // its clock
	killed  bool          // where it stands, instead of going on
}

// interleave reports whether A and B ended before they came to their request.
func interleave(t *testing.T, i, j int, how way) (aEnded, bEnded bool) {
	w, line := newWiredWorld(t)
	agent := w.newFollower(line.handler)
	w.mustPublish()
	require.NoError(t, agent.poll())
	w.publishes("new")
	b, bLine := w.beside(line.handler, how.content)
	b.now = w.now.Add(how.ahead)
	at := fmt.Sprintf("A before request %d, B before %d: %+v", i, j, how)

	turnA, aStopped := start(w, line, i)
	turnB, bStopped := start(b, bLine, j)
	require.NoError(t, agent.poll(), at)
	require.NoError(t, turnA.end(true), at)
	require.NoError(t, agent.poll(), at)
	err := turnB.end(!how.killed)
	if !how.killed || !bStopped {
		require.NoError(t, err, at)
		agent.requireSettled(at)
		return !aStopped, !bStopped
	}
	require.ErrorIs(t, err, oci.ErrUnreachable, at)
	require.ErrorIs(t, err, errKilled, at)
	require.NoError(t, agent.poll(), at)
	_, err = w.publish()
	require.NoError(t, err, at)
	agent.requireSettled(at)
	return !aStopped, !bStopped
}
