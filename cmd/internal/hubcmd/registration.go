package hubcmd

import (
	"cmp"
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
	keyFile, from, reporting                      string
}

func (r *registration) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.from, "from", "", "take what no flag gives from the output of \"wherry-agent status -o json\" in this `FILE`, or - for stdin")
	f.StringVar(&r.keyFile, "key", "", "the public half of the agent's report key in PEM, a `FILE` or - for stdin")
	f.StringVar(&r.uid, "uid", "", "the agent's `UID`")
	f.StringVar(&r.clusterType, "type", "", "the cluster `TYPE`")
	f.StringVarP(&r.environment, "environment", "e", "", "the environment's `NAME`")
	f.StringVar(&r.platform, "platform", "", "the platform's `NAME`; empty takes what is registered, or any")
	f.StringVar(&r.ring, "ring", "", "the ring's `NAME`; empty takes any")
	f.StringToStringVar(&r.labels, "label", nil, "a label `KEY=VALUE`; may be repeated")
	f.StringVar(&r.reporting, "reporting", "expected", "`expected`, or none for a cluster that sends no reports and has no key: gates list it apart")
	f.Var((*duration.Value)(&r.expected), "expected-interval", fmt.Sprintf("the longest usual `TIME` between two reports; after three the cluster is stale (default: what is registered, or %s)", store.DefaultExpectedInterval))
}

// cluster returns the cluster that the flags, the name and the agent's status describe.
func (r *registration) cluster(cmd *cobra.Command, args []string) (store.Cluster, error) {
	if r.reporting == store.NotReporting && r.keyFile != "" {
		return store.Cluster{}, cli.Usagef("--reporting none is for a cluster without a key, and --key gives one")
	}
	if r.from == "-" && r.keyFile == "-" {
		return store.Cluster{}, cli.Usagef("--from and --key cannot both read stdin")
	}
	var c store.Cluster
	var pem []byte
	if r.from != "" {
		status, err := readInput(cmd, r.from)
		if err != nil {
			return c, err
		}
		if c, pem, err = hub.ParseStatus(status); err != nil {
			return c, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", r.from, err), `it must be the output of "wherry-agent status -o json"`)
		}
	}
	if r.keyFile != "" {
		var err error
		if pem, err = readInput(cmd, r.keyFile); err != nil {
			return c, err
		}
	}
	c.UID = cmp.Or(r.uid, c.UID)
	r.override(&c, args)
	switch {
	case r.reporting == store.NotReporting:
		c.Reporting, pem = store.NotReporting, nil
	case r.reporting != "expected":
		return store.Cluster{}, cli.Usagef("--reporting %q is neither expected nor none", r.reporting)
	}
	if missing := r.missing(c, pem); missing != "" {
		return store.Cluster{}, cli.Fail(cli.Usage, errors.New(missing+" is missing"),
			`"wherry-agent status -o json" prints all that is needed: save it and give it with --from FILE`)
	}
	if c.Reporting == store.NotReporting {
		return c, nil
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
		{"--key", c.Reporting + r.keyFile + string(pem)},
	} {
		if v.value == "" {
			return v.name
		}
	}
	return ""
}

// readInput reads a file, or stdin where path is "-".
func readInput(cmd *cobra.Command, path string) ([]byte, error) {
	data, err := cli.ReadInput(cmd, path, maxInputBytes)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "")
	}
	return data, nil
}
