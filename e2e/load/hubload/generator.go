package hubload

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
)

// Order tells a generator what to send.
type Order struct {
	Fleet Fleet `json:"fleet"`
	// URL is the hub's, HubKey its public key in PEM.
	URL    string `json:"url"`
	HubKey []byte `json:"hubKey"`
	// From and Until number the clusters, Until excluded, and First and Last the reports of each, Last included.
	From, Until int
	First, Last int64
	// PerRequest is the number of reports in a request, Connections the number of requests at once.
	PerRequest, Connections int
}

// Result is how long a generator has taken.
type Result struct {
	Reports, Requests int
	Took              time.Duration
	// Again counts requests that had to be sent again.
	Again int
	// P50 and P95 are times of requests.
	P50, P95 time.Duration
}

// PerSecond returns the reports of a second.
func (r Result) PerSecond() float64 { return float64(r.Reports) / r.Took.Seconds() }

// Main is the generator's process: it reads an Order from standard input, signs all reports, prints "ready", waits for a line,
// sends, and prints a Result. It returns the exit code.
func Main() int {
	if err := generate(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hubload:", err)
		return 1
	}
	return 0
}

func generate(in io.Reader, out io.Writer) error {
	from := bufio.NewReader(in)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o Order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	keys, err := bundle.ParsePublicKeys(o.HubKey)
	if err != nil {
		return err
	}
	all, err := o.prepare()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	if _, err := from.ReadString('\n'); err != nil {
		return err
	}
	result, err := o.send(NewSender(o.URL, keys[0], o.Connections), all)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// request is one request, with its reports signed.
type request struct {
	cluster *Cluster
	reports []Signed
}

// prepare signs everything. A cluster's requests follow one another, and begin after the first of all other clusters.
func (o Order) prepare() ([]request, error) {
	n := o.Until - o.From
	each := make([][]request, n)
	err := atOnce(context.Background(), 0, n, func(_ context.Context, i int) error {
		c := o.Fleet.Cluster(o.From + i)
		for seq := o.First; seq <= o.Last; seq += int64(o.PerRequest) {
			r := request{cluster: c}
			for s := seq; s < seq+int64(o.PerRequest) && s <= o.Last; s++ {
				r.reports = append(r.reports, c.Sign(s))
			}
			each[i] = append(each[i], r)
		}
		return nil
	})
	var all []request
	for round := range each[0] {
		for i := range each {
			all = append(all, each[i][round])
		}
	}
	return all, err
}

func (o Order) send(to *Sender, all []request) (Result, error) {
	var mu sync.Mutex
	var result Result
	var times []time.Duration
	queue := make(chan request)
	begun := time.Now()
	g, ctx := errgroup.WithContext(context.Background())
	g.Go(func() error {
		defer close(queue)
		for _, r := range all {
			select {
			case queue <- r:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range o.Connections {
		g.Go(func() error {
			for r := range queue {
				body, sent := r.cluster.Request(r.reports), time.Now()
				again, err := to.Deliver(ctx, r.cluster, body, len(r.reports))
				if err != nil {
					return err
				}
				mu.Lock()
				times = append(times, time.Since(sent))
				result.Requests, result.Reports, result.Again = result.Requests+1, result.Reports+len(r.reports), result.Again+again
				mu.Unlock()
			}
			return nil
		})
	}
	err := g.Wait()
	result.Took = time.Since(begun)
	if len(times) > 0 {
		slices.Sort(times)
		result.P50, result.P95 = times[len(times)/2], times[len(times)*95/100]
	}
	return result, err
}

// Generator is a generator's process that has signed its reports.
type Generator struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start begins a generator by cmd, whose process calls Main, and returns once all its reports are signed. The caller calls Run, or Stop.
func Start(cmd *exec.Cmd, o Order) (*Generator, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &Generator{cmd, in, bufio.NewReader(out)}
	if err := json.NewEncoder(in).Encode(o); err != nil {
		g.Stop()
		return nil, err
	}
	if _, err := g.out.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("generator: %w", cmd.Wait())
	}
	return g, nil
}

// Run has the generator send, and returns its result once everything is acknowledged.
func (g *Generator) Run() (r Result, err error) {
	if _, err := fmt.Fprintln(g.in, "go"); err != nil {
		return r, err
	}
	if err := json.NewDecoder(g.out).Decode(&r); err != nil {
		return r, fmt.Errorf("generator: %w", g.cmd.Wait())
	}
	return r, g.cmd.Wait()
}

// Stop ends a generator that is not to run, or to run no longer.
func (g *Generator) Stop() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}
