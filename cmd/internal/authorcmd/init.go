package authorcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/author/scaffold"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// keyPrefix begins the names of the key files that init makes.
const keyPrefix = "cosign"

// beginning holds the flags of init.
type beginning struct {
	start      scaffold.Start
	keys       bool
	allowEmpty bool
	password   flags.Password
	dryRun     bool
}

// Init returns the command wherry init.
func Init() *cobra.Command {
	var b beginning
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Create a platform in a folder",
		Long: `Make a new platform in a folder, the current one without DIR: settings, a Platform object, a folder for each
environment with a cluster type, a scheduling policy and values, and the Templates of a flavour:

  kalypso   Flux and Argo CD, as in Kalypso's control planes: both fetch a workload's manifests from git
  flux      Flux alone
  empty     no GitOps engine: wherry's agent applies plain Kubernetes objects, or writes them to a folder

It has no mistakes that "wherry lint" finds, and "wherry publish" publishes it. At a terminal, init asks for what no
flag says. No file is replaced, and a folder that has a platform is left alone.

--keys makes a key pair, as "wherry keys generate" does. The private key stays in the folder and out of git.`,
		Example: `  wherry init fleet --from flux --registry oci://registry.example/edge --keys
  wherry init --from empty --environment dev --environment prod`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				if dir = args[0]; dir == "" {
					return cli.Usagef("DIR is empty")
				}
			}
			return b.run(cmd, dir)
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.start.Flavour, "from", scaffold.Flavours[0], "begin with this `FLAVOUR`: kalypso, flux or empty")
	f.StringVar(&b.start.Name, "name", "", "the platform's `NAME`; the folder's without it")
	f.StringSliceVarP(&b.start.Environments, "environment", "e", []string{"dev", "prod"}, "an environment's `NAME`; may be repeated, and the first one is the default of commands")
	f.StringVar(&b.start.Registry, "registry", "", "publish releases to this `LOCATION`, oci://HOST/PREFIX or oci-layout:DIR")
	f.BoolVar(&b.keys, "keys", false, "make a key pair that signs releases")
	f.BoolVar(&b.allowEmpty, "allow-empty-password", false, "leave the private key as good as unencrypted if the password is empty")
	f.BoolVar(&b.dryRun, "dry-run", false, "show what would be written, and write nothing")
	b.password.AddTo(cmd)
	cli.NotEmpty(cmd, "from", "name", "registry")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(scaffold.Flavours, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (b *beginning) run(cmd *cobra.Command, dir string) error {
	if cli.IsTerminal() {
		if err := b.ask(cmd); err != nil {
			return err
		}
	}
	if err := b.locate(dir); err != nil {
		return err
	}
	if b.keys {
		b.start.KeyPrefix = keyPrefix
		for _, name := range []string{keyPrefix + ".key", keyPrefix + ".pub"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				return cli.Fail(cli.No, fmt.Errorf("%s is there already", filepath.Join(dir, name)), "leave out --keys, and name it in wherry.yaml")
			}
		}
	}
	plan, err := scaffold.Init(cmd.Context(), dir, b.start)
	if err != nil {
		return err
	}
	if b.dryRun {
		fmt.Fprint(cmd.OutOrStdout(), plan.Diff())
		return nil
	}
	var secret []byte
	if b.keys {
		if secret, err = b.password.Read(cmd, true); err != nil {
			return err
		}
		if len(secret) == 0 && !b.allowEmpty {
			return cli.Fail(cli.Usage, errors.New("empty password: anyone who can read the key file could sign releases"),
				"give a password, or --allow-empty-password if that is what you want")
		}
	}
	if err := plan.Apply(); err != nil {
		return err
	}
	for _, c := range plan.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), plan.Path(c.Name))
	}
	printNotes(cmd, plan)
	if b.keys {
		if err := makeKeys(cmd, dir, secret); err != nil {
			return err
		}
	}
	b.next(cmd, dir)
	return nil
}

func makeKeys(cmd *cobra.Command, dir string, secret []byte) error {
	made, err := keys.Generate(filepath.Join(dir, keyPrefix), secret)
	if err != nil {
		return cli.Fail(cli.Failed, err, `the platform is there; "wherry keys generate" makes the keys`)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", made.Private, made.Public)
	cmd.PrintErrf("note: %s is the private key. It does not belong in git: .gitignore leaves it out. Keep a copy of it, and its password, in a safe place.\n", made.Private)
	return nil
}

// next prints commands that go on from here. Each works as it stands.
func (b *beginning) next(cmd *cobra.Command, dir string) {
	manifest := "--manifest repo=https://git.example/hello --manifest branch=main --manifest path=."
	if b.start.Flavour == "empty" {
		manifest = "--manifest image=registry.example/hello:1.0"
	}
	publish := "wherry publish"
	if b.start.Registry == "" {
		publish += " --to oci-layout:../registry"
	}
	cmd.PrintErrln("\nGo on with:")
	if dir != "." {
		if strings.ContainsAny(dir, " \t\"'`$&|;<>()*?[]#~\\") {
			dir = "'" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
		}
		cmd.PrintErrf("  cd %s\n", dir)
	}
	cmd.PrintErrf("  wherry new workload hello -e %s %s\n  wherry lint\n", b.start.Environments[0], manifest)
	if !b.keys {
		cmd.PrintErrln("  wherry keys generate")
		publish += " --key cosign.key"
	}
	cmd.PrintErrf("  %s\n", publish)
	if b.start.Registry == "" || !b.keys {
		cmd.PrintErrln("\nTo publish without flags, set registry, keys and signWith in wherry.yaml.")
	}
}

// locate fills in what follows from the folder: the git repository, and the registry as it is from there.
func (b *beginning) locate(dir string) error {
	if b.start.Repo = gitrepo.Redact(gitrepo.OriginOf(dir)); b.start.Repo == "" {
		b.start.Repo = "."
	}
	if b.start.Branch = gitrepo.BranchOf(dir); b.start.Branch == "" {
		b.start.Branch = "main"
	}
	if b.start.Registry == "" {
		return nil
	}
	loc, err := flags.ParseLocation("registry", b.start.Registry)
	if err != nil || loc.Dir == "" || filepath.IsAbs(loc.Dir) {
		return err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	to, err := filepath.Abs(loc.Dir)
	if err != nil {
		return err
	}
	from, err := filepath.Rel(abs, to)
	b.start.Registry = "oci-layout:" + filepath.ToSlash(from)
	return err
}

// ask asks for what no flag says.
func (b *beginning) ask(cmd *cobra.Command) error {
	question := func(flag, text, preset string, take func(answer string)) error {
		if cmd.Flags().Changed(flag) {
			return nil
		}
		answer, err := cli.AskLine(cmd, cmd.InOrStdin(), fmt.Sprintf("%s [%s]: ", text, preset))
		if err == nil && answer != "" {
			take(answer)
		}
		return err
	}
	words := func(s string) []string {
		return slices.DeleteFunc(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' }), func(s string) bool { return s == "" })
	}
	if err := errors.Join(
		question("from", "Flavour: "+strings.Join(scaffold.Flavours, ", "), b.start.Flavour, func(s string) { b.start.Flavour = s }),
		question("environment", "Environments", strings.Join(b.start.Environments, " "), func(s string) { b.start.Environments = words(s) }),
		question("registry", "Registry, as oci://HOST/PREFIX or oci-layout:DIR", "none yet", func(s string) { b.start.Registry = s }),
	); err != nil {
		return err
	}
	if cmd.Flags().Changed("keys") {
		return nil
	}
	var err error
	b.keys, err = cli.AskYes(cmd, cmd.InOrStdin(), "Make a key pair that signs releases?")
	return err
}
