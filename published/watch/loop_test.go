package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// place is a source whose state tests set.
type place struct {
	mu    sync.Mutex
	name  string
	state string
	err   error
	asked []time.Time
}

func (p *place) source() Source {
	return Source{Name: p.name, State: func(context.Context) (string, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, time.Now())
		return p.state, p.err
	}}
}

func (p *place) set(state string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.err = state, err
}

func (p *place) current() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *place) looks() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// The method Wake of told is a Waker that a test tells of changes. A closed one has ended.
type told chan struct{}

func (c told) Wake(ctx context.Context, wake func()) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-c:
			if !open {
				return nil
			}
			wake()
		}
	}
}

// run is a Run in a bubble of virtual time, whose steps are noted.
type run struct {
	mu     sync.Mutex
	began  time.Time
	steps  []time.Duration // since the beginning
	events []string
	seen   []string // the states at each step
	do     func(n int) (time.Time, error)
	end    func() error
}

// start calls Run and returns after the first step, which does nothing. Each step after it calls do.
func start(t *testing.T, o Options, places ...*place) *run {
	ctx, cancel := context.WithCancel(t.Context())
	r := &run{began: time.Now()}
	if len(places) > 0 {
		o.Sources = func() (all []Source) {
			for _, p := range places {
				all = append(all, p.source())
			}
			return all
		}
	}
	o.Tell = func(e Event) {
		if e.Kind == TurnBegan || e.Kind == TurnEnded {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, fmt.Sprint(e.Kind, " ", e.Source, " ", e.Err))
	}
	ended := make(chan error, 1)
	r.end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = r.end() })
	go func() {
		ended <- Run(ctx, o, func(_ context.Context, t *Turn) error {
			r.mu.Lock()
			n := len(r.steps)
			r.steps = append(r.steps, time.Since(r.began))
			for _, p := range places {
				r.seen = append(r.seen, p.current())
			}
			do := r.do
			r.mu.Unlock()
			if do == nil {
				return nil
			}
			next, err := do(n)
			t.At(next)
			return err
		})
	}()
	synctest.Wait()
	return r
}

func (r *run) at() []time.Duration {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}

func TestAStepRunsAtOnceAndAfterEachMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &place{name: "platform", state: "1"}
		r := start(t, Options{}, repo)
		require.Equal(t, []time.Duration{0}, r.at())
		time.Sleep(10 * time.Minute)
		require.Len(t, r.at(), 1, "nothing has changed")
		looks := repo.looks()
		require.InDelta(t, 20, len(looks), 3)
		for i := 2; i < len(looks); i++ {
			require.InDelta(t, 30, looks[i].Sub(looks[i-1]).Seconds(), 3.001)
		}
		repo.set("2", nil)
		time.Sleep(35 * time.Second)
		require.Len(t, r.at(), 2)
		time.Sleep(10 * time.Minute)
		require.Len(t, r.at(), 2, "the move is seen once")
		require.ErrorIs(t, r.end(), context.Canceled)
	})
}

func TestABurstOfCommitsIsOneStepForTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, changes := &place{name: "platform", state: "0"}, make(told)
		r := start(t, Options{Wakers: []Waker{changes.Wake}}, repo)
		require.Len(t, r.at(), 1)
		for i := range 10 { // each is told by a webhook or a hub
			repo.set(fmt.Sprint(i+1), nil)
			changes <- struct{}{}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		require.Len(t, r.at(), 2, "and polling finds nothing more")
		require.Equal(t, []string{"0", "10"}, r.seen)
	})
}

func TestChangesWithoutAnEndDoNotHoldUpTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(told)
		r := start(t, Options{Wakers: []Waker{changes.Wake}})
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			changes <- struct{}{}
		}
		require.InDelta(t, 5, len(r.at()), 1, "every ten seconds")
	})
}

func TestAWakerThatHasEndedTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(told)
		r := start(t, Options{Wakers: []Waker{changes.Wake}})
		close(changes)
		time.Sleep(time.Hour)
		require.Len(t, r.at(), 1)
	})
}

// Others look at the next poll, or at the next event, which may be hours later.
func TestTheNextStepIsAtTheMomentWhenASoakEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &place{name: "platform", state: "1"}
		soaked := time.Now().Add(time.Hour + 7*time.Second)
		r := start(t, Options{Interval: 5 * time.Minute}, repo)
		r.mu.Lock()
		r.do = func(int) (time.Time, error) {
			if time.Now().Before(soaked) {
				return soaked, nil
			}
			return time.Time{}, nil
		}
		r.mu.Unlock()
		repo.set("2", nil) // the step before do was set has named no moment
		time.Sleep(3 * time.Hour)
		steps := r.at()
		require.Len(t, steps, 3)
		require.Equal(t, time.Hour+7*time.Second, steps[2])
	})
}

func TestAMomentThatHasPassedIsNoEndlessLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(told, 1)
		r := start(t, Options{Wakers: []Waker{changes.Wake}})
		r.mu.Lock()
		r.do = func(int) (time.Time, error) { return r.began, nil }
		r.mu.Unlock()
		changes <- struct{}{}
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 20, len(r.at()), 2)
	})
}

func TestAChangeDuringAStepIsLookedAtAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &place{name: "platform", state: "1"}
		var running, most int
		r := start(t, Options{}, repo)
		r.mu.Lock()
		r.do = func(int) (time.Time, error) {
			running++
			most = max(most, running)
			time.Sleep(5 * time.Minute)
			running--
			return time.Time{}, nil
		}
		r.mu.Unlock()
		repo.set("2", nil)
		time.Sleep(time.Minute) // the second step runs
		repo.set("3", nil)
		time.Sleep(20 * time.Minute)
		require.Len(t, r.at(), 3)
		require.ErrorIs(t, r.end(), context.Canceled)
		require.Equal(t, 1, most, "steps never overlap")
		require.Equal(t, []string{"1", "2", "3"}, r.seen)
	})
}

func TestAStepThatFailsIsTriedAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(told, 1)
		r := start(t, Options{Wakers: []Waker{changes.Wake}})
		require.Len(t, r.at(), 1)
		r.mu.Lock()
		r.do = func(n int) (time.Time, error) {
			switch {
			case n < 10:
				return time.Time{}, errors.New("the registry does not answer")
			case n == 10:
				return time.Time{}, errors.New("disk full")
			}
			return time.Time{}, nil
		}
		r.mu.Unlock()
		changes <- struct{}{}
		time.Sleep(5 * time.Hour)
		steps := r.at()
		require.Len(t, steps, 12, "and then it rests")
		want := 30 * time.Second
		for i := 2; i < 11; i++ {
			require.InDelta(t, min(want, MaxPause).Seconds(), (steps[i] - steps[i-1]).Seconds(), min(want, MaxPause).Seconds()/10+1)
			want *= 2
		}
		require.Equal(t, []string{"turn-failed  the registry does not answer", "turn-failed  disk full"}, r.events, "each reason once")
	})
}

func TestANewCommitIsTriedAtOnceAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, changes := &place{name: "platform", state: "broken"}, make(told, 1)
		r := start(t, Options{Wakers: []Waker{changes.Wake}}, repo)
		r.mu.Lock()
		r.do = func(int) (time.Time, error) {
			if repo.current() == "broken" {
				return time.Time{}, errors.New("no such template")
			}
			return time.Time{}, nil
		}
		r.mu.Unlock()
		changes <- struct{}{}
		time.Sleep(time.Hour)
		before := len(r.at())
		repo.set("mended", nil)
		time.Sleep(35 * time.Second)
		require.Equal(t, before+1, len(r.at()))
	})
}

// A step asks for the next turn, and the loop decides: the earliest moment counts, whichever step asked for it.
func TestTheEarliestMomentOfAllStepsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var turns []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := Run(ctx, Options{},
			func(_ context.Context, t *Turn) error {
				turns = append(turns, t.Now.Sub(began))
				t.Within(40 * time.Minute)
				return nil
			},
			func(_ context.Context, t *Turn) error {
				t.At(began.Add(25 * time.Minute))
				t.At(time.Time{})
				return nil
			})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []time.Duration{0, 25 * time.Minute, 25*time.Minute + DefaultInterval}, turns[:3], "a moment that has passed is one interval away")
	})
}

func TestAnErrorEndsATurnAndANotedOneDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []string
		step := func(name string, do func(*Turn) error) Step {
			return func(_ context.Context, t *Turn) error {
				steps = append(steps, name)
				return do(t)
			}
		}
		errNoted, errEnds := errors.New("prod failed"), errors.New("no policy")
		err := Run(t.Context(), Options{},
			step("read", func(t *Turn) error { t.Fail(nil); return nil }),
			step("promote", func(t *Turn) error { t.Fail(errNoted); return nil }),
			step("advance", func(*Turn) error { return Stop(errEnds) }),
			step("never", func(*Turn) error { return nil }))
		require.Equal(t, errEnds, err)
		require.Equal(t, []string{"read", "promote", "advance"}, steps)
		require.NoError(t, Stop(nil))
	})
}

func TestAWakerThatFailsEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("the address is taken")
		err := Run(t.Context(), Options{Wakers: []Waker{func(context.Context, func()) error { return reason }}}, func(context.Context, *Turn) error { return nil })
		require.Equal(t, reason, err)
	})
}

// A step learns whether what it reads has moved, also of what it has just found, and no turn is wasted on that.
func TestTheStateOfWhatIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		platform, app := &place{name: "platform", state: "1"}, &place{name: "app", state: "1"}
		found := []*place{platform}
		var states []string
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Options{Sources: func() (all []Source) {
				for _, p := range found {
					all = append(all, p.source())
				}
				return all
			}}, func(ctx context.Context, t *Turn) error {
				found = []*place{platform, app}
				states = append(states, t.State(ctx))
				t.Within(10 * time.Minute)
				return nil
			})
		}()
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"app\n1\nplatform\n1\n", "app\n1\nplatform\n1\n"}, states)
		app.set("2", nil)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		require.Equal(t, "app\n2\nplatform\n1\n", states[2])
		cancel()
		<-ended
	})
}

func TestStopEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("the key is not there any more")
		err := Run(t.Context(), Options{}, func(context.Context, *Turn) error { return Stop(reason) })
		require.Equal(t, reason, err)
	})
}

func TestAStepThatIsDoneEndsRunWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, turns := time.Now(), 0
		err := Run(t.Context(), Options{Interval: 10 * time.Minute}, func(_ context.Context, t *Turn) error {
			t.Again()
			if turns++; turns < 3 {
				return nil
			}
			return ErrDone
		})
		require.NoError(t, err)
		require.Equal(t, 3, turns)
		require.InDelta(t, 20*time.Minute, time.Since(began), float64(2*time.Minute))
	})
}

func TestARepositoryThatDoesNotAnswerIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, up := &place{name: "app", state: "1", err: errors.New("no route")}, &place{name: "platform", state: "1"}
		r := start(t, Options{}, up, down)
		time.Sleep(4 * time.Hour)
		require.Len(t, r.at(), 1)
		looks := down.looks()
		require.InDelta(t, 20, len(looks), 4, "15 minutes apart in the end")
		require.Greater(t, len(up.looks()), 400)
		require.Equal(t, []string{"unreachable app no route"}, r.events, "said once")
		up.set("2", nil) // the other one is followed all the same
		time.Sleep(35 * time.Second)
		require.Len(t, r.at(), 2)
		down.set("1", nil) // nobody knows whether it has moved
		time.Sleep(20 * time.Minute)
		require.Len(t, r.at(), 3)
		require.Equal(t, []string{"unreachable app no route", "reachable app <nil>"}, r.events)
		time.Sleep(time.Hour)
		require.Len(t, r.at(), 3)
	})
}

func TestASourceThatHangsDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &place{name: "platform", state: "1"}
		var steps int
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Options{Sources: func() []Source {
				return []Source{up.source(), {Name: "app", State: func(ctx context.Context) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}}}
			}}, func(context.Context, *Turn) error { steps++; return nil })
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, steps)
		up.set("2", nil)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, steps)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// A step tells by what it reads which repositories there are.
func TestSourcesThatAStepFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		platform, app := &place{name: "platform", state: "1"}, &place{name: "app", state: "1"}
		var list []*place
		steps := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Options{Sources: func() (all []Source) {
				for _, p := range append([]*place{platform}, list...) {
					all = append(all, p.source())
				}
				return all
			}}, func(context.Context, *Turn) error {
				steps++
				list = []*place{app}
				return nil
			})
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2, steps, "it may have moved since the first step read it")
		app.set("2", nil)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		require.Equal(t, 3, steps)
		cancel()
		<-ended
	})
}

// 316 repositories at two servers, one of which is silent, are looked at side by side, and nobody waits longer than for one of them.
func TestManySourcesAreAskedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silent, answering = 40, 276
		var mu sync.Mutex
		running, most := map[string]int{}, map[string]int{}
		moved := "1"
		var all []Source
		add := func(host string, n int, state func(ctx context.Context) (string, error)) {
			for i := range n {
				all = append(all, Source{Name: fmt.Sprint(host, "/", i), Host: host, State: func(ctx context.Context) (string, error) {
					mu.Lock()
					running[host]++
					most[host] = max(most[host], running[host])
					mu.Unlock()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						running[host]--
					}()
					return state(ctx)
				}})
			}
		}
		add("silent", silent, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		add("answers", answering, func(context.Context) (string, error) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			return moved, nil
		})
		began := time.Now()
		var turns []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Options{Sources: func() []Source { return all }}, func(context.Context, *Turn) error {
				turns = append(turns, time.Since(began))
				return nil
			})
		}()
		time.Sleep(10 * time.Minute)
		mu.Lock()
		moved = "2"
		mu.Unlock()
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		require.Equal(t, map[string]int{"silent": maxAsked, "answers": maxAsked}, most)
		require.Equal(t, PollTimeout, turns[0])
		require.Len(t, turns, 2)
		require.Less(t, turns[1], 10*time.Minute+DefaultInterval*11/10+maxSettles*DefaultSettle+20*time.Second)
	})
}
