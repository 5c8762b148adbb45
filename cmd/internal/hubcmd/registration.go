package hubcmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// maxInputBytes bounds a key or a status that is read.
const maxInputBytes = 64 << 20

// registration holds the flags that describe a cluster.
type registration struct {
	uid, platform, clusterType, environment, ring string
	labels                                        map[string]string
	expected                                      time.Duration
	keyFile, from                                 string
}

func (r *registration) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.from, "from", "", "take what no flag gives from the output of \"wherry-agent status -o json\" in this `FILE`, or - for stdin")
	f.StringVar(&r.keyFile, "key", "", "the public half of the agent's report key in PEM, a `FILE` or - for stdin")
	f.StringVar(&r.uid, "uid", "", "the agent's `UID`")
	f.StringVar(&r.clusterType, "type", "", "the cluster `TYPE`")
	f.StringVar(&r.environment, "environment", "", "the environment's `NAME`")
	f.StringVar(&r.platform, "platform", "", "the platform's `NAME`; empty takes what is registered, or any")
	f.StringVar(&r.ring, "ring", "", "the ring's `NAME`; empty takes any")
	f.StringToStringVar(&r.labels, "label", nil, "a label `KEY=VALUE`; may be repeated")
	f.Var((*duration.Value)(&r.expected), "expected-interval", fmt.Sprintf("the longest usual `TIME` between two reports; after three the cluster is stale (default: what is registered, or %s)", store.DefaultExpectedInterval))
}

// agentStatus is the part of "wherry-agent status -o json" that a registration takes.
type agentStatus struct {
	Platform  string `json:"platform"`
	ReportKey string `json:"reportKey"`
	Cluster   struct {
		UID         string            `json:"uid"`
		Name        string            `json:"name"`
		Type        string            `json:"type"`
		Environment string            `json:"environment"`
		Ring        string            `json:"ring"`
		Labels      map[string]string `json:"labels"`
	} `json:"cluster"`
}

// cluster puts the flags, the name and the agent's status together.
func (r *registration) cluster(cmd *cobra.Command, args []string) (store.Cluster, error) {
	if r.from == "-" && r.keyFile == "-" {
		return store.Cluster{}, cli.Usagef("--from and --key cannot both read stdin")
	}
	var s agentStatus
	if r.from != "" {
		var err error
		if s, err = readStatus(cmd, r.from); err != nil {
			return store.Cluster{}, err
		}
	}
	pem := []byte(s.ReportKey)
	if r.keyFile != "" {
		var err error
		if pem, err = readInput(cmd, r.keyFile); err != nil {
			return store.Cluster{}, err
		}
	}
	c := store.Cluster{Identity: store.Identity{
		UID: cmp.Or(r.uid, s.Cluster.UID), Name: s.Cluster.Name, Platform: s.Platform, Type: s.Cluster.Type,
		Environment: s.Cluster.Environment, Ring: s.Cluster.Ring, Labels: s.Cluster.Labels,
	}}
	r.override(&c, args)
	if missing := r.missing(c, pem); missing != "" {
		return store.Cluster{}, cli.Fail(cli.Usage, errors.New(missing+" is missing"),
			`"wherry-agent status -o json" prints all that is needed: save it and give it with --from FILE`)
	}
	key, err := hub.ParseReportKey(pem)
	if err != nil {
		return store.Cluster{}, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", cmp.Or(r.keyFile, r.from), err), "")
	}
	c.Key = key
	return c, nil
}

// override replaces values of the agent by those of flags, and its name by that of the argument.
func (r *registration) override(c *store.Cluster, args []string) {
	c.Platform, c.Type, c.Environment = cmp.Or(r.platform, c.Platform), cmp.Or(r.clusterType, c.Type), cmp.Or(r.environment, c.Environment)
	c.Ring, c.ExpectedInterval = cmp.Or(r.ring, c.Ring), r.expected
	if len(args) == 1 {
		c.Name = args[0]
	}
	if len(r.labels) > 0 {
		labels := map[string]string{}
		maps.Copy(labels, c.Labels)
		maps.Copy(labels, r.labels)
		c.Labels = labels
	}
}

// missing names the first value that neither a flag nor the status gives.
func (r *registration) missing(c store.Cluster, pem []byte) string {
	for _, v := range []struct{ name, value string }{
		{"NAME", c.Name},
		{"--uid", c.UID},
		{"--type", c.Type},
		{"--environment", c.Environment},
		{"--key", r.keyFile + string(pem)},
	} {
		if v.value == "" {
			return v.name
		}
	}
	return ""
}

func readStatus(cmd *cobra.Command, path string) (agentStatus, error) {
	var s agentStatus
	data, err := readInput(cmd, path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", path, err), `it must be the output of "wherry-agent status -o json"`)
	}
	return s, nil
}

// readInput reads a file, or stdin where path is "-".
func readInput(cmd *cobra.Command, path string) ([]byte, error) {
	data, err := cli.ReadInput(cmd, path, maxInputBytes)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "")
	}
	return data, nil
}
