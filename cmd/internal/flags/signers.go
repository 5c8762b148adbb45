package flags

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/usage"
)

const (
	// cosignVariable names the cosign to run where --cosign does not.
	cosignVariable = "WHERRY_COSIGN"
	// pinVariable is cosign's own.
	pinVariable = "COSIGN_PKCS11_PIN"
	// cosignSigner begins a --signer, so that there may be others one day.
	cosignSigner = "cosign:"
)

// Signers names the keys that sign.
type Signers struct {
	keys, signers []string
	origins       map[string]string // of keys and signers that Default has found
	cosign        string
	password      Password

	releases bool               // releases are signed, so that the settings have to name the keys
	newKey   bool               // but for a new one
	settings *settings.Settings // nil before Default
}

// AddOptional adds the flags to a command that can do without.
func (f *Signers) AddOptional(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.keys, "key", nil, "the cosign private key `FILE` that signs; may be repeated")
	flags.StringArrayVar(&f.signers, "signer", nil, "cosign:`URI` of a key in a PKCS#11 token or a key service that signs; may be repeated")
	flags.StringVar(&f.cosign, "cosign", "", "the `PROGRAM` that --signer runs (default "+cosignVariable+", else cosign on PATH)")
	f.password.AddTo(cmd)
	cli.Rare(cmd, "cosign", "password-file")
}

// AddReleases is AddOptional for a command that signs releases with keys that the settings have to name, if they name any. It adds
// --new-key.
func (f *Signers) AddReleases(cmd *cobra.Command) {
	f.releases = true
	f.AddOptional(cmd)
	cmd.Flags().BoolVar(&f.newKey, "new-key", false, "sign with a key that the settings do not name yet; agents that do not know it keep what they run")
	cli.Rare(cmd, "new-key")
}

// Default takes the settings' keys if no flag gives any. It returns an error if there are none either.
func (f *Signers) Default(s *settings.Settings) error {
	f.settings = s
	if len(f.keys)+len(f.signers) > 0 {
		return nil
	}
	if len(s.SignWith) == 0 {
		return missing("--key or --signer", "signWith", settings.SignWithVariable)
	}
	f.origins = map[string]string{}
	for _, k := range s.SignWith {
		f.origins[k.Text] = k.Origin
		if strings.HasPrefix(k.Text, cosignSigner) {
			f.signers = append(f.signers, k.Text)
		} else {
			f.keys = append(f.keys, k.Text)
		}
	}
	return nil
}

// PasswordFromStdin reports whether --password-file takes standard input.
func (f *Signers) PasswordFromStdin() bool { return f.password.file == "-" }

// Open opens all keys, in the order of --key and then of --signer. They work while the command
// does, and no two of them are the same. A key that may not sign releases by the settings is an error.
func (f *Signers) Open(cmd *cobra.Command) ([]*keys.Key, error) {
	// Report wrong flags before asking for a password.
	if slices.Contains(f.keys, "") {
		return nil, cli.Usagef("--key is empty: it names the file of a private key")
	}
	for _, s := range f.signers {
		if uri, ok := strings.CutPrefix(s, cosignSigner); !ok || uri == "" {
			return nil, cli.Usagef("--signer: expected cosign:URI, such as cosign:pkcs11:… or cosign:awskms://…")
		}
	}
	var opened []*keys.Key
	names := map[string]string{}
	take := func(key *keys.Key, name string) error {
		id, err := bundle.KeyID(key.Public())
		if err != nil {
			return err
		}
		if other, ok := names[id]; ok {
			return cli.Usagef("%s is the same key as %s: each signs once", name, other)
		}
		names[id] = name
		opened = append(opened, key)
		return nil
	}
	for _, name := range f.keys {
		key, err := loadKey(cmd, name, &f.password)
		if err == nil {
			err = take(key, "--key "+name)
		}
		if err != nil {
			return nil, from(f.origins[name], err)
		}
	}
	for i, s := range f.signers {
		key, err := f.openSigner(cmd, strings.TrimPrefix(s, cosignSigner))
		if err == nil {
			err = take(key, fmt.Sprintf("--signer %d", i+1)) // a URI may have a PIN in it
		}
		if err != nil {
			return nil, from(f.origins[s], err)
		}
	}
	return opened, f.checkNamed(cmd, opened)
}

// checkNamed returns an error if releases are signed with a key that the settings do not name: agents would refuse them. With a trust
// document, that document says who may sign.
func (f *Signers) checkNamed(cmd *cobra.Command, opened []*keys.Key) error {
	if !f.releases || f.newKey || f.settings == nil || len(f.settings.Keys) == 0 || cmd.Flags().Changed("trust") {
		return nil
	}
	named, err := (&Trust{keys: f.settings.Keys}).ReadKeys()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, k := range named {
		id, err := bundle.KeyID(k)
		if err != nil {
			return err
		}
		known[id] = true
	}
	names := slices.Concat(f.keys, f.signers)
	for i, key := range opened {
		id, err := bundle.KeyID(key.Public())
		if err != nil {
			return err
		}
		if known[id] {
			continue
		}
		name := fmt.Sprintf("--signer %d", i-len(f.keys)+1) // a URI may have a PIN in it
		if i < len(f.keys) {
			name = "--key " + names[i]
		}
		if origin := f.origins[names[i]]; origin != "" {
			name = origin + ": signWith: " + strings.TrimPrefix(name, "--key ")
		}
		return cli.Fail(cli.Denied, fmt.Errorf("%s is not the key of %s (%s): agents that know only that refuse what it signs", name, texts(f.settings.Keys), f.settings.Keys[0].Origin), f.rightKey())
	}
	return nil
}

// rightKey is the hint that leads back to a key which the settings name.
func (f *Signers) rightKey() string {
	right := "sign with the private key of " + texts(f.settings.Keys)
	if beside := strings.TrimSuffix(f.settings.Keys[0].Text, ".pub") + ".key"; len(f.origins) == 0 && len(f.settings.SignWith) > 0 {
		right = fmt.Sprintf("leave out --key and --signer to sign with %s (%s)", texts(f.settings.SignWith), f.settings.SignWith[0].Origin)
	} else if _, err := os.Stat(beside); err == nil {
		right = "pass --key " + beside
	}
	return right + "; if the key is a new one, pass --new-key, and give its public half to every agent"
}

// texts lists values.
func texts(all []settings.Value) string {
	var list []string
	for _, v := range all {
		list = append(list, show.Line(v.Text))
	}
	return strings.Join(list, ", ")
}

// from adds the origin of a setting to an error about it.
func from(origin string, err error) error {
	var e *cli.Error
	if origin == "" || !errors.As(err, &e) {
		return err
	}
	return cli.Fail(e.Code, fmt.Errorf("%s: %w", origin, e.Err), e.Hint)
}

// OpenKey opens a private key with its password. It is a variable for the tests that start wherry hundreds of times:
// they have keys that open at once, where [keys.Load] makes each guess of a password expensive.
var OpenKey = keys.Load

// loadKey opens the private key in the file name.
func loadKey(cmd *cobra.Command, name string, password *Password) (*keys.Key, error) {
	data, err := cli.ReadInput(cmd, name, MaxKeyBytes)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key: %w", err), `"wherry keys generate" makes a key pair`)
	}
	secret, err := password.Read(cmd, false)
	if err != nil {
		return nil, err
	}
	key, err := OpenKey(data, secret)
	if errors.Is(err, keys.ErrPassword) {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key %s: %w", name, err),
			fmt.Sprintf("the password comes from --password-file, else from %s, else from the terminal", PasswordVariable))
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key %s: %w", name, err), `"wherry keys generate" makes a key pair`)
	}
	return key, nil
}

func (f *Signers) openSigner(cmd *cobra.Command, uri string) (*keys.Key, error) {
	opts := keys.CosignOptions{Program: f.cosign}
	if opts.Program == "" {
		opts.Program = os.Getenv(cosignVariable)
	}
	isToken := strings.HasPrefix(uri, "pkcs11:")
	if _, known := keys.PINInURI(uri); isToken && !known && os.Getenv(pinVariable) == "" {
		// Asked for once, and not by cosign for each signature.
		pin, err := cli.AskSecret(cmd, "PIN of the token: ")
		if err != nil && !errors.Is(err, cli.ErrNoTerminal) {
			return nil, err
		}
		opts.PIN = string(pin)
	}
	key, err := keys.OpenCosign(cmd.Context(), uri, opts)
	var wrong *usage.Error
	switch {
	case err == nil || cmd.Context().Err() != nil:
		return key, err
	case errors.As(err, &wrong):
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--signer: %w", err), "pass a key file with --key")
	case errors.Is(err, keys.ErrNoCosign):
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--signer: %w", err), "install cosign 2.6 or a later 2.x, or name it with --cosign or "+cosignVariable)
	case isToken:
		return nil, cli.Fail(cli.Failed, fmt.Errorf("--signer: %w", err), "are the token and the key there? The PIN comes from pin-value in the URI, else from "+
			pinVariable+", else from the terminal; cosign has to be built with the tag pkcs11key")
	}
	return nil, cli.Fail(cli.Failed, fmt.Errorf("--signer: %w", err), "")
}
