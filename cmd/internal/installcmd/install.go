// Package installcmd holds the commands wherry install …, which print manifests of package deploy. Begin with Command.
package installcmd

import (
	"fmt"
	"path"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/deploy"
)

// Command returns the command wherry install.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "install", Short: "Print manifests and units that install wherry"}
	cmd.AddCommand(newAgentCommand(), newHubCommand(), newPromoterCommand(), newHostCommand())
	return cmd
}

func newAgentCommand() *cobra.Command {
	c := chart{name: deploy.Agent}
	var permissions permissions
	var hostPath, tlsSecret string
	cmd := &cobra.Command{
		Use:   "agent --registry LOCATION --environment NAME --cluster-type NAME {--key|--trust} FILE",
		Short: "Print the manifests of an agent",
		Long: `Print the manifests of an agent for one cluster, or with --values the values by which helm installs
deploy/charts/wherry-agent. Nothing is sent to a cluster.

With --host-path the state is in a folder of the node, and with --veto-file the folder of that file is mounted
from it; the namespace then enforces Pod Security "privileged" instead of "restricted".

With --rbac bundle the agent may do what the newest bundle needs and no more. The bundle's signature is checked.
A bundle that holds other kinds or namespaces needs the command again. --for takes other bundles, such as
the one that runs and the one to come. With --rbac none others give the permissions.

With --hub and --enroll-token-file the manifests hold a Secret with the token, by which the agent registers
itself when it first starts. Delete the Secret afterwards.

More: wherry help installing, release-names`,
		Example: `  wherry install agent --registry oci://registry.plant-7:5000/edge --environment dev --cluster-type drone \
      --key cosign.pub | kubectl apply --server-side -f -
  wherry install agent --registry oci://registry.plant-7:5000/edge --environment dev --cluster-type drone \
      --key cosign.pub --rbac bundle --values > values.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := permissions.check(cmd); err != nil {
				return err
			}
			if err := fromSettings(cmd); err != nil {
				return err
			}
			in, err := agentcmd.ReadInstalled(cmd.Context(), cmd.Flags())
			if err != nil {
				return err
			}
			if err := checkInstall(hostPath, tlsSecret); err != nil {
				return err
			}
			given := map[string]any{"config": in.Settings, "files": texts(in.Files)}
			if hostPath != "" {
				given["state"] = map[string]any{"hostPath": hostPath}
			}
			if tlsSecret != "" {
				given["tlsSecret"] = tlsSecret
			}
			var comment string
			switch {
			case permissions.is(rbacUsual):
				cmd.PrintErrln(usualNote)
			case permissions.is(rbacBundle):
				objects, of, err := permissions.ofBundles(cmd, in, c.namespace)
				if err != nil {
					return err
				}
				given["adapters"], given["objects"], comment = []any{}, list(objects), of
			case permissions.is(rbacNone):
				given["adapters"] = []any{}
			default:
				given["adapters"] = list(permissions.modes)
			}
			values, err := c.compose(given, defaultImage(in.Registries[0], cli.Version()))
			if err != nil {
				return err
			}
			if in.EnrollToken == "" {
				return c.print(cmd, values, comment)
			}
			if c.values {
				cmd.PrintErrf("note: the token is not among the values; make the Secret first: kubectl -n %s create secret generic %s --from-file %s=FILE\n", c.namespace, enrollSecret, path.Base(config.InstalledTokenPath))
			}
			return c.print(cmd, values, comment, secret(enrollSecret, c.namespace, map[string][]byte{path.Base(config.InstalledTokenPath): []byte(in.EnrollToken)}))
		},
	}
	agentcmd.AddInstallFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(usualFlags, f.Name) {
			cli.Rare(cmd, f.Name)
		}
	})
	c.add(cmd, " (default: wherry-agent below the prefix of --registry)")
	cmd.Flags().StringVar(&hostPath, "host-path", "", "keep the state in this `FOLDER` of the node instead of a volume")
	cmd.Flags().StringVar(&tlsSecret, "tls-secret", "", "show registries and hub the certificate in this `SECRET` of type kubernetes.io/tls in the agent's namespace")
	permissions.add(cmd)
	return cmd
}

// enrollSecret is the name of the Secret with a token to enroll with, as the chart mounts it.
const enrollSecret = "wherry-agent-enroll"

func secret(name, namespace string, data map[string][]byte) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": namespace}, "type": "Opaque", "data": data,
	}
}

// list and texts return what the types of values can hold.
func list[T any](items []T) []any {
	all := []any{}
	for _, item := range items {
		all = append(all, item)
	}
	return all
}

func texts(files map[string]string) map[string]any {
	all := map[string]any{}
	for name, text := range files {
		all[name] = text
	}
	return all
}

// usualNote says what --rbac bundle would save.
const usualNote = `note: the agent may read, change and delete the usual kinds in all namespaces, Secrets among them; --rbac bundle prints Roles for the kinds and namespaces of the newest bundle, and no more`

// usualFlags are the settings of an agent that most sites give.
var usualFlags = []string{"cluster-name", "cluster-type", "enroll-token-file", "environment", "hub", "hub-key", "key", "platform", "registry", "ring", "trust"}

// fromSettings sets the flags that the settings of the platform around the current folder give.
func fromSettings(cmd *cobra.Command) error {
	s, err := flags.Settings()
	if err != nil || s.Platform == nil {
		return err
	}
	at, err := s.Locate("")
	if err != nil { // then it has to be given
		at.Environment = ""
	}
	given := cmd.Flags().Changed
	values := map[string][]string{"registry": {s.Registry.Text}, "environment": {at.Environment}, "hub": {s.Hub.Text}, "platform": {s.Platform.Name}}
	if !given("key") && !given("trust") {
		values["trust"] = []string{s.Trust.Text}
		for _, k := range s.Keys {
			values["key"] = append(values["key"], k.Text)
		}
	}
	for name, list := range values {
		if given(name) {
			continue
		}
		for _, value := range list {
			if value == "" {
				continue
			}
			if err := cmd.Flags().Set(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkInstall(hostPath, tlsSecret string) error {
	if problems := validation.IsDNS1123Subdomain(tlsSecret); tlsSecret != "" && len(problems) > 0 {
		return cli.Usagef("--tls-secret %q: %s", tlsSecret, problems[0])
	}
	if p := hostPath; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || p == "/") {
		return cli.Usagef("--host-path %q: expected the absolute path of a folder on the node, such as /var/lib/wherry-agent", p)
	}
	return nil
}

// released is a version that an image can be tagged with.
var released = lazyregexp.New(`^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$`)

// defaultImage is the image that "make image IMAGE_PUSH=…" pushes: beside the bundles, since a cluster is known to
// reach their registry.
func defaultImage(registry oci.Location, version string) string {
	tag := "dev"
	if released.MatchString(version) {
		tag = version
	}
	return fmt.Sprintf("%s:%s", registry.Name("wherry-agent"), tag)
}
