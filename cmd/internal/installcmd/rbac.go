package installcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/deploy"
	"github.com/wherry-dev/wherry/deploy/rbac"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

// maxDefinitionBytes bounds a file of --crd. All of a large cluster's definitions together have some MiB.
const maxDefinitionBytes = 64 << 20

// The permissions that an agent gets, beside those for the adapters that --rbac may name.
const (
	rbacUsual  = "usual"
	rbacBundle = "bundle"
	rbacNone   = "none"
)

// adapters are those of whose kinds the chart knows which they are.
var adapters = []string{"kubernetes", "flux", "argo"}

// permissions holds the flags for the agent's permissions.
type permissions struct {
	modes       []string
	bundles     []string // in place of the newest
	definitions []string // files
}

func (f *permissions) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringSliceVar(&f.modes, "rbac", []string{rbacUsual}, "print the permissions `WHICH`: usual for assignments of the usual kinds, those of adapters such as kubernetes,flux, bundle for what the newest bundle holds, or none")
	_ = cmd.RegisterFlagCompletionFunc("rbac", cobra.FixedCompletions(slices.Concat([]string{rbacUsual, rbacBundle, rbacNone}, adapters), cobra.ShellCompDirectiveNoFileComp))
	set.StringArrayVar(&f.bundles, "for", nil, "print the permissions for the bundle `REF` in place of the newest; may be given several times")
	set.StringArrayVar(&f.definitions, "crd", nil, "`FILE` with CustomResourceDefinitions that bundles use and do not bring; may be given several times")
}

// check completes the flags, and refuses wrong ones.
func (f *permissions) check(cmd *cobra.Command) error {
	if len(f.bundles) > 0 && !cmd.Flags().Changed("rbac") {
		f.modes = []string{rbacBundle}
	}
	alone := len(f.modes) == 1
	for _, m := range f.modes {
		if !slices.Contains(adapters, m) && (!alone || m != rbacUsual && m != rbacBundle && m != rbacNone) {
			return cli.Usagef("unknown --rbac %q (known: usual, bundle, none, or some of kubernetes, flux, argo)", strings.Join(f.modes, ","))
		}
	}
	if !f.is(rbacBundle) && len(f.bundles)+len(f.definitions) > 0 {
		return cli.Usagef("--for and --crd are about the permissions of --rbac bundle, not %s", strings.Join(f.modes, ","))
	}
	return nil
}

func (f *permissions) is(mode string) bool { return slices.Equal(f.modes, []string{mode}) }

// ofBundles returns the permissions that the agent's bundles need, and a comment that names the bundles. It prints
// notes for the person.
func (f *permissions) ofBundles(cmd *cobra.Command, in *config.Installed, namespace string) (objects []map[string]any, comment string, err error) {
	opts := rbac.Options{Account: deploy.AgentAccount, Namespace: namespace, Role: deploy.RoleName(namespace), Impersonate: in.Impersonate, ArgoNamespace: in.ArgoNamespace}
	definitions := needs.New()
	for _, name := range f.definitions {
		data, err := diskfile.Read(name, maxDefinitionBytes)
		if err != nil {
			return nil, "", cli.Fail(cli.Usage, fmt.Errorf("--crd: %w", err), "")
		}
		before := len(definitions.Defined)
		if definitions.AddManifests("", data); len(definitions.Defined) == before {
			return nil, "", cli.Usagef("--crd: %s holds no CustomResourceDefinition that can be read and is not in another file", name)
		}
	}
	opts.Known = definitions.Defined
	stream := bundle.Stream{Platform: in.Cluster.Platform, Environment: in.Cluster.Environment, ClusterType: in.Cluster.Type}
	refs := f.bundles
	if len(refs) == 0 {
		first, err := newest(cmd.Context(), in, stream)
		if err != nil {
			return nil, "", err
		}
		refs = []string{first}
	}
	var bundles []*needs.Needs
	var names []string
	for _, s := range refs {
		ref, err := flags.ParseReference(s)
		if err != nil {
			return nil, "", err
		}
		registry := registryOf(in, ref)
		n, v, err := readBundle(cmd.Context(), ref, in, registry)
		if err != nil {
			return nil, "", failure.Reference(cmd.Context(), err, ref, registry)
		}
		if r := v.Release; (bundle.Stream{Platform: r.Platform, Environment: r.Environment, ClusterType: r.ClusterType}) != stream {
			cmd.PrintErrf("note: %s is for %s/%s of platform %s, and this agent takes only %s/%s of platform %s\n",
				ref, r.Environment, r.ClusterType, r.Platform, stream.Environment, stream.ClusterType, stream.Platform)
		}
		bundles, names = append(bundles, n), append(names, fmt.Sprintf("# %s/%s %s\n", v.Release.Environment, v.Release.ClusterType, v.Release.Tag()))
	}
	p := rbac.For(bundles, opts)
	for _, note := range p.Notes {
		cmd.PrintErrf("note: %s\n", note)
	}
	return p.Objects(), "# Permissions for what these releases hold:\n" + strings.Join(names, ""), nil
}

// newest returns the reference of the newest release at the first of the agent's registries that has one. If none has, it
// is the first registry's.
func newest(ctx context.Context, in *config.Installed, stream bundle.Stream) (string, error) {
	at := func(l oci.Location) string {
		return fmt.Sprintf("%s/%s:%s", l, stream.Repository(), bundle.MovingTag(in.Cluster.Ring))
	}
	if len(in.Registries) > 1 {
		for _, l := range in.Registries {
			ref, err := flags.ParseReference(at(l))
			if err != nil {
				return "", err
			}
			if _, _, err := ref.Resolve(ctx, registryOf(in, ref)); err == nil {
				return at(l), nil
			}
		}
	}
	return at(in.Registries[0]), nil
}

// registryOf returns the options with which the agent will access the registry of ref.
func registryOf(in *config.Installed, ref oci.Reference) oci.Options {
	registry := flags.Registry{PlainHTTP: in.PlainHTTP || slices.Contains(in.PlainHosts, ref.Location.Host), AuthHosts: in.AuthHosts}
	return registry.Options()
}

// readBundle returns the needs of a bundle, once its signature is verified.
func readBundle(ctx context.Context, ref oci.Reference, in *config.Installed, opts oci.Options) (*needs.Needs, *bundle.Verified, error) {
	at, desc, err := published.Resolve(ctx, ref, opts, published.AsItLies())
	if err != nil {
		return nil, nil, err
	}
	signers, err := inForce(ctx, ref, in, opts)
	if err != nil {
		return nil, nil, err
	}
	v, _, err := at.By(signers).ReadAt(ctx, desc)
	if err != nil {
		return nil, nil, err
	}
	n, err := needs.Read(ctx, at.Repo, v)
	return n, v, err
}

// inForce returns those by whose signatures the agent will judge the bundle at ref. Trust documents are at its location.
func inForce(ctx context.Context, ref oci.Reference, in *config.Installed, opts oci.Options) (published.Signers, error) {
	if in.Trust == nil {
		return published.Signers{Trust: in.Pinned}, nil
	}
	loc, err := flags.LocationOf(ref)
	if err != nil {
		return published.Signers{}, err
	}
	chain, err := published.FollowTrust(ctx, loc, in.Trust, opts)
	if err != nil {
		return published.Signers{}, err
	}
	return published.Of(chain).InForce(), nil
}
