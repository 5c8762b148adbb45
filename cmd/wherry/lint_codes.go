package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// lintCode is what there is to say about a code beyond the message of its finding.
type lintCode struct {
	code  string
	title string // goes on where the code stands: "W1203: a value that …"
	text  string // why it matters
	// example shows what is meant, as it stands in a file; it may be empty.
	example string
	remedy  string
}

func (c lintCode) severity() string {
	return map[byte]string{'E': "error", 'W': "warning", 'N': "note"}[c.code[0]]
}

// lintCodes lists all codes, sorted by number.
var lintCodes = slices.Concat(structureCodes, referenceCodes, valueCodes, policyCodes, renderedCodes)

func findLintCode(code string) (lintCode, bool) {
	i := slices.IndexFunc(lintCodes, func(c lintCode) bool { return strings.EqualFold(c.code, code) })
	if i < 0 {
		return lintCode{}, false
	}
	return lintCodes[i], true
}

func unknownLintCode(code string) error {
	return cli.Fail(cli.Usage, fmt.Errorf("there is no code %q", code), "docs/lint.md lists the codes, such as W1203")
}

// explainCode prints what a code of a finding means, with an example and the remedy.
func explainCode(cmd *cobra.Command, code string) error {
	c, ok := findLintCode(code)
	if !ok {
		return unknownLintCode(code)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s (%s): %s\n\n%s\n", c.code, c.severity(), c.title, wrap(c.text, 100))
	if c.example != "" {
		fmt.Fprintf(out, "\nExample\n%s\n", indentLines(c.example))
	}
	_, err := fmt.Fprintf(out, "\nWhat to do\n%s\n", indentLines(wrap(c.remedy, 98)))
	return err
}

// wrap breaks a text into lines of at most width characters.
func wrap(s string, width int) string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(s) {
		if current != "" && len(current)+1+len(word) > width {
			lines, current = append(lines, current), ""
		}
		current = strings.TrimSpace(current + " " + word)
	}
	return strings.Join(append(lines, current), "\n")
}

func indentLines(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}

// structureCodes are about YAML and how objects are built.
var structureCodes = []lintCode{
	{
		code: "E1001", title: "a file that is no YAML",
		text:    "Nothing of the file can be read, so it is not known which objects it holds. As what is absent is removed from clusters, wherry refuses to go on.",
		example: "metadata:\n\tname: drone   # a tab",
		remedy:  "Correct the line. The place is where the parser gave up; the mistake may be a line before.",
	},
	{
		code: "E1002", title: "a value of the wrong type",
		text:    "Labels, names and the values of a ConfigMap are texts, and Kubernetes refuses anything else. YAML 1.1, which Kubernetes reads, also takes yes, no, on, off, y and n for booleans.",
		example: "labels:\n  edge: true       # a boolean\n  region: no       # a boolean too\n  line: \"4\"        # a text",
		remedy:  "Put the value in quotes, or write the mapping or list that belongs there.",
	},
	{
		code: "E1003", title: "a key given twice",
		text:    "Only one of the two can hold, and which one depends on who reads the file.",
		example: "spec:\n  reconciler: flux\n  reconciler: argo",
		remedy:  "Remove one of them.",
	},
	{
		code: "E1004", title: "a file or document that is too large",
		text:   "A file may have 8 MiB, a document a million values once its aliases are expanded, merge keys may nest 16 deep. Platforms that people write stay far below; what is beyond was made to exhaust its reader, or is no platform.",
		remedy: "Split the file, or keep what is not the platform's out of its folder.",
	},
	{
		code: "E1005", title: "an object without a name, or with one that it cannot have",
		text:    "Names become folders and parts of Kubernetes names: small letters, digits, hyphens and dots, at most 253 characters.",
		example: "metadata:\n  name: Drone_1",
		remedy:  "Give it another name.",
	},
	{
		code: "E1006", title: "an object defined twice",
		text:   "Two objects of one kind and name, in one file, in two, or in the environment and one of its bases. Kalypso would apply both, and the last would win.",
		remedy: "Remove or rename one of them. Both places are in the message.",
	},
	{
		code: "W1007", title: "an unknown field",
		text:    "Nothing reads the field: most often it is misspelt, and what it was to say does not hold.",
		example: "spec:\n  reconcilr: flux",
		remedy:  "Correct its name, or remove it.",
	},
	{
		code: "W1008", title: "an unknown kind of a group that is ours",
		text:    "The object is passed over, as if it were not there.",
		example: "apiVersion: scheduler.kalypso.io/v1   # v1alpha1\nkind: ClusterType",
		remedy:  "Correct kind or apiVersion.",
	},
	{
		code: "N1009", title: "an object of a kind that is not part of a platform",
		text:   "It is passed over. Nothing is wrong with it, but it does nothing here.",
		remedy: "Move it out of the platform's folder, or --ignore N1009.",
	},
	{
		code: "N1010", title: "a document that is no object",
		text:   "It has no kind, such as a file of values or the configuration of another tool, and is passed over.",
		remedy: "Move it out of the platform's folder, or --ignore N1010.",
	},
	{
		code: "N1011", title: "a ConfigMap that is not part of the configuration",
		text:    "Only ConfigMaps with the label platform-config, or called azure-app-config…, are.",
		example: "metadata:\n  labels:\n    platform-config: \"true\"",
		remedy:  "Add the label if its values are meant for workloads.",
	},
	{
		code: "N1012", title: "a link or another file that is not regular",
		text:   "It is passed over: where a link leads is not part of what was reviewed and signed.",
		remedy: "Put the file itself there.",
	},
	{
		code: "N1013", title: "an object that an app team cannot give",
		text:   "Of a WorkloadRegistration's source only Workloads are taken, so that an app team cannot change the platform.",
		remedy: "Ask the platform team to have it, or move it out of the registered folder.",
	},
	{
		code: "E1014", title: "a deployment target without a name, or with one that it cannot have",
		text:   "The target's full name is WORKLOAD-TARGET. It becomes a folder and part of Kubernetes names.",
		remedy: "Name it with small letters, digits and hyphens.",
	},
	{
		code: "E1015", title: "a workspace of the Platform without a name, there twice, or with a ServiceAccount that cannot exist",
		text:    "What is listed is applied in the name of a ServiceAccount, by default wherry-WORKSPACE in the assignment's namespace. Guessing another could give it rights that it is not to have.",
		example: "workspaces:\n  - name: Team A",
		remedy:  "Give serviceAccount: NAME, or NAMESPACE/NAME.",
	},
	{
		code: "E1016", title: "a registration that brings more than it may",
		text:    "What an app team brings shares a bundle with others, so each registration has limits: deployment targets for one environment, and files and bytes, in its source and on each cluster type. Beyond them its assignments fail, and nobody else's.",
		example: "workspaces:\n  - name: team-a\n    limits: {targets: 5000, files: 20000, bytes: 67108864}",
		remedy:  "Divide the registration, or raise the limit of its workspace in the Platform.",
	},
	{
		code: "E1018", title: "rings of an environment that cannot be: without a name, there twice, or too many",
		text:    "A ring's name becomes the tag ring-NAME that its agents follow, and stands in the signed release, which has little room.",
		example: "spec:\n  environments:\n    - {name: prod, rings: [canary, canary]}",
		remedy:  "Name each ring once, narrowest first, with letters, digits, '.', '_' and '-'. One PromotionPolicy alone may name the rings of an environment.",
	},
}

// referenceCodes are about objects that name each other.
var referenceCodes = []lintCode{
	{
		code: "E1101", title: "a ClusterType names a Template that does not exist",
		text:   "Every assignment on this cluster type fails. configType may also be configMap or envFile, which are built in, or absent.",
		remedy: "Correct the name, or add the Template to the environment or to a base.",
	},
	{
		code: "E1102", title: "a workload comes from a registration that does not exist",
		text:   "Its workspace is not known, and so not which policies select it.",
		remedy: "Add the WorkloadRegistration, or correct the name in --workload.",
	},
	{
		code: "W1103", title: "a WorkloadRegistration without a Workload",
		text:   "The source that it names was read and holds none, so the app team's targets are not there. Its branch or path is wrong, or the team has yet to begin.",
		remedy: "Correct branch and path, or wait for the team.",
	},
	{
		code: "W1104", title: "a policy for a workspace that nobody has",
		text:    "Workspaces are those of the WorkloadRegistrations, compared to the letter. The policy selects nothing.",
		example: "deploymentTargetSelector:\n  workspace: kaizen-app-tem",
		remedy:  "Correct the workspace.",
	},
	{
		code: "W1105", title: "a deployment target for an environment that does not exist",
		text:   "There are Environment objects, and none has this name: the target will never run anywhere.",
		remedy: "Correct the target's environment, or add the Environment object.",
	},
	{
		code: "W1106", title: "a deployment target for an environment written in other case",
		text:    "Environments are compared to the letter, so the target is not for this one.",
		example: "environment: Dev   # the environment is dev",
		remedy:  "Write the name as the environment has it.",
	},
	{
		code: "W1107", title: "an annotation for a deployment target that does not exist",
		text:    "An annotation for one target begins with the target's name; no target of this workload has it.",
		example: "metadata:\n  annotations:\n    functional-tset.wherry.dev/wave: \"2\"",
		remedy:  "Correct the name before .wherry.dev/.",
	},
	{
		code: "W1110", title: "a Template that no ClusterType names",
		text:   "It does nothing in this environment. Of a base it is only said where no environment uses it, which takes a run without --environment.",
		remedy: "Remove it.",
	},
	{
		code: "W1111", title: "a ConfigMap that applies nowhere",
		text:    "Each of its labels must hold for the cluster type or the target. For no cluster type and target of this environment they all do, so its values are nowhere. Of a base it is only said where no environment uses it, which takes a run without --environment.",
		example: "metadata:\n  labels:\n    platform-config: \"true\"\n    cluster-type: dron   # drone",
		remedy:  "Correct the label, or remove the ConfigMap.",
	},
	{
		code: "W1112", title: "a ConfigSchema that applies nowhere",
		text:   "Each of its labels must hold for the cluster type or the target, as for a ConfigMap. It checks nothing.",
		remedy: "Correct the label, or remove the ConfigSchema.",
	},
	{
		code: "N1113", title: "a ClusterType with nothing on it",
		text:   "No policy assigns a target to it. Its agents get an empty, signed release.",
		remedy: "None, if that is meant. \"wherry explain no-assignment TYPE TARGET\" says why a target is not there.",
	},
	{
		code: "W1114", title: "the Platform lists a workspace that nobody has",
		text:    "Workspaces are those of the WorkloadRegistrations, compared to the letter. If this one is misspelt, the assignments of the one that was meant are applied with all rights of the agent.",
		example: "workspaces:\n  - name: kaizen-app-tem",
		remedy:  "Correct the name. One that has no registration in this environment yet does no harm.",
	},
	{
		code: "E1115", title: "an app team's source that cannot be read",
		text:   "What a WorkloadRegistration names could not be fetched. Its assignments are not known; publishing holds what the last release had of them.",
		remedy: "Correct repository, branch and path, make the host reachable, or give --workload REGISTRATION=DIR.",
	},
	{
		code: "W1116", title: "a Cluster of a cluster type that does not exist",
		text:    "Cluster objects list the clusters that there are. One whose cluster type is misspelt is counted with none.",
		example: "kind: Cluster\nspec:\n  clusterType: drome",
		remedy:  "Correct spec.clusterType, or take the object away if the cluster does not exist any more.",
	},
	{
		code: "W1117", title: "two Clusters with one uid or key",
		text:   "Each agent has a uid and a key of its own. Two clusters with the same are one that is listed twice, or two that were made from a copy of one disk.",
		remedy: "Take one of them away; on a copy, run \"wherry-agent enroll --new-identity\".",
	},
}
