package authorcmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/author"
	"github.com/wherry-dev/wherry/publisher/author/scaffold"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
)

// creation holds the flags of a command below new.
type creation struct {
	place
	request      scaffold.Request
	environments []string // of objects that are for several
}

// New returns the command wherry new.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Add an object to a platform",
		Long: `Add an object to a platform, as a commented YAML file where objects of its kind lie already: in the folder of an
environment, or beside those folders for what environments share. The file's path is printed.

The platform is read as it would be before anything is written, and a mistake that it does not have yet is refused. No file
is replaced. At a terminal, new asks for what is missing.`,
		Example: `  wherry new workload hello -e dev --manifest image=registry.example/hello:1.0
  wherry new cluster-type kiosk -e dev --label region=north`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newEnvironment(), newClusterType(), newPolicy(), newWorkload(), newRegistration(), newTemplate(), newConfig(), newSchema(), newRings(), newPromotion(), newCheck(), newWorkspace(), newBaseRepo(), newCluster(), newSiteValues())
	return cmd
}

// command returns a command below new.
func (c *creation) command(kind, short, long, example string) *cobra.Command {
	c.request.Kind = kind
	cmd := &cobra.Command{
		Use:     author.Word(kind) + " NAME",
		Short:   short,
		Long:    long,
		Example: "  " + strings.ReplaceAll(example, "\n", "\n  "),
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd, args) },
	}
	c.addTo(cmd)
	return cmd
}

const (
	ownFolder = "put it into the folder of this environment, `NAME`"
	pairUsage = "a label as `KEY=VALUE`; may be repeated"
)

// environmentFlags adds -e for the folder of the object, and --shared.
func (c *creation) environmentFlags(cmd *cobra.Command) {
	c.addEnvironment(cmd, ownFolder)
	cmd.Flags().BoolVar(&c.request.Shared, "shared", false, "put it where environments share it")
	cmd.MarkFlagsMutuallyExclusive("environment", "shared")
}

func (c *creation) environmentFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringArrayVarP(&c.environments, "environment", "e", nil, usage)
	cli.NotEmpty(cmd, "environment")
	complete(cmd, "environment", "Environment")
}

// pairs adds a flag for KEY=VALUE.
func pairs(cmd *cobra.Command, to *map[string]string, name, usage string) {
	*to = map[string]string{}
	cmd.Flags().Var(&pairFlag{*to}, name, usage)
}

// pairFlag collects KEY=VALUE. A comma is part of a value.
type pairFlag struct{ to map[string]string }

func (f *pairFlag) String() string { return "" }
func (f *pairFlag) Type() string   { return "KEY=VALUE" }
func (f *pairFlag) Several()       {}

func (f *pairFlag) Set(s string) error {
	key, value, found := strings.Cut(s, "=")
	if !found || key == "" {
		return errors.New("it must be KEY=VALUE")
	}
	if _, twice := f.to[key]; twice {
		return fmt.Errorf("%s is given twice", key)
	}
	f.to[key] = value
	return nil
}

func newEnvironment() *cobra.Command {
	var c creation
	cmd := c.command("Environment", "Add an environment",
		`Add an environment: an Environment object, and a folder with its first values. Cluster types and policies follow with
"wherry new cluster-type" and "wherry new policy".`, "wherry new environment stage")
	f := cmd.Flags()
	f.StringVar(&c.request.Folder, "folder", "", "the environment's `FOLDER` in the platform; beside those of the others without it")
	f.StringVar(&c.request.Repo, "repo", "", "the `URL` of the platform's git repository, for Kalypso (default that of the other environments)")
	f.StringVar(&c.request.Branch, "branch", "", "the environment's own `BRANCH`; with --folder, the one that has the folder (default that of the other environments)")
	cli.NotEmpty(cmd, "folder", "repo", "branch")
	return cmd
}

func newClusterType() *cobra.Command {
	var c creation
	cmd := c.command("ClusterType", "Add a cluster type",
		`Add a cluster type: clusters with the same capabilities. It gets the Templates that other cluster types have, unless flags
name others, and the label type=NAME without --label.`, "wherry new cluster-type kiosk -e dev --label region=north\nwherry new cluster-type machine -e prod --reconciler ansible --config-type envFile")
	f := cmd.Flags()
	c.environmentFlags(cmd)
	f.StringVar(&c.request.Reconciler, "reconciler", "", "the Template for what is applied, `NAME`")
	f.StringVar(&c.request.NamespaceService, "namespace-service", "", "the Template for the namespace, `NAME`")
	f.StringVar(&c.request.ConfigType, "config-type", "", "the Template for values, `NAME`, or configMap or envFile, which are built in")
	pairs(cmd, &c.request.Labels, "label", pairUsage)
	cli.NotEmpty(cmd, "reconciler", "namespace-service", "config-type")
	for _, flag := range []string{"reconciler", "namespace-service", "config-type"} {
		complete(cmd, flag, "Template")
	}
	return cmd
}

func newPolicy() *cobra.Command {
	var c creation
	cmd := c.command("SchedulingPolicy", "Add a scheduling policy",
		`Add a scheduling policy: each deployment target that it selects runs on each cluster type that it selects. Without a flag
for one side, it selects all of that side.`, "wherry new policy functional-test -e dev --target-label purpose=functional-test --type-label region=north")
	c.environmentFlags(cmd)
	cmd.Flags().StringVar(&c.request.Workspace, "workspace", "", "select only targets of this team, `WORKSPACE`")
	cli.NotEmpty(cmd, "workspace")
	pairs(cmd, &c.request.TargetLabels, "target-label", "select targets with this label, `KEY=VALUE`; may be repeated")
	pairs(cmd, &c.request.TypeLabels, "type-label", "select cluster types with this label, `KEY=VALUE`; may be repeated")
	return cmd
}

func newWorkload() *cobra.Command {
	var c creation
	cmd := c.command("Workload", "Add a workload to the platform",
		`Add a workload to the platform itself, with a deployment target for each -e. Workloads of app teams lie in their own
repositories: see "wherry new registration". What --manifest gives is what Templates read as .Manifests.`,
		"wherry new workload hello -e dev -e prod --manifest image=registry.example/hello:1.0\nwherry new workload hello -e dev --target-label purpose=functional-test --manifest repo=https://git.example/hello --manifest branch=main --manifest path=./deploy")
	c.environmentFlag(cmd, "an environment to run in, `NAME`; may be repeated")
	pairs(cmd, &c.request.Manifests, "manifest", "a value for Templates as `KEY=VALUE`; may be repeated")
	pairs(cmd, &c.request.TargetLabels, "target-label", "a label of the deployment targets as `KEY=VALUE`; may be repeated")
	pairs(cmd, &c.request.Labels, "label", "a label of the workload as `KEY=VALUE`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("manifest", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		p, err := c.open(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var keys []string
		for _, key := range scaffold.Manifests(p) {
			keys = append(keys, key+"=")
		}
		return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	return cmd
}

func newRegistration() *cobra.Command {
	var c creation
	cmd := c.command("WorkloadRegistration", "Register an application team's repository",
		`Register the repository in which an app team keeps its Workload objects. To read them from a folder of this machine, put it
under workloads in wherry.yaml.`, "wherry new registration shop --repo https://git.example/shop --path ./workloads --workspace shop-team")
	f := cmd.Flags()
	f.StringVar(&c.request.Repo, "repo", "", "the `URL` of the git repository, without credentials")
	f.StringVar(&c.request.Branch, "branch", "main", "the `BRANCH` with the objects")
	f.StringVar(&c.request.Folder, "path", ".", "the `FOLDER` of the repository with the objects")
	f.StringVar(&c.request.Workspace, "workspace", "", "the team, `WORKSPACE`; NAME without it")
	cli.NotEmpty(cmd, "repo", "branch", "path", "workspace")
	return cmd
}

func newTemplate() *cobra.Command {
	var c creation
	cmd := c.command("Template", "Add a Template",
		`Add a Template, which is rendered for each assignment. --from names the text to begin with. A name of these says so itself.

  flux, argocd                  the engine brings manifests from git
  helmrelease, argocd-chart     the engine installs a chart
  plain, ansible                objects and playbooks without an engine
  empty                         nothing: for embedded delivery
  namespace, namespace-service  the namespace; ansible-user for machines
  configmap                     values`, "wherry new template argocd\nwherry new template tenant --from namespace")
	cmd.Flags().StringVar(&c.request.Text, "from", "", "begin with this text, `NAME`: "+strings.Join(scaffold.Templates(), ", "))
	cli.NotEmpty(cmd, "from")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(scaffold.Templates(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newConfig() *cobra.Command {
	var c creation
	cmd := c.command("ConfigMap", "Add configuration values",
		`Add platform values, as a ConfigMap. They reach each assignment for which all labels hold: cluster-type, workload and
deployment-target are names, any other label is one of the cluster type or of the target. ConfigMaps count in the order of
their names, and later ones win.`, "wherry new config north -e dev --label region=north --data GREETING=hello")
	c.environmentFlags(cmd)
	pairs(cmd, &c.request.Labels, "label", pairUsage)
	pairs(cmd, &c.request.Data, "data", "a value as `KEY=VALUE`; may be repeated")
	return cmd
}

func newSchema() *cobra.Command {
	var c creation
	cmd := c.command("ConfigSchema", "Add a JSON Schema for configuration values",
		`Add a JSON Schema for platform values: an assignment whose values it refuses fails alone. It applies by its labels, as
platform values do.`, "wherry new schema till --label workload=till --require CURRENCY --require OFFLINE_HOURS")
	c.environmentFlags(cmd)
	pairs(cmd, &c.request.Labels, "label", pairUsage)
	cmd.Flags().StringArrayVar(&c.request.Required, "require", nil, "a `KEY` that has to be there; may be repeated")
	cli.NotEmpty(cmd, "require")
	return cmd
}

func newRings() *cobra.Command {
	var c creation
	cmd := c.command("PromotionPolicy", "Add rings to environments",
		`Name the rings of environments, narrowest first, as a PromotionPolicy: parts of the fleet that get a release one after the
other.`, "wherry new rings prod -e prod --ring canary --ring stable")
	c.environmentFlag(cmd, "an environment that has the rings, `NAME`; may be repeated")
	cmd.Flags().StringArrayVar(&c.request.Rings, "ring", nil, "a ring's `NAME`, narrowest first; may be repeated")
	cli.NotEmpty(cmd, "ring")
	return cmd
}

func newPromotion() *cobra.Command {
	var c creation
	cmd := c.command("PromotionPolicy", "Add a chain of environments",
		`Name the chain of environments, the first to get a commit first, as a PromotionPolicy: "wherry promote" brings a commit of the
base from one to the next once its gate passes. Each environment of it needs its base pinned: "wherry new base-repo".`, "wherry new promotion fleet --chain dev --chain stage --chain prod")
	cmd.Use = "promotion NAME"
	cmd.Flags().StringArrayVar(&c.request.Chain, "chain", nil, "an environment of the chain, `NAME`, in their order; may be repeated")
	cli.NotEmpty(cmd, "chain")
	_ = cmd.MarkFlagRequired("chain")
	complete(cmd, "chain", "Environment")
	return cmd
}

func newCheck() *cobra.Command {
	var c creation
	cmd := c.command("PlatformCheck", "Add a check to the platform",
		`Add a rule of the platform in CEL, as a PlatformCheck: --expression is true for each rendered object that is accepted, and --plan
for each publication. "wherry help checks" lists the variables.`,
		"wherry new check no-loadbalancer --kind Service --expression \"object.?spec.?type.orValue('') != 'LoadBalancer'\" --message 'use ClusterIP'\nwherry new check a-tenth -e prod --plan 'plan.clusters.changed <= 0.1 * plan.clusters.total' --message 'publish to a ring first'")
	cmd.Use = "check NAME"
	c.environmentFlag(cmd, "an environment that the check is for, `NAME`; may be repeated (default all)")
	f := cmd.Flags()
	f.StringArrayVar(&c.request.ObjectKinds, "kind", nil, "check only objects of this `KIND`, such as Service or Deployment.apps; may be repeated")
	f.StringVar(&c.request.Expression, "expression", "", "the `CEL` that is true for accepted objects")
	f.StringVar(&c.request.Plan, "plan", "", "the `CEL` that is true for accepted publications")
	f.StringVar(&c.request.Message, "message", "", "the `TEXT` of a failure")
	f.BoolVar(&c.request.Warning, "warning", false, "print failures, and stop nothing")
	cli.NotEmpty(cmd, "kind", "expression", "plan", "message")
	cmd.MarkFlagsMutuallyExclusive("expression", "plan")
	cmd.MarkFlagsMutuallyExclusive("kind", "plan")
	return cmd
}

func newWorkspace() *cobra.Command {
	var c creation
	cmd := c.command(author.Workspace, "Add a team's workspace",
		`Add a team to the Platform object. Its assignments are applied by a ServiceAccount, wherry-NAME unless --service-account names
another one; see "wherry help teams". "wherry new registration" names the team's repository.`,
		"wherry new workspace shop-team --owner @org/shop --repository https://git.example/shop")
	f := cmd.Flags()
	f.StringVar(&c.request.ServiceAccount, "service-account", "", "the `ACCOUNT`: a name, or NAMESPACE/NAME (default wherry-NAME)")
	f.StringArrayVar(&c.request.Owners, "owner", nil, "an `OWNER` of the team's files as the forge knows it; may be repeated")
	f.StringArrayVar(&c.request.Repositories, "repository", nil, "a `URL` that the team's registrations may name, or one above them; may be repeated (default all)")
	cli.NotEmpty(cmd, "service-account", "owner", "repository")
	return cmd
}

func newBaseRepo() *cobra.Command {
	var c creation
	cmd := c.command("BaseRepo", "Pin the base of an environment",
		`Pin the base of an environment: the objects that environments share are read from a git repository at one commit, which
"wherry promote" moves. Each environment of a chain needs one, called main. Without --commit it is the newest commit of
this folder, which has to be pushed before the environment is read again.`, "wherry new base-repo -e prod\nwherry new base-repo -e prod --repo https://git.example/platform --path base --commit 3f0c5b1de2a94786b0d7c1f4a8e69235d41b7c90")
	cmd.Use, cmd.Aliases = "base-repo [NAME]", []string{"base"}
	c.addEnvironment(cmd, ownFolder)
	f := cmd.Flags()
	f.StringVar(&c.request.Repo, "repo", "", "the `URL` of the base's git repository, without credentials (default that of the environment)")
	f.StringVar(&c.request.Branch, "branch", "", "the `BRANCH` with the base (default that of the environment)")
	f.StringVar(&c.request.Folder, "path", ".", "the `FOLDER` of the repository with the base")
	f.StringVar(&c.request.Commit, "commit", "", "the `COMMIT` that the environment has now, all digits")
	cli.NotEmpty(cmd, "repo", "branch", "path", "commit")
	return cmd
}

func newCluster() *cobra.Command {
	var c creation
	cmd := c.command("Cluster", "Add a cluster",
		`List a cluster, for people to read and for platforms without a hub. "wherry roster add" does so from an agent's request, with
the key that it signs reports with.`, "wherry new cluster plant-7 -e prod --cluster-type kiosk --uid 4be1c9 --ring canary")
	f := cmd.Flags()
	c.environmentFlags(cmd)
	f.StringVar(&c.request.ClusterType, "cluster-type", "", "the `NAME` of its cluster type")
	f.StringVar(&c.request.UID, "uid", "", "its `UID`, as \"wherry-agent status\" prints it")
	f.StringVar(&c.request.Ring, "ring", "", "its ring, `NAME`")
	pairs(cmd, &c.request.Labels, "label", pairUsage)
	pairs(cmd, &c.request.Values, "value", "a site value as `KEY=VALUE`; may be repeated")
	cli.NotEmpty(cmd, "cluster-type", "uid", "ring")
	complete(cmd, "cluster-type", "ClusterType")
	return cmd
}

func newSiteValues() *cobra.Command {
	var c creation
	cmd := c.command("ConfigMap", "Add values that differ between sites",
		`Declare values in which the sites of a cluster type differ, as a ConfigMap with a JSON Schema. It takes effect once a cluster
type names it: "wherry edit cluster-type TYPE --set 'metadata.annotations[\"wherry.dev/site-values\"]=NAME'". A cluster gets its
values with "wherry edit cluster NAME --value KEY=VALUE", or from "wherry new cluster".`, "wherry new site-values factory --key dns --key gateway.address --site-may-set gateway.address")
	cmd.Use = "site-values NAME"
	c.environmentFlags(cmd)
	cmd.Flags().StringArrayVar(&c.request.SiteKeys, "key", nil, "a `KEY` of the values; may be repeated")
	cmd.Flags().StringArrayVar(&c.request.SiteMaySet, "site-may-set", nil, "one of the keys that the site's own file may set, `KEY`; may be repeated")
	cli.NotEmpty(cmd, "key", "site-may-set")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func (c *creation) run(cmd *cobra.Command, args []string) error {
	p, err := c.open(cmd)
	if err != nil {
		return err
	}
	if c.request.Environments = c.environments; c.environment != "" {
		c.request.Environments = []string{c.environment}
	}
	if len(args) == 1 {
		c.request.Name = args[0]
	}
	if c.request.Kind == "BaseRepo" && c.request.Name == "" {
		c.request.Name = scheduler.MainBase
	}
	if cli.IsTerminal() {
		if err := c.ask(cmd, p); err != nil {
			return err
		}
	}
	if c.request.Name == "" {
		return cli.Fail(cli.Usage, errors.New("the NAME is missing"), fmt.Sprintf("see %q", cmd.CommandPath()+" --help"))
	}
	c.preset(p)
	plan, _, err := scaffold.New(cmd.Context(), p, c.request)
	var which *scaffold.WhichError
	if errors.As(err, &which) {
		return cli.Fail(cli.Usage, which, "name it with -e, or give --shared")
	}
	if err != nil {
		return err
	}
	if c.dryRun && c.request.Kind == author.Workspace {
		fmt.Fprint(cmd.OutOrStdout(), plan.Diff())
		return nil
	}
	if c.dryRun {
		for _, change := range plan.Changes {
			if len(plan.Changes) > 1 {
				fmt.Fprintf(cmd.OutOrStdout(), "# %s\n", change.Name)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s", change.After)
		}
		return nil
	}
	if err := plan.Apply(); err != nil {
		return err
	}
	for _, change := range plan.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), plan.Path(change.Name))
	}
	printNotes(cmd, plan)
	return nil
}

// preset fills in what follows from the rest.
func (c *creation) preset(p *author.Platform) {
	r := &c.request
	switch r.Kind {
	case "WorkloadRegistration":
		if r.Workspace == "" {
			r.Workspace = r.Name
		}
	case "Template":
		if r.Text == "" && slices.Contains(scaffold.Templates(), r.Name) {
			r.Text = r.Name
		}
	case "Environment":
		if r.Repo == "" && len(p.Environments) == 0 {
			r.Repo = gitrepo.Redact(gitrepo.OriginOf(p.Root))
		}
	case "BaseRepo":
		r.Commit, r.Branch = cmp.Or(r.Commit, p.SharedCommit), cmp.Or(r.Branch, p.SharedBranch)
		r.Commit = cmp.Or(r.Commit, gitrepo.HeadOf(p.Root, false))
		for _, o := range p.All("Environment") {
			if repo := o.Text("spec", "controlPlane", "repo"); o.Name == p.Own && repo != "." {
				r.Repo = cmp.Or(r.Repo, gitrepo.Redact(repo))
			}
		}
		for _, e := range p.Environments {
			if e.Repo != "." && (len(r.Environments) == 0 || slices.Contains(r.Environments, e.Name)) {
				r.Repo, r.Branch = cmp.Or(r.Repo, gitrepo.Redact(e.Repo)), cmp.Or(r.Branch, e.Branch)
			}
		}
		r.Repo, r.Branch = cmp.Or(r.Repo, gitrepo.Redact(gitrepo.OriginOf(p.Root))), cmp.Or(r.Branch, "main")
	case "PromotionPolicy", "Workload":
		if len(r.Chain) == 0 && len(r.Environments) == 0 && len(p.Environments) == 1 {
			r.Environments = []string{p.Environments[0].Name}
		}
	case "ClusterType", "SchedulingPolicy", "Cluster":
		if c.request.Kind == "Cluster" && r.ClusterType == "" {
			if types := p.Names("ClusterType"); len(types) == 1 {
				r.ClusterType = types[0]
			}
		}
	}
}

// ask asks for the missing values.
func (c *creation) ask(cmd *cobra.Command, p *author.Platform) error {
	r := &c.request
	line := func(question string) (string, error) { return cli.AskLine(cmd, cmd.InOrStdin(), question+": ") }
	var err error
	if r.Name == "" {
		if r.Name, err = line("Name of the " + r.Kind); err != nil {
			return err
		}
	}
	var known []string
	for _, e := range p.Environments {
		known = append(known, e.Name)
	}
	_, _, missing := scaffold.New(cmd.Context(), p, *r)
	if which := (*scaffold.WhichError)(nil); errors.As(missing, &which) || len(r.Environments) == 0 && len(known) > 1 && (r.Kind == "Workload" || r.Kind == "PromotionPolicy" && len(r.Chain) == 0) {
		answer, err := line(fmt.Sprintf("Environment (%s)", strings.Join(known, ", ")))
		if err != nil {
			return err
		}
		r.Environments = strings.Fields(answer)
	}
	switch {
	case r.Kind == "WorkloadRegistration" && r.Repo == "":
		r.Repo, err = line("URL of the git repository")
	case r.Kind == "Cluster" && r.ClusterType == "":
		r.ClusterType, err = line(fmt.Sprintf("Cluster type (%s)", strings.Join(p.Names("ClusterType"), ", ")))
	case r.Kind == "PromotionPolicy" && len(r.Rings)+len(r.Chain) == 0:
		var answer string
		answer, err = line("Rings, narrowest first")
		r.Rings = strings.Fields(answer)
	case r.Kind == "Template" && r.Text == "" && !slices.Contains(scaffold.Templates(), r.Name):
		r.Text, err = line(fmt.Sprintf("Text to begin with (%s)", strings.Join(scaffold.Templates(), ", ")))
	case r.Kind == "Workload" && len(r.Manifests) == 0:
		for _, key := range scaffold.Manifests(p) {
			answer, err := line("Manifest " + key)
			if err != nil {
				return err
			}
			if answer != "" {
				r.Manifests[key] = answer
			}
		}
	}
	return err
}
