package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// fullDrain has BenchmarkHub drain 100,000 agents in place of 10,000.
var fullDrain = flag.Bool("hub-full", false, "drain 100,000 agents")

// hubProfile has the hub write a profile of its processor time. It is then this test binary, which is the same but for that.
var hubProfile = flag.String("hub-profile", "", "write a profile of the hub's processor time to this `FILE`, which must be absolute")

// profileVariable has the command wherry of this test binary write a profile.
const profileVariable = "WHERRY_TEST_PROFILE"

// What BenchmarkHub sends.
const (
	benchConnections = 48 // requests at once
	benchClusters    = 1000
	benchBatch       = 50
)

// BenchmarkHub prints the figures of "make bench-hub". The hub is the program that WHERRY_E2E_PROGRAMS has, on disk; the
// generator is a process of its own, and signs before the clock begins. Reports have 20 assignments, of which one changes.
func BenchmarkHub(b *testing.B) {
	b.Run("ingest-durable", func(b *testing.B) {
		for range b.N {
			newBenchHub(b).ingest("ingest-durable", benchBatch, benchBatch)
		}
	})
	b.Run("ingest-durable-postgres", func(b *testing.B) {
		for range b.N {
			newPostgresBenchHub(b).ingest("ingest-durable-postgres", benchBatch, benchBatch)
		}
	})
	b.Run("ingest-single", func(b *testing.B) {
		for range b.N {
			newBenchHub(b).ingest("ingest-single", 15, 1)
		}
	})
	b.Run("drain", func(b *testing.B) {
		for range b.N {
			newBenchHub(b).drain()
		}
	})
}

func figure(b *testing.B, name string, value float64, unit string) {
	b.Helper()
	format := "figure %s %.0f %s\n"
	if value < 100 {
		format = "figure %s %.1f %s\n"
	}
	fmt.Printf(format, name, value, unit)
}

// benchHub is the folder of a hub that does not serve yet, and the URL of its database unless that is in the folder.
type benchHub struct {
	*testing.B
	dir      string
	database string
}

func newBenchHub(b *testing.B) benchHub {
	dir := filepath.Join(b.TempDir(), "hub")
	h, err := hub.Open(dir, hub.Options{})
	require.NoError(b, err)
	require.NoError(b, h.Close())
	return benchHub{B: b, dir: dir}
}

// newPostgresBenchHub has PostgreSQL sync each commit to disk, as it does by default.
func newPostgresBenchHub(b *testing.B) benchHub {
	server := pgtest.Start(b, "fsync=on", "full_page_writes=on", "shared_buffers=128MB", "max_wal_size=1GB")
	o := benchHub{B: b, dir: filepath.Join(b.TempDir(), "hub"), database: server.URL(b)}
	h, err := hub.Open(o.dir, hub.Options{Database: o.database})
	require.NoError(b, err)
	require.NoError(b, h.Close())
	return o
}

// withStore opens the database itself, past the hub.
func (b benchHub) withStore(use func(store.Store)) { b.withStoreAt(nil, use) }

// withStoreAt is withStore with a clock; nil is the machine's.
func (b benchHub) withStoreAt(now func() time.Time, use func(store.Store)) {
	var db store.Store
	var err error
	if b.database != "" {
		db, err = postgres.Open(b.Context(), b.database, postgres.Options{Now: now})
	} else {
		db, err = sqlite.Open(filepath.Join(b.dir, hub.DatabaseFile), sqlite.Options{Now: now})
	}
	require.NoError(b, err)
	use(db)
	require.NoError(b, db.Close())
}

// serve begins the hub.
func (b benchHub) serve(args ...string) *hubload.Hub {
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	if programs == "" {
		b.Fatal(`WHERRY_E2E_PROGRAMS names no folder with the program: run "make bench-hub"`)
	}
	program := exec.Command(filepath.Join(programs, "wherry"))
	if *hubProfile != "" {
		program = exec.Command("wherry") // see TestMain
		program.Env = append(os.Environ(), profileVariable+"="+*hubProfile)
	}
	if b.database != "" {
		args = append(args, "--database", b.database)
	}
	h, err := hubload.Begin(program, b.dir, append(args, hubload.Lifted...)...)
	require.NoError(b, err)
	b.Cleanup(h.Kill)
	return h
}

// generator begins a process that signs what the order says, and then waits.
func (b benchHub) generator(to *hubload.Hub, o hubload.Order) *hubload.Generator {
	o.URL, o.HubKey, o.Connections = to.URL, to.Key, benchConnections
	g, err := hubload.Start(exec.Command("hubload"), o) // see TestMain
	require.NoError(b, err)
	b.Cleanup(g.Stop)
	return g
}

// fleet returns a fleet whose newest reports are of this hour.
func benchFleet(seed string, items int, reports int64) hubload.Fleet {
	return hubload.Fleet{Seed: seed, Items: items, Begin: time.Now().Truncate(time.Hour).Add(-time.Duration(reports) * time.Hour)}
}

// ingest has each cluster send so many reports, and checks that all are stored.
func (b benchHub) ingest(name string, reports int64, perRequest int) {
	f := benchFleet("load", 20, reports)
	b.withStore(func(db store.Store) { require.NoError(b, f.Register(b.Context(), db, 0, benchClusters)) })
	h := b.serve()
	r, err := b.generator(h, hubload.Order{Fleet: f, Until: benchClusters, First: 1, Last: reports, PerRequest: perRequest}).Run()
	require.NoError(b, err, h.Log())
	require.NoError(b, h.Stop(), h.Log())
	b.stored(f, benchClusters, 1, reports)
	fmt.Printf("%d reports in %s; of a request, half took up to %s and 95 of 100 up to %s; %d were sent again\n", r.Reports, r.Took.Round(time.Millisecond), r.P50.Round(time.Millisecond), r.P95.Round(time.Millisecond), r.Again)
	figure(b.B, name+"-reports-per-s", r.PerSecond(), "per-s")
	// What other work on the machine does not change much.
	figure(b.B, name+"-cpu-us-per-report", float64(h.CPU().Microseconds())/float64(r.Reports), "us")
}

// stored is the oracle: each report is stored once.
func (b benchHub) stored(f hubload.Fleet, clusters int, first, last int64) {
	b.withStore(func(db store.Store) {
		missing, err := f.Missing(b.Context(), db, 0, clusters, first, last)
		require.NoError(b, err)
		require.Empty(b, missing)
	})
}

// drain fills a hub with 100,000 clusters and a million deployments, and has 10,000 of the clusters send what they have
// queued, while people ask.
func (b benchHub) drain() {
	const queued, deployed = 30, 10
	agents, silent, suffix := 10_000, 90_000, ""
	if *fullDrain {
		agents, silent, suffix = 100_000, 0, "-full"
	}
	sending, resting := benchFleet("drain", 20, queued+1), benchFleet("rest", deployed, 1)
	b.withStore(func(db store.Store) {
		began := time.Now()
		require.NoError(b, resting.Register(b.Context(), db, 0, silent))
		require.NoError(b, resting.Fill(b.Context(), db, 0, silent, 1))
		require.NoError(b, sending.Register(b.Context(), db, 0, agents))
		require.NoError(b, sending.Fill(b.Context(), db, 0, agents, 1))
		fmt.Printf("filled in %s\n", time.Since(began).Round(time.Second))
	})
	before := b.size()
	h := b.serve()
	g := b.generator(h, hubload.Order{Fleet: sending, Until: agents, First: 2, Last: queued + 1, PerRequest: queued})

	rest := make(chan struct{})
	time.AfterFunc(10*time.Second, func() { close(rest) })
	b.asked("query-idle", hubload.Ask(b.Context(), h.URL, h.Token(), 1, hubload.Heaviest(), rest))

	drained := make(chan struct{})
	asked := make(chan *hubload.Times)
	go func() { asked <- hubload.Ask(b.Context(), h.URL, h.Token(), 1, hubload.Heaviest(), drained) }()
	r, err := g.Run()
	close(drained)
	times := <-asked
	require.NoError(b, err, h.Log())
	figure(b.B, "drain-s"+suffix, r.Took.Seconds(), "s")
	fmt.Printf("%.0f reports a second; of a request, half took up to %s and 95 of 100 up to %s; %d were sent again\n", r.PerSecond(), r.P50.Round(time.Millisecond), r.P95.Round(time.Millisecond), r.Again)
	b.asked("query", times)
	peak, err := h.Peak()
	require.NoError(b, err)
	figure(b.B, "hub-rss-bytes"+suffix, float64(peak), "bytes")
	require.NoError(b, h.Stop(), h.Log())
	b.stored(sending, agents, 2, queued+1)
	// A report an hour.
	figure(b.B, "hub-disk-bytes-per-cluster-day"+suffix, float64(b.size()-before)/float64(r.Reports)*24, "bytes")
}

// asked prints how long answers took.
func (b benchHub) asked(name string, t *hubload.Times) {
	for _, q := range hubload.Heaviest() {
		if refused, ok := t.Refused[q.Name]; ok {
			fmt.Printf("  %-30s NOT ANSWERED: %s\n", q.Name, refused)
			continue
		}
		fmt.Printf("  %-30s %s\n", q.Name, t.P95(q.Name).Round(time.Millisecond/10))
	}
	fmt.Printf("%d answers\n", t.Len())
	figure(b.B, name+"-p95-ms", float64(t.P95("").Microseconds())/1000, "ms")
}

// size returns the bytes of the database, once all of it is in its file.
func (b benchHub) size() (n int64) {
	for _, name := range sqlite.Files(hub.DatabaseFile) {
		if info, err := os.Stat(filepath.Join(b.dir, name)); err == nil {
			n += info.Size()
		}
	}
	return n
}

// profiled calls do, and writes a profile if one is wanted.
func profiled(do func() int) int {
	path := os.Getenv(profileVariable)
	if path == "" {
		return do()
	}
	f, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer f.Close()
	defer pprof.StopCPUProfile()
	return do()
}
