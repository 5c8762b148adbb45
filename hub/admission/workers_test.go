package admission

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestWorkersLeaveProcessorsToQuestions(t *testing.T) {
	for _, tt := range []struct{ processors, questions, want int }{
		{1, 0, 1},
		{1, 5, 1},
		{2, 0, 2},
		{2, 1, 1},
		{2, 9, 1},
		{8, 3, 5},
		{8, 9, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkers(tt.processors)
			var asked []func()
			for range tt.questions {
				asked = append(asked, w.ask())
			}
			begun, release := 0, make(chan struct{})
			ended := make(chan struct{})
			for range 10 {
				go func() {
					end, err := w.begin(t.Context())
					w.mu.Lock()
					begun++
					w.mu.Unlock()
					<-release
					if err == nil {
						end()
					}
					ended <- struct{}{}
				}()
			}
			synctest.Wait()
			require.Equal(t, tt.want, begun)
			for _, done := range asked {
				done()
			}
			synctest.Wait()
			require.Equal(t, min(10, tt.processors), begun, "the questions are answered")
			close(release)
			for range 10 {
				<-ended
			}
			require.Equal(t, 10, begun)
			require.Zero(t, w.busy)
			require.Empty(t, w.waiting)
		})
	}
}

func TestAWorkerThatIsGivenUpTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(1)
		end, err := w.begin(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := w.begin(ctx)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		end()
		end, err = w.begin(t.Context())
		require.NoError(t, err)
		end()
	})
}
