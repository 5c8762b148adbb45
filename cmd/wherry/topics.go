package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/docs"
)

// topics are the pages, or sections of pages, that "wherry help" prints, besides the help of commands.
var topics = []struct{ name, page, short string }{
	{"agent-settings", "reference/agent-settings.md", "Settings of an agent"},
	{"air-gap", "sites/air-gap.md", "Sites without a network"},
	{"ansible", "engines/ansible.md", "Playbooks on a host"},
	{"argo-cd", "engines/argo-cd.md", "Argo CD as engine"},
	{"asking-a-hub", "ask.md", "Asking a hub what runs where"},
	{"authoring", "authoring.md", "Writing a platform by commands"},
	{"checks", "plan.md#Checks", "Rules that a publication has to pass"},
	{"configuration", "authoring.md#Settings", "Settings of the commands"},
	{"decisions", "help/decisions.md", "Who may decide at a gate"},
	{"directory", "engines/directory.md", "Files in a folder of a host"},
	{"embedding", "sites/embedded.md", "Bundles with all content"},
	{"engines", "engines/README.md", "Engines, and what each can do"},
	{"findings", "reference/findings.md", "Codes of findings"},
	{"flux", "engines/flux.md", "Flux as engine"},
	{"forge-tokens", "publish.md#Tokens for forges", "Tokens for GitHub, GitLab and others"},
	{"git-output", "publish.md#Output to git", "Rendering to a git repository"},
	{"hub-access", "help/hub-access.md", "Which hub a command asks"},
	{"hub-backup", "hub.md#Backup", "Backup and restore of a hub"},
	{"importing", "import.md", "Coming from other systems"},
	{"installing", "install.md", "Installing agents, hubs and promoters"},
	{"json", "reference/json.md", "Fields of -o json"},
	{"kubernetes", "engines/kubernetes.md", "Plain Kubernetes objects"},
	{"links", "sites/links.md", "Slow links, and serving a site"},
	{"linting", "plan.md#Lint", "Finding mistakes in a platform"},
	{"login-file", "reference/hub.md#Login", "Fields of the file of --login"},
	{"operating", "operations.md", "States and reasons, and what to do"},
	{"planning", "plan.md", "Reviewing a change before it is published"},
	{"promoting", "promotion.md", "From environment to environment"},
	{"publishing", "publish.md", "Publishing an environment"},
	{"registries", "registry.md", "Registries, releases and copies"},
	{"release-names", "publish.md#What a release is called", "Names of releases and bundles"},
	{"rendering", "publish.md#Render", "Rendered files, other schedulers"},
	{"rings", "promotion.md#Rings", "Rolling out in rings"},
	{"running-a-hub", "hub.md", "Running a hub"},
	{"security", "security.md", "What is protected, and how"},
	{"signing", "keys.md", "Keys, signatures and trust documents"},
	{"signing-keys", "keys.md#Signing keys", "How commands find private keys"},
	{"simulating", "development.md#Simulate a fleet", "Measuring a fleet on one machine"},
	{"site-values", "sites/values.md", "Values that differ between sites"},
	{"sources", "publish.md#Where the input comes from", "Where a platform is read from"},
	{"teams", "teams.md", "Teams and their repositories"},
	{"watch", "help/watch.md", "Commands that go on, and webhooks"},
	{"watching", "watching.md", "Metrics, alerts and dashboards"},
	{"workloads", "workloads.md", "Annotations of workloads, order, health, pins"},
	{"zarf", "engines/zarf.md", "Zarf packages"},
}

// newTopics returns a command for each topic, which prints its page by "wherry help TOPIC", and one that lists them.
func newTopics() []*cobra.Command {
	topic := func(name, short string, text func() string) *cobra.Command {
		cmd := &cobra.Command{Use: name, Short: short, Hidden: name != "topics"}
		cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), text()) })
		return cmd
	}
	list := &strings.Builder{}
	cmds := []*cobra.Command{topic("topics", "List the topics of \"wherry help TOPIC\"", list.String)}
	for _, t := range topics {
		fmt.Fprintf(list, "%-16s %s\n", t.name, t.short)
		cmds = append(cmds, topic(t.name, t.short, func() string {
			text, _ := topicText(t.page) // a test reads each
			return docs.WithoutLinks(text)
		}))
	}
	return cmds
}

// topicText returns a page, or the section of it that follows a #.
func topicText(name string) (string, error) {
	page, section, _ := strings.Cut(name, "#")
	data, err := docs.Pages.ReadFile(page)
	text := string(data)
	if err != nil || section == "" {
		return text, err
	}
	_, text, found := strings.Cut(text, "\n## "+section+"\n")
	if !found {
		return "", fmt.Errorf("%s has no section %q", page, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return "# " + section + "\n" + text, nil
}
