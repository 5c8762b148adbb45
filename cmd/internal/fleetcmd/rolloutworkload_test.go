package fleetcmd

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// site is a cluster with its only deployment of the workload web.
type site struct {
	name, environment string
	state             bundle.State // of the cluster
	release           string       // that it should run; empty if the hub does not know that
	runs              string       // version of web; empty for none
	web               bundle.State // of its deployment
	silent            bool         // registered without reports
	reason            string       // of the cluster, which was offered the release that it should run
}

// told is a hub that knows these sites and the versions of web in releases.
func told(versions map[string]string, sites ...site) canned {
	named := func(release string) *bundle.ReportRelease {
		return &bundle.ReportRelease{Digest: digest.FromString(release), Number: 1}
	}
	return canned{
		clusters: func(q fleet.Query) (all fleet.Clusters, _ error) {
			for _, s := range sites {
				if len(q.Environments) > 0 && !slices.Contains(q.Environments, s.environment) {
					continue
				}
				c := fleet.Cluster{ClusterStatus: store.ClusterStatus{State: s.state}}
				c.Name, c.UID, c.Environment, c.Type, c.Reason = s.name, s.name, s.environment, "drone", s.reason
				if s.release != "" {
					c.Desired, c.Offered = &fleet.Desired{Release: named(s.release)}, named(s.release)
				}
				if s.silent {
					c.Reporting = store.NotReporting
				}
				all.Clusters = append(all.Clusters, c)
			}
			return all, nil
		},
		deployments: func(q fleet.Query) (all fleet.Deployments, _ error) {
			for _, s := range sites {
				if s.runs != "" {
					all.Deployments = append(all.Deployments, fleet.Deployment{DeploymentStatus: store.DeploymentStatus{
						ClusterUID: s.name, Assignment: "web-live", Workload: q.Workload, Version: s.runs, State: s.web,
					}})
				}
			}
			return all, nil
		},
		release: func(name string) (fleet.ReleaseDetail, error) {
			for release, version := range versions {
				if digest.FromString(release).String() == name {
					return fleet.ReleaseDetail{Assignments: []bundle.Assignment{
						{Name: "db-live", Workload: "db", Version: "9"}, {Name: "web-live", Workload: "web", Workspace: "team", Version: version},
					}}, nil
				}
			}
			return fleet.ReleaseDetail{}, nil
		},
	}
}

func TestRolloutStatusOfAWorkload(t *testing.T) {
	versions := map[string]string{"old": "1", "new": "2"}
	good := site{name: "a", environment: "dev", state: bundle.Compliant, release: "new", runs: "2", web: bundle.Compliant}
	with := func(change func(*site)) site {
		s := good
		s.name = "b"
		change(&s)
		return s
	}
	stale := with(func(s *site) { s.state = store.Stale })
	later := with(func(s *site) { s.environment, s.release, s.runs = "prod", "old", "1" })
	tests := []struct {
		name  string
		sites []site
		args  []string
		code  int
		head  string
	}{
		{"all have it", []site{good}, nil, cli.OK, "web 2: 1 of 1 cluster is compliant\n"},
		{"one is offline", []site{good, stale}, nil, cli.NotYet, "web 2: 1 of 2 clusters are compliant, 1 unknown\n"},
		{"one is offline, and need not answer", []site{good, stale}, []string{"--allow-unknown"}, cli.OK, "web 2: 1 of 2 clusters are compliant, 1 unknown\n"},
		{"all are offline, and need not answer", []site{stale}, []string{"--allow-unknown"}, cli.NotYet, "web 2: 0 of 1 cluster is compliant, 1 unknown\n"},
		{"it fails on one", []site{good, with(func(s *site) { s.web = bundle.Failed })}, nil, cli.No, "web 2: 1 of 2 clusters are compliant, 1 failed\n"},
		{"one runs the version before", []site{good, with(func(s *site) { s.runs = "1" })}, nil, cli.NotYet, "web 2: 1 of 2 clusters are compliant, 1 progressing\n"},
		{"one has given it up", []site{good, with(func(s *site) { s.runs, s.state, s.reason = "1", bundle.Failed, "Quarantined" })}, nil, cli.No, "web 2: 1 of 2 clusters are compliant, 1 failed\n"},
		{"one has not begun", []site{good, with(func(s *site) { s.runs = "" })}, nil, cli.NotYet, "web 2: 1 of 2 clusters are compliant, 1 progressing\n"},
		{"one is of a later ring", []site{good, with(func(s *site) { s.release, s.runs = "old", "1" })}, nil, cli.NotYet, "web 2: 1 of 2 clusters are compliant, 1 waiting\n"},
		{"another environment is not promoted", []site{good, later}, nil, cli.OK, "web 2: 1 of 1 cluster is compliant\n"},
		{"another environment is asked about", []site{good, later}, []string{"-e", "prod"}, cli.NotYet, "web 2 in prod: 0 of 1 cluster is compliant, 1 waiting\n"},
		{"no release has it", []site{later}, nil, cli.NotYet, "web 2: no clusters\n"},
		{"one should not run it", []site{good, with(func(s *site) { s.release = "without" })}, nil, cli.OK, "web 2: 1 of 1 cluster is compliant\n"},
		{"one never reports", []site{good, with(func(s *site) { s.silent, s.runs, s.state = true, "", store.Unreported })}, nil, cli.OK, "web 2: 1 of 1 cluster is compliant\n"},
		{"the hub follows no release of one", []site{good, with(func(s *site) { s.release = "" })}, nil, cli.OK, "web 2: 1 of 1 cluster is compliant\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"web", "--version", "2"}, test.args...)
			on := terminal{make: newRolloutWorkloadCommand, answers: told(versions, test.sites...)}
			out, _, code := on.run(args...)
			require.Equal(t, test.code, code, out)
			require.Contains(t, out, test.head)
			out, _, code = on.run(append(args, "-o", "json")...)
			require.Equal(t, test.code, code)
			var answer workloadRollout
			require.NoError(t, json.Unmarshal([]byte(out), &answer))
			require.Equal(t, "web", answer.Workload)
			require.Len(t, answer.Open, answer.Clusters-answer.Compliant)
		})
	}
}

func TestRolloutStatusOfAWorkloadThatIsNowhere(t *testing.T) {
	old := site{name: "a", environment: "dev", state: bundle.Compliant, release: "old", runs: "1", web: bundle.Compliant}
	for _, test := range []struct {
		name  string
		sites []site
		args  []string
		why   string
		hint  string
	}{
		{"its version is not there", []site{old}, []string{"web", "--version", "1.1"}, "no release has version 1.1 of workload web yet", "hint: releases have version 1\n"},
		{"the workload is not there", []site{old}, []string{"wbe", "--version", "1"}, "no release has workload wbe yet", "hint: did you mean web?"},
		{"the workspace is not there", []site{old}, []string{"web", "--version", "1", "--workspace", "taem"}, "no release has workload web of workspace taem yet", "hint: did you mean team?"},
		{"nothing is known of releases", []site{{name: "a"}}, []string{"web", "--version", "1"}, "the hub does not know what is published for any of its clusters", "hint: \"wherry hub serve --watch LOCATION\""},
		{"there are no clusters", nil, []string{"web", "--version", "1"}, "no cluster is registered", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			hub := told(map[string]string{"old": "1"}, test.sites...)
			known := hub.deployments
			hub.deployments = func(q fleet.Query) (fleet.Deployments, error) { // as a hub whose clusters run nothing like this
				if all, err := known(q); q.Workload == "web" && len(all.Deployments) > 0 {
					return all, err
				}
				return fleet.Deployments{}, &fleet.UnknownNameError{Kind: "workload", Name: q.Workload}
			}
			out, talk, code := terminal{make: newRolloutWorkloadCommand, answers: hub}.run(test.args...)
			require.Equal(t, cli.NotYet, code, talk)
			require.Contains(t, out, test.why)
			require.Contains(t, talk, test.hint)
		})
	}
}

func TestRolloutStatusOfAWorkloadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		all := told(map[string]string{"new": "2"}, site{name: "a", environment: "dev", state: bundle.Compliant, release: "new", runs: "1", web: bundle.Compliant})
		all.events = func(ctx context.Context, _ store.Position, _ func(fleet.Event) error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		_, talk, code := terminal{make: newRolloutWorkloadCommand, answers: all, ctx: t.Context()}.run("web", "--version", "2", "--timeout", "30m")
		require.Equal(t, cli.NotYet, code)
		require.Contains(t, talk, "not all clusters are compliant after 30m")
		require.Equal(t, 30*time.Minute, time.Since(began))
	})
}

func TestARolloutNeedsToKnowWhatItIsAbout(t *testing.T) {
	for _, make := range []func(*source) *cobra.Command{newRolloutCommitCommand, newRolloutWorkloadCommand} {
		for _, args := range [][]string{
			nil,
			{"web"},
			{"", "--version", "2", "-e", "dev"},
			{"3f2a9c1", "--workspace", "team", "-e"},
			{"web", "--version", "2", "--timeout", "soon"},
			{"web", "--version", "2", "--watch", "--as-of", "24h"},
		} {
			_, _, code := terminal{make: make, answers: told(nil)}.run(args...)
			require.Equal(t, cli.Usage, code, args)
		}
	}
}
