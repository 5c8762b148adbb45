//go:build e2e

package promotion

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// oracle knows from the sites themselves what has been proved, and reads each record that was ever published. It uses nothing
// of the code that judges and promotes.
type oracle struct {
	t     *testing.T
	trust bundle.Trust
	store oci.Store
	// commits are the base commits that an environment may have, contents the trees that a ring of prod may have.
	commits  map[string]map[string]bool
	contents map[string]map[digest.Digest]bool
	// parts are what an environment may have of what teams deliver, by environment and workload: texts, versions and digests in the files.
	parts map[place]map[string]bool
	seen  map[string]bool
	// wrong is called about a record that must not be there.
	wrong func(format string, args ...any)
}

var (
	next     = map[string]string{"dev": "stage", "stage": "prod"}
	below    = map[string]string{"stage": "dev", "prod": "stage"}
	nextRing = map[string]string{"canary": "early", "early": "stable"}
)

func newOracle(t *testing.T, at, key string) oracle {
	data, err := os.ReadFile(key)
	require.NoError(t, err)
	keys, err := bundle.ParsePublicKeys(data)
	require.NoError(t, err)
	location, err := oci.Parse(at)
	require.NoError(t, err)
	store, err := location.Open(oci.Options{})
	require.NoError(t, err)
	o := oracle{
		t: t, trust: bundle.Pinned(keys), store: store, seen: map[string]bool{},
		commits: map[string]map[string]bool{}, contents: map[string]map[digest.Digest]bool{}, parts: map[place]map[string]bool{},
	}
	o.wrong = func(format string, args ...any) { t.Fatalf(format, args...) }
	for _, name := range []string{"stage", "prod"} {
		o.commits[name] = map[string]bool{}
	}
	for _, name := range []string{"early", "stable"} {
		o.contents[name] = map[digest.Digest]bool{}
	}
	return o
}

// begin lets all environments have the commit that they begin with.
func (o *oracle) begin(commit string) {
	for _, all := range o.commits {
		all[commit] = true
	}
}

// place is a workload in an environment.
type place struct{ environment, workload string }

// partPattern finds what differs from revision to revision in the files of workloads.
var partPattern = regexp.MustCompile(`is: "?([^"\s}]+)|(sha256:[0-9a-f]{64})`)

func partsOf(file []byte) (all []string) {
	for _, found := range partPattern.FindAllSubmatch(file, -1) {
		all = append(all, string(found[1])+string(found[2]))
	}
	return all
}

// allow lets an environment have parts of a workload that nobody below proves: the team decides about them, or a person has signed for them.
func (o *oracle) allow(environment, workload string, parts ...string) {
	at := place{environment, workload}
	if o.parts[at] == nil {
		o.parts[at] = map[string]bool{}
	}
	for _, part := range parts {
		o.parts[at][part] = true
	}
}

// learnParts looks at which parts are proved: all sites that answer run them, compliant, and at least half of all sites answer.
func (o *oracle) learnParts(all []*site) {
	for from, to := range next {
		for _, workload := range delivered {
			count, proved := 0, map[string]int{}
			answer := 0
			for _, s := range all {
				if s.environment != from {
					continue
				}
				if count++; s.offline {
					continue
				}
				answer++
				i := slices.IndexFunc(s.status.Items, func(i bundle.Item) bool { return i.Workload == workload })
				if i < 0 || s.status.Items[i].State != bundle.Compliant {
					continue
				}
				for _, part := range s.parts[workload] {
					proved[part]++
				}
			}
			for part, n := range proved {
				if n == answer && 2*answer >= count {
					o.allow(to, workload, part)
				}
			}
		}
	}
}

// learn looks at which commits and contents are proved: all sites that answer run them, compliant, and at least half of all
// sites answer.
func (o *oracle) learn(all []*site) {
	o.learnParts(all)
	for from, to := range next {
		if s := proves(all, func(s *site) bool { return s.environment == from }); s != nil {
			o.commits[to][s.status.Release.Running.BaseCommit] = true
		}
	}
	for from, to := range nextRing {
		if s := proves(all, func(s *site) bool { return s.ring == from }); s != nil {
			o.contents[to][s.status.Release.Running.Content] = true
		}
	}
}

// proves returns one of the chosen sites if they all run the same, and all is well.
func proves(all []*site, chosen func(*site) bool) (one *site) {
	answer, count := 0, 0
	for _, s := range all {
		if !chosen(s) {
			continue
		}
		if count++; s.offline {
			continue
		}
		answer++
		r := s.status.Release.Running
		if r == nil || !s.compliant() || one != nil && one.status.Release.Running.Content != r.Content {
			return nil
		}
		one = s
	}
	if 2*answer < count {
		return nil
	}
	return one
}

// check reads the records that have come since the last time.
func (o *oracle) check() {
	o.t.Helper()
	for _, name := range []string{"stage", "prod"} {
		repository, err := o.store.Repository(bundle.EnvironmentRepository(name))
		require.NoError(o.t, err)
		tags, err := repository.Tags(o.t.Context())
		if err != nil && strings.Contains(err.Error(), "not found") {
			continue
		}
		require.NoError(o.t, err)
		for _, tag := range tags {
			if strings.HasPrefix(tag, bundle.DecisionTagPrefix) || strings.HasPrefix(tag, "sha256-") || tag != bundle.LatestTag && o.seen[name+":"+tag] {
				continue
			}
			desc, err := repository.Resolve(o.t.Context(), tag)
			require.NoError(o.t, err)
			if at := name + "@" + desc.Digest.String(); o.seen[at] {
				continue
			} else {
				o.seen[at] = true
			}
			v, err := bundle.VerifyEnvironment(o.t.Context(), repository, desc, o.trust)
			if err != nil { // nobody believes it
				continue
			}
			o.seen[name+":"+tag] = true
			o.judge(v.Record)
		}
	}
}

// judge compares a record with what is proved.
func (o *oracle) judge(r bundle.EnvironmentRecord) {
	if !o.commits[r.Environment][r.BaseCommit] {
		o.wrong("record %s of %s has commit %.12s, which %s", r.Tag(), r.Environment, r.BaseCommit, o.known(r.Environment))
		return
	}
	for typ, rings := range r.Rings {
		for ring, d := range rings {
			release := o.release(r.Environment, typ, d)
			o.judgeParts(r, ring, typ, d)
			switch proved := o.contents[ring]; {
			case !o.commits[r.Environment][release.BaseCommit]:
				o.wrong("ring %s of %s has a release of commit %.12s, which %s", ring, r.Environment, release.BaseCommit, o.known(r.Environment))
			case proved != nil && len(proved) == 0: // the first content of all
				o.contents[ring][release.Content.DiffID] = true
			case proved != nil && !proved[release.Content.DiffID]:
				o.wrong("record %s: ring %s has content of commit %.12s that the ring before it has not proved", r.Tag(), ring, release.BaseCommit)
			}
		}
	}
}

// judgeParts compares what a release has of what teams deliver with what is proved.
func (o *oracle) judgeParts(r bundle.EnvironmentRecord, ring, typ string, d digest.Digest) {
	if o.seen[d.String()] {
		return
	}
	o.seen[d.String()] = true
	repository, v := o.verified(r.Environment, typ, d)
	layer, err := bundle.ReadBlob(o.t.Context(), repository, v.Tree, 1<<20)
	require.NoError(o.t, err)
	tree, err := published.ReadLayer(bytes.NewReader(layer), v.Release.Content)
	require.NoError(o.t, err)
	defer func() { require.NoError(o.t, tree.Close()) }()
	for _, a := range tree.Assignments {
		files, err := tree.Files(a)
		require.NoError(o.t, err)
		for _, f := range files {
			if !strings.HasPrefix(f.Path, bundle.ManifestsDir+"/") {
				continue
			}
			for _, part := range partsOf(f.Data) {
				if !o.parts[place{r.Environment, a.Workload}][part] {
					o.wrong("record %s of %s, ring %q: %s has %s, which nobody has proved or decided", r.Tag(), r.Environment, ring, a.Name, part)
				}
			}
		}
	}
}

func (o *oracle) known(environment string) string {
	var all []string
	for commit := range o.commits[environment] {
		all = append(all, fmt.Sprintf("%.12s", commit))
	}
	return "is none of those proved: " + strings.Join(all, ", ")
}

func (o *oracle) release(environment, typ string, d digest.Digest) bundle.Release {
	_, v := o.verified(environment, typ, d)
	return v.Release
}

func (o *oracle) verified(environment, typ string, d digest.Digest) (oci.Target, *bundle.Verified) {
	repository, err := o.store.Repository(bundle.Stream{Environment: environment, ClusterType: typ}.Repository())
	require.NoError(o.t, err)
	desc, err := repository.Resolve(o.t.Context(), d.String())
	require.NoError(o.t, err)
	v, err := bundle.Verify(o.t.Context(), repository, desc, o.trust)
	require.NoError(o.t, err)
	return repository, v
}
