package configcmd

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Context returns the command wherry context.
func Context() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Manage contexts: registry, hub and defaults",
		Long: `Choose the registry and hub to work with. A context gives registry, hub, environment and keys a name. They hold
where neither a flag, nor a variable, nor the wherry.yaml of a platform repository says otherwise. WHERRY_CONTEXT
names the context for one command.

Contexts are in wherry/contexts.yaml in your configuration folder.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newContextListCommand(), newContextRemoveCommand(), newContextSetCommand(), newContextShowCommand(), newContextUseCommand())
	return cmd
}

// open reads the contexts.
func open() (*settings.Contexts, string, error) {
	file, err := settings.ContextsFile()
	if err != nil {
		return nil, "", cli.Fail(cli.Failed, err, "set HOME or XDG_CONFIG_HOME")
	}
	contexts, err := settings.ReadContexts(file)
	return contexts, file, err
}

// change reads the contexts, changes them and writes them.
func change(f func(*settings.Contexts) error) error {
	contexts, file, err := open()
	if err != nil {
		return err
	}
	if err := f(contexts); err != nil {
		return err
	}
	if err := contexts.Write(file); err != nil {
		return cli.Fail(cli.Failed, err, fmt.Sprintf("make %s a folder that can be written", filepath.Dir(file)))
	}
	return nil
}

// completeContexts completes the names of contexts.
func completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	contexts, _, err := open()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return contexts.Names(), cobra.ShellCompDirectiveNoFileComp
}

func newContextListCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the contexts", Example: "  wherry context ls", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			contexts, _, err := open()
			if err != nil {
				return err
			}
			if len(contexts.Contexts) == 0 {
				cmd.PrintErrln(`there are no contexts; "wherry context set NAME" makes one`)
			}
			return cli.Print(cmd.OutOrStdout(), format, contexts, func(w io.Writer) {
				fmt.Fprintln(w, "IN USE\tNAME\tREGISTRY\tENVIRONMENT\tHUB")
				for _, c := range contexts.Contexts {
					mark := ""
					if c.Name == contexts.Current {
						mark = "*"
					}
					cli.Row(w, mark, c.Name, c.Registry, c.Environment, c.Hub)
				}
			})
		},
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}

func newContextShowCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "show [NAME]", Short: "Show a context", Example: "  wherry context show plant-7",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			contexts, _, err := open()
			if err != nil {
				return err
			}
			name := strings.Join(args, "")
			if name == "" {
				if name = contexts.Current; name == "" {
					return cli.Fail(cli.No, fmt.Errorf("no context is in use"), `"wherry context use NAME" chooses one`)
				}
			}
			c, err := contexts.Get(name)
			if err != nil {
				return err
			}
			c.SignWith = publicOf(c.SignWith)
			return cli.Print(cmd.OutOrStdout(), format, c, func(w io.Writer) {
				for _, row := range [][2]string{
					{"NAME", c.Name},
					{"REGISTRY", c.Registry},
					{"ENVIRONMENT", c.Environment},
					{"HUB", c.Hub},
					{"TRUST", c.Trust},
					{"KEYS", strings.Join(c.Keys, ", ")},
					{"SIGN WITH", strings.Join(c.SignWith, ", ")},
				} {
					cli.Row(w, row[0], row[1])
				}
			})
		},
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}

func publicOf(values []string) (all []string) {
	for _, v := range values {
		all = append(all, settings.Public(v))
	}
	return all
}

func newContextUseCommand() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Switch to a context", Example: "  wherry context use plant-7\n  wherry context use --none",
		Args: func(cmd *cobra.Command, args []string) error {
			if none {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			if err := change(func(c *settings.Contexts) error { return c.Use(name) }); err != nil {
				return err
			}
			if none {
				name = "none"
			}
			cmd.PrintErrf("context in use: %s\n", name)
			return nil
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "use no context any more")
	return cmd
}

func newContextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a context", Example: "  wherry context rm plant-7",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := change(func(c *settings.Contexts) error { return c.Remove(args[0]) }); err != nil {
				return err
			}
			cmd.PrintErrf("context %s is removed\n", args[0])
			return nil
		},
	}
}

func newContextSetCommand() *cobra.Command {
	var given settings.Context
	var use bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or change a context",
		Long: `Make a context, or change what flags give of the one that there is. An empty value removes one. Keys are names of
files; no secret is stored.`,
		Example: `  wherry context set plant-7 --registry oci://registry.plant-7:5000/edge --hub https://hub.plant-7 --key cosign.pub --use
  wherry context set plant-7 --environment prod`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := change(func(c *settings.Contexts) error {
				one, err := c.Get(args[0])
				if err != nil {
					one = settings.Context{Name: args[0]}
				}
				if err := take(cmd, &one, given); err != nil {
					return err
				}
				if err := c.Set(one); err != nil || !use {
					return err
				}
				return c.Use(args[0])
			})
			if err != nil {
				return err
			}
			cmd.PrintErrf("context %s is set\n", args[0])
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&given.Registry, "registry", "", "the `LOCATION` of bundles, oci://HOST/PREFIX or oci-layout:DIR")
	f.StringVar(&given.Hub, "hub", "", "the hub's `URL`")
	f.StringVarP(&given.Environment, "environment", "e", "", "the environment's `NAME`")
	f.StringVar(&given.Trust, "trust", "", "version 1 of the trust document, a `FILE`")
	f.StringArrayVar(&given.Keys, "key", nil, "a `FILE` with public keys, one of which must have signed; may be repeated")
	f.StringArrayVar(&given.SignWith, "sign-with", nil, "the private `KEY` that signs, a file or cosign:URI; may be repeated")
	f.BoolVar(&use, "use", false, "use the context from now on")
	return cmd
}

// take replaces what flags give in a context. Paths become absolute, because a context holds in every folder.
func take(cmd *cobra.Command, one *settings.Context, given settings.Context) error {
	paths := func(values []string) ([]string, error) {
		var all []string
		for _, v := range values {
			if v == "" {
				continue
			}
			path, err := absolute(v)
			if err != nil {
				return nil, err
			}
			all = append(all, path)
		}
		return all, nil
	}
	var err error
	changed := cmd.Flags().Changed
	if changed("registry") {
		if one.Registry, err = absolute(given.Registry); err != nil {
			return err
		}
	}
	if changed("hub") {
		one.Hub = given.Hub
	}
	if changed("environment") {
		one.Environment = given.Environment
	}
	if changed("trust") {
		if one.Trust, err = absolute(given.Trust); err != nil {
			return err
		}
	}
	if changed("key") {
		if one.Keys, err = paths(given.Keys); err != nil {
			return err
		}
	}
	if changed("sign-with") {
		one.SignWith, err = paths(given.SignWith)
	}
	return err
}

// absolute returns a path, or the folder of an OCI layout, as it is from every folder. Other places stay as they are.
func absolute(value string) (string, error) {
	dir, layout := strings.CutPrefix(value, "oci-layout:")
	if value == "" || strings.HasPrefix(value, "oci://") || strings.HasPrefix(value, settings.CosignPrefix) || layout && dir == "" {
		return value, nil
	}
	path, err := filepath.Abs(dir)
	if layout {
		path = "oci-layout:" + path
	}
	return path, err
}
