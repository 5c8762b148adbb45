package agent

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/delta"
)

// kills, seed and point are how agents are killed. A failure prints those that bring it back.
var (
	kills     = flag.Int("kills", 100, "how often agents are killed")
	powerCuts = flag.Int("power-cuts", 200, "how often agents lose their power, with the tags e2e and pods")
	killSeed  = flag.Uint64("seed", 0, "what chance begins with; 0 takes the clock")
	killPoint = flag.String("point", "", "kill at this moment only; the names are in kill_points_test.go")
)

// childVariable makes the test binary an agent that does what an order says, in JSON.
const childVariable = "WHERRY_TEST_AGENT"

// deltaArgument makes it the process in which a delta is applied.
const deltaArgument = "apply-delta"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == deltaArgument {
		os.Exit(delta.Child(os.Stdin, os.Stdout, nil))
	}
	if text := os.Getenv(childVariable); text != "" {
		var o order
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			err = o.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if args := os.Getenv(crashVariable); args != "" {
		if err := runChild(strings.Split(args, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	log.SetOutput(io.Discard) // net/http complains there of links that misbehave, as tests have them do
	os.Exit(m.Run())
}

const (
	// realms is how many agents are killed at a time.
	realms = 4
	// realmKills is how often before another one takes its place, with a registry and a hub that are empty.
	realmKills = 100
	// namedTries is how often an agent is started at most for one named moment. Chance may have published what the agent
	// has already: then it does not get there.
	namedTries = 10
)

// An agent is killed at each moment that a crash tells apart, and then wherever chance has it, while its publisher,
// its hub and its registry go on; docs/reliability.md lists the checks after each kill and at the end.
func TestAKilledAgentTellsTheTruthAndConverges(t *testing.T) {
	killAgents(t, *kills, func(*testing.T) disk { return nil })
}

func killAgents(t *testing.T, times int, newDisk func(*testing.T) disk) {
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	named := pointsNamed(*killPoint)
	require.NotEmpty(t, named, "no moment has the name %q", *killPoint)
	begun := time.Now()
	total := &tally{died: map[string]int{}}
	var all sync.WaitGroup
	var adding sync.Mutex
	for n := range realms {
		all.Go(func() {
			for left, round := (times+realms-1)/realms, 0; left > 0 && !t.Failed(); left, round = left-realmKills, round+1 {
				t.Run(fmt.Sprint("realm ", round*realms+n), func(t *testing.T) {
					w := newRealm(t, seed+uint64(round*realms+n), newDisk(t))
					defer w.explain(t, seed)
					w.live(named, (n+round)%realms, min(left, realmKills))
					adding.Lock()
					defer adding.Unlock()
					total.add(w.tally)
				})
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	t.Logf("seed %d, %s\n%s", seed, time.Since(begun).Round(100*time.Millisecond), total)
	for _, name := range named {
		require.NotZero(t, total.died[name], "no agent was killed at %q: nothing leads there any more (seed %d)", name, seed)
	}
}

// live has the agent killed at its share of the named points, and then by chance, for at least so many times.
func (w *realm) live(named []string, share, atLeast int) {
	for i := range named {
		if i%realms != share {
			continue
		}
		for n := 0; n < namedTries && w.tally.died[named[i]] == 0; n++ {
			w.play(kill{event: w.eventOf(named[i]), point: named[i], nth: 1})
		}
	}
	for n := 1; w.tally.kills() < atLeast; n++ {
		k := kill{point: named[w.random.IntN(len(named))], nth: 1}
		switch {
		case w.random.IntN(2) == 0 && len(named) > 1:
			k.point = atRandom
		case w.random.IntN(3) == 0:
			k.nth += w.random.IntN(5) // which not every start gets to
		}
		k.event = w.eventOf(k.point)
		w.play(k)
		if n%10 == 0 {
			w.converge()
		}
	}
	w.leaveNothing()
	w.tally.reports += w.accepted
}

// kill is a plan for one start of the agent.
type kill struct {
	event string // what happens before
	point string // where it is killed, by its name in points
	nth   int    // at which time there
}

// tally counts what came of the plans.
type tally struct {
	died                         map[string]int // kills by point
	starts, interrupted, reports int
	releases, refused, imports   int
}

func (c *tally) add(o *tally) {
	for point, n := range o.died {
		c.died[point] += n
	}
	c.starts += o.starts
	c.interrupted += o.interrupted
	c.reports += o.reports
	c.releases += o.releases
	c.refused += o.refused
	c.imports += o.imports
}

func (c *tally) kills() (sum int) {
	for _, n := range c.died {
		sum += n
	}
	return sum
}

// String is the table that the test prints.
func (c *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kills %d, starts %d, starts that found a step interrupted %d\n", c.kills(), c.starts, c.interrupted)
	fmt.Fprintf(&b, "releases %d, refused %d, imports %d, reports stored %d\n", c.releases, c.refused, c.imports, c.reports)
	fmt.Fprintf(&b, "| killed at | kills |\n|-|-|\n")
	for _, p := range points {
		fmt.Fprintf(&b, "| %s | %d |\n", p.name, c.died[p.name])
	}
	fmt.Fprintf(&b, "| %s | %d |\n", atRandom, c.died[atRandom])
	return b.String()
}
