package agentcmd

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// addFlags gives cmd and its subcommands --config, which is defaultConfig unless something else is given, and a flag for
// each setting.
func addFlags(cmd *cobra.Command, defaultConfig string) {
	flags := cmd.PersistentFlags()
	flags.String("config", defaultConfig, "configuration `FILE` in YAML, which flags and WHERRY_* variables override; with '' none")
	for _, s := range config.Settings() {
		addFlag(cmd, flags, s)
	}
}

func addFlag(cmd *cobra.Command, flags *pflag.FlagSet, s config.Setting) {
	switch {
	case s.List:
		flags.StringArray(s.Flag, nil, s.Usage)
	case s.Toggle:
		flags.Bool(s.Flag, s.On, s.Usage)
	case s.Flag == "environment":
		flags.StringP(s.Flag, "e", "", s.Usage)
	default:
		flags.String(s.Flag, "", s.Usage)
	}
	if s.Values != nil {
		_ = cmd.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// AddInstallFlags gives cmd a flag for each setting that an agent in a cluster can have.
func AddInstallFlags(cmd *cobra.Command) {
	for _, s := range config.InstallSettings() {
		addFlag(cmd, cmd.Flags(), s)
	}
	cmd.Flags().Lookup("cluster-name").Usage = "this cluster's `NAME` in reports (default: the name of the agent's node)"
	cmd.Flags().Lookup("registry").Usage = "where bundles come from, `LOCATION` as oci://HOST/PREFIX"
}

// ReadInstalled returns the configuration that the flags of AddInstallFlags give.
func ReadInstalled(ctx context.Context, flags *pflag.FlagSet) (*config.Installed, error) {
	in, err := config.ReadInstalled(ctx, given(flags))
	return in, Kinds.Of(err)
}

// given returns the values of flags that were given.
func given(flags *pflag.FlagSet) func(string) ([]string, bool) {
	return func(name string) ([]string, bool) {
		if !flags.Changed(name) {
			return nil, false
		}
		value := flags.Lookup(name).Value
		if list, ok := value.(pflag.SliceValue); ok {
			return list.GetSlice(), true
		}
		return []string{value.String()}, true
	}
}

func readConfig(flags *pflag.FlagSet, environ func(string) (string, bool)) (*config.Config, error) {
	file, _ := flags.GetString("config")
	return config.Read(config.Sources{
		File: file, Named: flags.Changed("config"), Flag: given(flags), Environ: environ,
		Program: config.Program{Version: cli.Version(), UserAgent: cli.UserAgent("wherry-agent")},
	})
}

// configOf reads the configuration for cmd. It says so on stderr if nobody has named the file.
func configOf(cmd *cobra.Command) (*config.Config, error) {
	c, err := readConfig(cmd.Flags(), os.LookupEnv)
	if err == nil && c.ByDefault {
		cmd.PrintErrf("using the configuration %s\n", c.File)
	}
	return c, err
}

// configured returns do as a command's RunE, with the configuration read.
func configured(do func(cmd *cobra.Command, c *config.Config, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := configOf(cmd)
		if err != nil {
			return err
		}
		return do(cmd, c, args)
	}
}

// runningAgent returns a client of the agent that runs, which says on stderr what it waits for.
func runningAgent(cmd *cobra.Command, c *config.Config) agent.Client {
	return agent.NewClient(c.StateDir).Telling(func(doing string) { cmd.PrintErrf("waiting for the agent: step %s\n", doing) })
}

// withAgent calls f with the agent that c describes.
func withAgent(cmd *cobra.Command, c *config.Config, f func(*agent.Agent) error) error {
	return c.Run(cmd.Context(), config.Process{
		Log: slogTo(cmd, c), Now: cli.Now, DeltaCommand: cli.DeltaCommand(),
		Ready: ready(os.Getenv), Watchdog: watchdog(os.Getenv, os.Getpid()),
	}, f)
}
