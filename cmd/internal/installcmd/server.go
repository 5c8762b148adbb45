package installcmd

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/deploy"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
)

func newHubCommand() *cobra.Command {
	c := chart{name: deploy.Hub}
	var alone bool
	cmd := &cobra.Command{
		Use:   "hub --image REFERENCE",
		Short: "Print the manifests of a hub",
		Long: `Print the manifests of a hub, or with --values the values by which helm installs deploy/charts/wherry-hub.
Nothing is sent to a cluster.

With --secret, print nothing but the Secret that the hub starts with: a new key, and a new access token of role
admin. Make it once, before the hub, with kubectl create, which replaces none: agents pin the key, and would
not believe another one. The token is in this Secret and in nothing else.

The hub keeps its data in SQLite on a volume, or with --set database.secret=NAME in PostgreSQL.
deploy/charts/wherry-hub/values.yaml lists all values.`,
		Example: `  kubectl create namespace wherry-system
  wherry install hub --secret | kubectl create -f -
  wherry install hub --image registry.example.com/edge/wherry:dev | kubectl apply --server-side -f -
  wherry install hub --image registry.example.com/edge/wherry:dev --set replicas=2 --set database.secret=hub-db > hub.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, err := c.compose(map[string]any{}, "")
			switch {
			case err != nil:
				return err
			case alone:
				return printSecret(cmd, c.namespace, values)
			}
			return c.print(cmd, values, "")
		},
	}
	c.add(cmd, "")
	cmd.Flags().BoolVar(&alone, "secret", false, "print the Secret with a new key and a new admin token alone")
	cmd.MarkFlagsMutuallyExclusive("print", "values", "secret")
	return cmd
}

// printSecret prints the Secret of a new hub. A terminal would show it to whoever looks at it.
func printSecret(cmd *cobra.Command, namespace string, values map[string]any) error {
	if term.IsTerminal(int(os.Stdout.Fd())) {
		return cli.Fail(cli.Usage, errors.New("--secret: standard output is a terminal, which would show the secrets"), "pipe it: wherry install hub --secret | kubectl create -f -")
	}
	key, err := hub.NewKey()
	if err != nil {
		return err
	}
	name, _ := values["secret"].(string)
	data, err := yaml.Marshal(secret(cmp.Or(name, string(deploy.Hub)), namespace, map[string][]byte{
		hub.KeyFile: key, access.AdminTokenFile: []byte(access.NewToken().Reveal() + "\n"),
	}))
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(data)
	return err
}

func newPromoterCommand() *cobra.Command {
	c := chart{name: deploy.Promoter}
	cmd := &cobra.Command{
		Use:   "promoter --image REFERENCE --set platform=URL --set registry=LOCATION",
		Short: "Print the manifests of a promoter",
		Long: `Print the manifests of the process that publishes and promotes a platform, or with --values the values by which
helm installs deploy/charts/wherry-promoter. Nothing is sent to a cluster.

The Secret wherry-promoter holds cosign.key, cosign.password and webhook.secret, and where they are needed forge.token
and hub.token. deploy/charts/wherry-promoter/values.yaml lists all values.`,
		Example: `  wherry install promoter --image registry.example.com/edge/wherry:dev --set platform=https://github.com/example/platform \
      --set registry=oci://registry.example.com/edge --set hub=https://hub.example.com | kubectl apply --server-side -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, err := c.compose(map[string]any{}, "")
			if err != nil {
				return err
			}
			if platform, _ := values["platform"].(string); platform == "" {
				return cli.Usagef("the value platform is not set: give --set platform=URL")
			}
			return c.print(cmd, values, "")
		},
	}
	c.add(cmd, "")
	return cmd
}
