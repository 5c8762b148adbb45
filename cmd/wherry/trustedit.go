package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
)

func newTrustInitCommand() *cobra.Command {
	var platform, validFor, output string
	var rootKeys, releaseKeys []string
	var rootThreshold, releaseThreshold int
	var signer flags.Signers
	cmd := &cobra.Command{
		Use:   "init --platform NAME --root-key PUB… --root-threshold N --release-key PUB… --release-threshold M [-o FILE]",
		Short: "Write version 1",
		Long: `Write version 1 of a platform's trust document, to be signed by as many of the root keys as --root-threshold
says, and then installed on agents. A key is [NAME=]FILE, a .pub file; the name is for people, and the file's
where none is given. A threshold need not be given for a single key.

With --key the document is signed at once; else "wherry trust sign" does.`,
		Example: `  wherry trust init --platform edge --root-key anna.pub --root-key bob.pub --root-key carol.pub --root-threshold 2 \
    --release-key anna.pub --release-key ci=build-server.pub --release-threshold 2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			valid := trust.DefaultValidity
			var err error
			if validFor != "" {
				if valid, err = flags.ParseValidity("valid-for", validFor); err != nil {
					return err
				}
			}
			root, err := readRole(trust.RoleRoot, rootKeys, rootThreshold)
			if err != nil {
				return err
			}
			release, err := readRole(trust.RoleRelease, releaseKeys, releaseThreshold)
			if err != nil {
				return err
			}
			envelope, err := trust.New(platform, root, release, valid, time.Now())
			if err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			keys, err := signer.Open(cmd)
			if err != nil {
				return err
			}
			if envelope, err = trust.Sign(envelope, nil, keys); err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			if err := createTrustFile(output, envelope); err != nil {
				return err
			}
			return reportTrustFile(cmd, output, envelope, nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&platform, "platform", "", "the platform's `NAME`, as its releases have it (required)")
	f.StringArrayVar(&rootKeys, "root-key", nil, "the `[NAME=]PUB` of a key that may change who signs; may be repeated (required)")
	f.IntVar(&rootThreshold, "root-threshold", 0, "the `NUMBER` of root keys that have to sign the next version")
	f.StringArrayVar(&releaseKeys, "release-key", nil, "the `[NAME=]PUB` of a key that signs releases; may be repeated (required)")
	f.IntVar(&releaseThreshold, "release-threshold", 0, "the `NUMBER` of release keys that have to sign a release")
	f.StringVar(&validFor, "valid-for", "", "the `TIME` for which it lets new releases in (default 365d)")
	f.StringVarP(&output, "output", "o", "trust.v1.json", "the `FILE` to write")
	cli.NotEmpty(cmd, "output")
	signer.AddOptional(cmd)
	for _, name := range []string{"platform", "root-key", "release-key"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func readRole(name string, files []string, threshold int) (bundle.Role, error) {
	role := bundle.Role{Threshold: threshold}
	for _, f := range files {
		key, err := readTrustKey(name+"-key", f)
		if err != nil {
			return role, err
		}
		role.Keys = append(role.Keys, key)
	}
	if threshold == 0 && len(files) == 1 {
		role.Threshold = 1
	}
	if role.Threshold == 0 {
		return role, cli.Usagef("say with --%s-threshold how many of the %d %s keys have to sign", name, len(files), name)
	}
	return role, nil
}

// trustEdit holds what the commands have in common that change a document.
type trustEdit struct {
	output, validFor string
}

func (e *trustEdit) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.validFor, "valid-for", "", "the `TIME` for which it lets new releases in (default as long as before)")
	cmd.Flags().StringVarP(&e.output, "output", "o", "", "the `FILE` to write the next version to; not needed while nobody has signed FILE")
	cli.NotEmpty(cmd, "output")
}

// run applies changes to file, or makes the next version.
func (e *trustEdit) run(cmd *cobra.Command, file string, changes ...trust.Change) error {
	envelope, err := flags.ReadTrust(file)
	if err != nil {
		return err
	}
	if e.validFor != "" {
		validFor, err := flags.ParseValidity("valid-for", e.validFor)
		if err != nil {
			return err
		}
		changes = append(changes, trust.ValidFor(validFor))
	}
	next, err := trust.Edit(envelope, time.Now(), changes...)
	if err != nil {
		return trustEditFailure(err, file)
	}
	draft, err := trust.IsDraft(envelope)
	switch {
	case err != nil:
		return err
	case e.output == "" && !draft:
		return cli.Usagef("%s is signed and stays as it is: say with -o where the next version is to be written", file)
	case e.output == "" || e.output == file && draft:
		e.output = file
		err = writeTrustFile(file, next)
	default:
		err = createTrustFile(e.output, next)
	}
	if err != nil {
		return err
	}
	return reportTrustFile(cmd, e.output, next, nil)
}

func trustEditFailure(err error, file string) error {
	return trustFailure(err, file, noLocation)
}

func newTrustRotateCommand() *cobra.Command {
	var edit trustEdit
	var raise bool
	var root, release int
	cmd := &cobra.Command{
		Use:   "rotate FILE [-o NEXT]",
		Short: "Begin the next version: a new validity, thresholds, or a new epoch",
		Long: `Begin the next version of the document in FILE, with the same keys, valid from now. Where nobody has signed
FILE, it is changed itself.

--raise-epoch is the answer to stolen keys: every release so far is refused from then on, and their sequences
begin again. Remove the keys in the same version, and publish the releases again after it. Given twice before
anybody has signed, it raises the epoch once.`,
		Example: `  wherry trust rotate trust.v1.json -o trust.v2.json
  wherry trust rotate trust.v2.json --raise-epoch --release-threshold 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if root < 0 || release < 0 {
				return cli.Usagef("a threshold is 1 or more")
			}
			changes := []trust.Change{trust.Thresholds(root, release)}
			if raise {
				changes = append(changes, trust.RaiseEpoch)
			}
			return edit.run(cmd, args[0], changes...)
		},
	}
	cmd.Flags().BoolVar(&raise, "raise-epoch", false, "refuse every release so far, for ever")
	cmd.Flags().IntVar(&root, "root-threshold", 0, "the `NUMBER` of root keys that have to sign the version after it")
	cmd.Flags().IntVar(&release, "release-threshold", 0, "the `NUMBER` of release keys that have to sign a release")
	edit.add(cmd)
	return cmd
}

// addRole adds the flag that names a role.
func addRole(cmd *cobra.Command, role *string) {
	cmd.Flags().StringVar(role, "role", "", "the `ROLE`, root or release (required)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{trust.RoleRelease, trust.RoleRoot}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagRequired("role")
}

func newTrustAddKeyCommand() *cobra.Command {
	var edit trustEdit
	var role, file, name string
	cmd := &cobra.Command{
		Use:   "add-key FILE --role root|release --public-key PUB [-o NEXT]",
		Short: "Let one more key sign",
		Long: `Add a key to a role of the document in FILE: in FILE itself while nobody has signed it, else in the next
version, which -o names.`,
		Example: `  wherry trust add-key trust.v1.json --role release --public-key dave.pub -o trust.v2.json
  wherry trust add-key trust.v2.json --role root --public-key dave.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" {
				file = name + "=" + file
			}
			key, err := readTrustKey("public-key", file)
			if err != nil {
				return err
			}
			return edit.run(cmd, args[0], trust.AddKey(role, key))
		},
	}
	addRole(cmd, &role)
	cmd.Flags().StringVar(&file, "public-key", "", "the key's `PUB` file (required)")
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of whose it is, for people (default the file's name)")
	_ = cmd.MarkFlagRequired("public-key")
	edit.add(cmd)
	return cmd
}

func newTrustRemoveKeyCommand() *cobra.Command {
	var edit trustEdit
	var role, file, id string
	cmd := &cobra.Command{
		Use:   "remove-key FILE --role root|release (--key-id ID | --public-key PUB) [-o NEXT]",
		Short: "Let a key sign no more",
		Long: `Take a key out of a role of the document in FILE: in FILE itself while nobody has signed it, else in the
next version, which -o names. "wherry trust show" lists the ids; the first digits do.

What the key has signed so far stays valid. Where it may have been stolen, add "wherry trust rotate --raise-epoch".`,
		Example: `  wherry trust remove-key trust.v1.json --role release --public-key carol.pub -o trust.v2.json
  wherry trust remove-key trust.v2.json --role root --key-id 51c2ab03`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				key, err := readTrustKey("public-key", file)
				if err != nil {
					return err
				}
				id = key.ID
			}
			return edit.run(cmd, args[0], trust.RemoveKey(role, id))
		},
	}
	addRole(cmd, &role)
	cmd.Flags().StringVar(&id, "key-id", "", "the key's `ID`, or its first digits")
	cmd.Flags().StringVar(&file, "public-key", "", "the key's `PUB` file")
	cmd.MarkFlagsOneRequired("key-id", "public-key")
	cmd.MarkFlagsMutuallyExclusive("key-id", "public-key")
	edit.add(cmd)
	return cmd
}
