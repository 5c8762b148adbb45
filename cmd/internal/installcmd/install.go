// Package installcmd holds the commands wherry install …, which print manifests of package deploy. Begin with Command.
package installcmd

import (
	"fmt"
	"path"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
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
	cmd := &cobra.Command{Use: "install", Short: "Print what runs wherry's parts"}
	cmd.AddCommand(newAgentCommand(), newHostCommand())
	return cmd
}

func newAgentCommand() *cobra.Command {
	var opts deploy.AgentOptions
	var permissions permissions
	cmd := &cobra.Command{
		Use:   "agent --registry LOCATION --environment NAME --cluster-type NAME {--key|--trust} FILE",
		Short: "Print the manifests of an agent for one cluster",
		Long: `Print the manifests of an agent for one cluster: a namespace that enforces Pod Security "restricted", a
service account with the permissions that assignments of the usual kinds need, the configuration, a volume
for the agent's state, and a Deployment. Nothing is sent to a cluster.

With --host-path the state is in a folder of the node, for clusters that provide no volumes; the namespace
then enforces "privileged", as Pod Security asks of such a volume.

With --veto-file the folder of that file is mounted from the node; the namespace enforces "privileged" then, too.

With --rbac bundle the agent may do what the newest bundle needs and no more: Roles in the namespaces of its
assignments, which are printed too, and a ClusterRole for cluster-wide kinds alone. Where workspaces have
ServiceAccounts, these are printed with Roles of their own, and the agent may assume them. The bundle's
signature is checked. A bundle that holds other kinds or namespaces needs the command again. With
--rbac none others give the permissions.

With --serve the manifests hold a Service, by which Flux, Argo CD and other agents reach the agent's endpoint.

--for takes other bundles, such as the one that runs and the one to come.

With --site-values configmap:NAMESPACE/NAME a Role in that namespace, which has to exist, lets the agent read
this ConfigMap.

With --hub and --enroll-token-file the manifests hold a Secret with the token, by which the agent registers
itself when it first starts. Delete the Secret afterwards.
` + flags.ReferenceHelp,
		Example: `  wherry install agent --registry oci://registry.plant-7:5000/edge --environment dev --cluster-type drone \
      --key cosign.pub | kubectl apply --server-side -f -
  wherry install agent --registry oci://registry.plant-7:5000/edge --environment dev --cluster-type drone \
      --key cosign.pub --rbac bundle > install.yaml
  wherry install agent --registry oci://registry.plant-7:5000/edge --environment dev --cluster-type drone \
      --trust trust.v1.json > install.yaml`,
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
			opts.Files, opts.ClusterName, opts.EnrollToken = in.Files, in.ClusterName, []byte(in.EnrollToken)
			opts.VetoFile, opts.SiteValues = in.VetoFile, in.SiteValues
			opts.ServePort, opts.ServeURL = in.ServePort, in.ServeURL
			opts.EnrollTokenPath = config.InstalledTokenPath
			if opts.Image == "" {
				opts.Image = defaultImage(in.Registries[0], cli.Version())
			}
			if err := checkInstall(opts); err != nil {
				return err
			}
			opts.NoRole = permissions.mode != rbacUsual
			data, err := deploy.Agent(opts)
			if err != nil {
				return err
			}
			if permissions.mode == rbacBundle {
				roles, err := permissions.manifests(cmd, in, opts.Namespace)
				if err != nil {
					return err
				}
				data = slices.Concat(data, []byte("---\n"), roles)
			}
			if permissions.mode == rbacUsual {
				cmd.PrintErrln(usualNote)
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	agentcmd.AddInstallFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(usualFlags, f.Name) {
			cli.Rare(cmd, f.Name)
		}
	})
	cmd.Flags().StringVar(&opts.Image, "image", "", "the agent's image, `REFERENCE` (default: wherry-agent below the prefix of --registry)")
	cmd.Flags().StringVar(&opts.Namespace, "namespace", deploy.DefaultNamespace, "`NAMESPACE` for the agent")
	cmd.Flags().StringVar(&opts.HostPath, "host-path", "", "keep the state in this `FOLDER` of the node instead of a volume")
	cmd.Flags().StringVar(&opts.ClientSecret, "tls-secret", "", "show registries and hub the certificate in this `SECRET` of type kubernetes.io/tls in the agent's namespace")
	permissions.add(cmd)
	cmd.Flags().Bool("print", false, "print the manifests, as without this flag")
	_ = cmd.Flags().MarkHidden("print") // of earlier versions
	return cmd
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

func checkInstall(opts deploy.AgentOptions) error {
	if problems := validation.IsDNS1123Label(opts.Namespace); len(problems) > 0 {
		return cli.Usagef("--namespace %q: %s", opts.Namespace, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(opts.ClientSecret); opts.ClientSecret != "" && len(problems) > 0 {
		return cli.Usagef("--tls-secret %q: %s", opts.ClientSecret, problems[0])
	}
	if _, err := name.ParseReference(opts.Image); err != nil {
		return cli.Usagef("--image: %w", err)
	}
	if p := opts.HostPath; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || p == "/") {
		return cli.Usagef("--host-path %q is not the absolute path of a folder of the node, such as /var/lib/wherry-agent", p)
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
