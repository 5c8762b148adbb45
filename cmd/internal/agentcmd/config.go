package agentcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// config is what an agent was told, by file, environment and flags.
type config struct {
	file      string // where it was read from, if anywhere
	byDefault bool   // nothing has named the file

	registry oci.Location // zero where bundles come by import only
	plain    bool
	network  oci.Network
	window   agent.Window
	cluster  bundle.ReportCluster
	keys     []string // files
	trust    string   // a file
	stateDir string
	interval time.Duration
	settle   *time.Duration // nil: what each adapter asks for
	deadline time.Duration

	maintenance []agent.MaintenanceWindow
	veto        agent.Veto

	adapter, directoryRoot, kubeconfig string
	argoNamespace, ansiblePlaybook     string
	impersonate                        bool
	memory                             string   // NAMESPACE/NAME, noMemory, or empty for the usual one
	zarf                               string   // the program; empty is without
	zarfKeys                           []string // files
	hub, hubKey                        string
	reports                            oci.Location // zero where reports go to no registry
	ackStored                          bool
	enrollToken                        string // a file
	credentials                        string // a file; empty is docker's own
	authHosts                          []string
	listen                             string // an address; empty is none
	logFormat                          string
}

// addFlags gives cmd and its subcommands --config, which is defaultConfig unless something else is given, and a flag for
// each setting.
func addFlags(cmd *cobra.Command, defaultConfig string) {
	flags := cmd.PersistentFlags()
	flags.String("config", defaultConfig, "configuration `FILE` in YAML, which flags and WHERRY_* variables override; with '' none")
	for _, s := range settings() {
		s.addTo(cmd, flags)
	}
}

func (s setting) addTo(cmd *cobra.Command, flags *pflag.FlagSet) {
	switch {
	case s.list:
		flags.StringArray(s.flag, nil, s.usage)
	case s.toggle:
		flags.Bool(s.flag, s.on, s.usage)
	default:
		flags.String(s.flag, "", s.usage)
	}
	if s.values != nil {
		_ = cmd.RegisterFlagCompletionFunc(s.flag, cobra.FixedCompletions(s.values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// readConfig returns what flags, environment and file say, in this order of precedence. Its error lists
// everything that is wrong.
func readConfig(flags *pflag.FlagSet, environ func(string) (string, bool)) (*config, error) {
	return readConfigOf(settings(), flags, environ)
}

func readConfigOf(known []setting, flags *pflag.FlagSet, environ func(string) (string, bool)) (*config, error) {
	path, _ := flags.GetString("config")
	v, named := environ("WHERRY_CONFIG")
	if flags.Changed("config") {
		named = true
	} else if named {
		path = v
	}
	file := configFile{}
	if path != "" {
		var err error
		file, err = readConfigFile(path, known)
		switch {
		case !named && errors.Is(err, fs.ErrNotExist):
			path = ""
		case !named && errors.Is(err, fs.ErrPermission):
			return nil, cli.Fail(cli.Usage, err, "run the command as a user who may read it, or give --config '' for none")
		case err != nil:
			return nil, cli.Fail(cli.Usage, err, "docs/agent.md lists the fields")
		}
	}
	c := &config{file: path, byDefault: !named && path != "", stateDir: defaultStateDir, logFormat: "text"}
	c.cluster.Platform = "default"
	c.cluster.Name, _ = os.Hostname()
	var problems []error
	for _, s := range known {
		values, origin := s.told(flags, environ, file)
		for _, v := range values {
			if err := s.set(c, v); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w: allowed is %s", s.names(origin), err, s.allowed))
			}
		}
	}
	if len(problems) > 0 {
		return nil, cli.Fail(cli.Usage, errors.Join(problems...), "")
	}
	return c, nil
}

// told returns the values of s from the place that goes before the others, and that place.
func (s setting) told(flags *pflag.FlagSet, environ func(string) (string, bool), file configFile) (values []string, origin string) {
	if flags.Changed(s.flag) {
		given := flags.Lookup(s.flag).Value
		if list, ok := given.(pflag.SliceValue); ok {
			return list.GetSlice(), "--" + s.flag
		}
		return []string{given.String()}, "--" + s.flag
	}
	if v, ok := environ(s.variable()); ok {
		if s.list {
			return strings.Split(v, cmp.Or(s.separator, ",")), s.variable()
		}
		return []string{v}, s.variable()
	}
	found := file.values[s.field]
	for _, v := range found.texts {
		if s.path && !filepath.IsAbs(v) {
			v = filepath.Join(filepath.Dir(file.path), v)
		}
		values = append(values, v)
	}
	return values, fmt.Sprintf("%s:%d: %s", file.path, found.line, s.field)
}

// names gives the place where a setting was told and the other ways to tell it.
func (s setting) names(origin string) string {
	all := []string{"--" + s.flag, s.variable(), "field " + s.field}
	all = slices.DeleteFunc(all, func(n string) bool {
		return n == origin || strings.HasSuffix(origin, ": "+s.field) && n == "field "+s.field
	})
	return origin + " (also " + strings.Join(all, ", ") + ")"
}

// missing is the error of a setting that is needed and was not told.
func (c *config) missing(field string) error {
	file := cmp.Or(c.file, "the file that --config names")
	for _, s := range settings() {
		if s.field == field {
			err := cli.Usagef("%s is not set: give --%s, %s or the field %s of %s: allowed is %s", field, s.flag, s.variable(), s.field, file, s.allowed)
			if field == "keys" {
				return cli.Fail(cli.Usage, err, "a platform with a trust document takes --trust in place of --key")
			}
			return err
		}
	}
	panic("no setting " + field)
}

// checkReports says what keeps reports from ever being deleted as they are meant to be.
func (c *config) checkReports() error {
	if c.ackStored && (c.reports == (oci.Location{}) || c.hub != "") {
		return cli.Usagef("--ack-mode stored is for reports in a registry without a hub that acknowledges them: give --report-registry, and no --hub")
	}
	return nil
}

// complete says what an agent that is to work lacks.
func (c *config) complete() error {
	switch {
	case c.cluster.Environment == "":
		return c.missing("environment")
	case c.cluster.Type == "":
		return c.missing("clusterType")
	case len(c.keys) == 0 && c.trust == "" && !c.hasTrust():
		return c.missing("keys")
	case c.adapter == "directory" && c.directoryRoot == "":
		return c.missing("directoryRoot")
	case c.adapter == "ansible" && c.ansiblePlaybook == "":
		return c.missing("ansiblePlaybook")
	case c.adapter == "zarf" && c.zarf == "":
		return c.missing("zarf")
	}
	return c.checkReports()
}
