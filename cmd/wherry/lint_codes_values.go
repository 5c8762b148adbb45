package main

// valueCodes are about the values of the configuration.
var valueCodes = []lintCode{
	{
		code: "W1201", title: "a text that is read as a mapping or a list",
		text:    "A ConfigMap's value that YAML takes for a mapping or a list is one, as in Kalypso: it is merged key by key, and rendered as YAML. A line with a colon and a space in it, one that begins with a dash, or a word in braces, is often meant as a text.",
		example: "data:\n  TITLE: \"Kalypso: the sea\"       # read as {Kalypso: the sea}",
		remedy:  "Put single quotes inside the value, which are taken off: TITLE: \"'Kalypso: the sea'\". If a mapping is meant, write it in braces or on several lines.",
	},
	{
		code: "W1202", title: "a key that is read as a boolean",
		text:    "In YAML 1.1, which Kalypso reads values with, y, n, yes, no, on and off are booleans, also as keys: y becomes true.",
		example: "data:\n  AXES: |\n    x: 1\n    y: 2          # rendered as true: 2",
		remedy:  "Put the key in quotes: \"y\": 2.",
	},
	{
		code: "W1203", title: "a value that YAML 1.1 reads as something else",
		text:    "Inside a structured value, words like yes, no, on and off are booleans, 0777 is octal (511), 1_000 is 1000, and 1.10 is the number 1.1. What is rendered is what was read. Values that are no mapping or list stay as they are written.",
		example: "data:\n  SITE: |\n    country: no      # false\n    version: 1.10    # 1.1\n    mode: 0777       # 511",
		remedy:  "Put the value in quotes if it is a text; else write what it is read as.",
	},
	{
		code: "W1204", title: "list items without a name that merge into each other",
		text:    "Where two ConfigMaps give a list under one key, items are appended, and mappings of the same name are merged. Mappings without a name count as having the same: each merges into all of the others.",
		example: "a-common:  RULES: \"[{port: 80}]\"\nb-edge:    RULES: \"[{port: 443, tls: true}]\"   # one item: {port: 443, tls: true}",
		remedy:  "Give each item a name.",
	},
	{
		code: "W1205", title: "a general value that replaces a special one",
		text:    "ConfigMaps are merged in the order of their names, whatever they are labelled. Here the later one applies wherever the earlier does and elsewhere too, so that the special value is never seen.",
		example: "a-drone   (cluster-type: drone)   LEVEL: debug\nb-common                          LEVEL: info   # also on drones",
		remedy:  "Rename one of them, so that the special one comes later.",
	},
	{
		code: "E1206", title: "a value that makes an invalid ConfigMap",
		text:    "A ConfigMap's values are texts. A structured value that the template writes with toYaml becomes a mapping or a list there, which Kubernetes refuses. stringify makes texts of lists, not of mappings, as in Kalypso.",
		example: "data:\n  SERVER:\n    port: 80     # refused",
		remedy:  "Have the template write each value as a text, such as with toJson or toYaml and quote, or put single quotes inside the value so that it stays a text.",
	},
	{
		code: "W1207", title: "a value that looks like a secret",
		text:    "Bundles are signed, not encrypted: whoever may pull from the registry, and everybody with a copy of the repository, can read it. It is a guess, from the key's name and the value's shape.",
		example: "data:\n  HISTORIAN_PASSWORD: hunter2",
		remedy:  "Give the name of a Secret instead, and bring its content to the cluster in another way, such as with SOPS or an external secret store. If it is published already, replace the secret.",
	},
	{
		code: "E1208", title: "a configuration that its schema refuses",
		text:   "A ConfigSchema, or a schema of the workload, applies to the assignment, and its composed configuration is not what it asks for. The assignment fails.",
		remedy: "Correct the value, or add what is missing to a ConfigMap that applies there.",
	},
	{
		code: "E1209", title: "a schema that cannot be used",
		text: "It is no JSON, no JSON Schema, refers to itself without an end or to another document, which is not fetched, or is too large: 1 MiB, 4000 subschemas, " +
			"patterns of 200000 instructions. All assignments to which it applies fail.",
		remedy: "Correct the schema; put what it refers to into its definitions.",
	},
	{
		code: "E1210", title: "a value that refers to itself",
		text:    "Values may hold templates that name other values. These name each other in a circle.",
		example: "data:\n  A: \"{{ .ConfigData.B }}\"\n  B: \"{{ .ConfigData.A }}\"",
		remedy:  "Give one of them a value of its own.",
	},
	{
		code: "W1211", title: "a Cluster with a value that it cannot have",
		text:    "The uid is what the cluster's agent calls it, the public key the Ed25519 key that its reports are signed with, and reporting is expected or none.",
		example: "kind: Cluster\nspec:\n  uid: 4be1c9\n  reporting: none",
		remedy:  "Write the object with \"wherry roster add\", from the file of \"wherry-agent enroll --request\".",
	},
	{
		code: "W1212", title: "a template that prints a key that is not there",
		text:    "What is rendered would hold \"<no value>\", or \"<nil>\" where a function such as printf writes it: most often the key is misspelt, or its ConfigMap does not apply to the cluster type. \"wherry render\" writes that, as Kalypso does, and warns; \"wherry plan\" and \"wherry publish\" fail the assignment. Keys that are only asked for, as by if, with, default or hasKey, do not count.",
		example: "image: {{ .ConfigData.IMAGE }}",
		remedy:  "Set the key, or give it a default: {{ .ConfigData.IMAGE | default \"nginx\" }}. The annotation wherry.dev/missing-keys: kalypso on the Template permits it.",
	},
	{
		code: "E1213", title: "a schema that takes too many steps",
		text: "A step is one part of the schema that looks at one value. The schemas of a workload may take 262144 for one assignment, and each ConfigSchema " +
			"as many; in a registration with more than 256 deployment targets it is less for each. A chain of definitions that each refer to the next one twice " +
			"doubles the steps with every link. The schemas of one registration may have 1 MiB together. The assignment fails, and no other.",
		example: "\"definitions\": {\n  \"a\": {\"allOf\": [{\"$ref\": \"#/definitions/b\"}, {\"$ref\": \"#/definitions/b\"}]},\n  \"b\": …   # and so on, thirty deep",
		remedy:  "Refer to each definition once. Give alternatives of anyOf and oneOf a type or const that tells them apart early.",
	},
}

// policyCodes are about policies, annotations, names and dependencies.
var policyCodes = []lintCode{
	{
		code: "W1301", title: "a policy that selects no cluster type",
		text:   "It assigns nothing. Cluster types are selected by their labels, not by their name.",
		remedy: "Correct the clusterTypeSelector or the labels.",
	},
	{
		code: "N1302", title: "a policy that selects no deployment target",
		text:   "It assigns nothing in this environment. An app team may be about to bring the target.",
		remedy: "Compare the deploymentTargetSelector with the labels of the targets, if there should be some.",
	},
	{
		code: "E1303", title: "a selector that says nothing",
		text:    "An operator that does not exist, or one without the values that it needs. It is not known what the policy selects, so nothing of the environment is rendered.",
		example: "matchExpressions:\n  - {key: size, operator: Equals, values: [large]}   # In",
		remedy:  "Write In, NotIn (with values), Exists or DoesNotExist (without).",
	},
	{
		code: "W1304", title: "an unknown annotation",
		text:   "Annotations below wherry.dev/ are ours, and nothing reads this one.",
		remedy: "Correct its name, or remove it.",
	},
	{
		code: "E1305", title: "a value that an annotation cannot have",
		text:   "What the annotation is to choose is not known.",
		remedy: "Write one of the values that the hint names.",
	},
	{
		code: "E1306", title: "no Environment object for this environment",
		text:   "There are Environment objects, and none has the name that --environment gives. Most often the name is misspelt: then no target is for it, and all that could be published are empty releases. So nothing is rendered.",
		remedy: "Correct --environment, or add the Environment object. Where a BaseRepo pins a commit from before it was added, pin a later one.",
	},
	{
		code: "W1307", title: "a base commit that is not used",
		text:   "--commit names another commit than the one at which the base was read. The one that was read counts.",
		remedy: "Leave out --commit, or pin it in the BaseRepo.",
	},
	{
		code: "W1308", title: "an environment without a cluster type",
		text:   "Nothing can be assigned. Most often PLATFORM is the folder of what environments share, and their own objects lie on a branch or in a folder of their own.",
		remedy: "Give the place of the environment's objects: a folder, or a repository as URL#BRANCH or PATH#BRANCH.",
	},
	{
		code: "E1309", title: "an artifact to fetch that has no digest",
		text:    "The adapter directory fetches the OCI artifact that the target's manifests name, such as a model. Only a digest says which one: a tag could be moved by whoever may write to the registry.",
		example: "manifests:\n  type: oci\n  repo: oci://registry.example/models/eye\n  digest: sha256:3b4c…",
		remedy:  "Add the digest, or have publish find it: wherry.dev/pin: commit on the ClusterType.",
	},
	{
		code: "E1310", title: "an unknown field in a policy's selectors",
		text:    "Without the field that was meant, the selector asks for less, and selects more: an empty one selects everything. So the policy selects nothing, what the last release has of it is held, and the other policies go on.",
		example: "clusterTypeSelector:\n  labelSelector:\n    matchLabel: {size: small}",
		remedy:  "Write the field as the hint has it.",
	},
	{
		code: "E1311", title: "the folder or branch of another environment",
		text:   "PLATFORM is where an Environment object says that another environment lives than the one that --environment names: by its branch and path, or by the folder's name. What would be signed for one environment would be the configuration of another.",
		remedy: "Correct --environment or PLATFORM, or the Environment object.",
	},
	{
		code: "E1401", title: "two deployment targets of one name",
		text:    "A target's full name is WORKLOAD-TARGET. Two that share it on one cluster type would be one folder and one assignment. Publish and plan keep the one whose registration the last release gave the name to; the other fails. Without such a release both fail.",
		example: "workload a, target b-c\nworkload a-b, target c",
		remedy:  "Rename one of them.",
	},
	{
		code: "E1402", title: "a namespace that is too long",
		text:   "The namespace is ENVIRONMENT-TYPE-WORKLOAD-TARGET, of at most 63 characters. The assignment fails.",
		remedy: "Shorten one of the four names.",
	},
	{
		code: "E1501", title: "a depends-on that cannot be read",
		text:    "It lists workloads, or targets of workloads, with commas between them.",
		example: "wherry.dev/depends-on: redis, db/functional-test",
		remedy:  "Correct the annotation.",
	},
	{
		code: "E1502", title: "a dependency that is not on the cluster type",
		text:   "What the assignment is to come after is not assigned to the same cluster type, so it can never be there.",
		remedy: "Have a policy assign the dependency too, or take it out of the annotation.",
	},
	{
		code: "E1503", title: "assignments that depend on each other in a circle",
		text:   "None of them can be the first.",
		remedy: "Take one out of the annotation wherry.dev/depends-on.",
	},
	{
		code: "W1504", title: "a dependency of a later wave",
		text:   "Waves come one after the other, lower numbers first: the annotations depends-on and wave contradict each other.",
		remedy: "Give the dependency a wave that is not higher.",
	},
}

// renderedCodes are about what comes out.
var renderedCodes = []lintCode{
	{
		code: "E1601", title: "an assignment that cannot be rendered",
		text:    "Its templates fail: a field or function that does not exist, a function that fails, or more text, steps or rounds than are permitted.",
		example: "name: {{ .DeploymentTarget }}   # .DeploymentTargetName",
		remedy:  "Correct the template, or the value that it is given, at the place in the message.",
	},
	{
		code: "E1602", title: "a rendered file that is no YAML",
		text:    "Nothing can apply it. Manifests are joined with a line ---, so one that does not end in a line break runs into it; values that are not quoted may break the syntax.",
		example: "name: {{ .Manifests.title }}    # title: \"a: b\"",
		remedy:  "Quote what comes from outside: {{ .Manifests.title | quote }}.",
	},
	{
		code: "E1603", title: "a rendered document that is no Kubernetes object",
		text:   "It lacks apiVersion, kind or metadata.name, or is no mapping, and the assignment's reconciler applies Kubernetes objects.",
		remedy: "Correct the template. For what is no object, choose another reconciler with the annotation wherry.dev/adapter.",
	},
	{
		code: "E1604", title: "a rendered name or label that Kubernetes refuses",
		text:    "Names are small letters, digits, hyphens and dots; labels have at most 63 characters; the values of labels and annotations are texts.",
		example: "labels:\n  edge: {{ index .Labels \"edge\" }}    # true, a boolean",
		remedy:  "Quote or shorten the value in the template.",
	},
	{
		code: "E1605", title: "an object that an assignment holds twice",
		text:   "The second replaces the first, or the engine refuses both, as Kustomize does.",
		remedy: "Rename or remove one of them.",
	},
	{
		code: "W1606", title: "an object that two assignments of a cluster type hold",
		text:   "They would change it in turn, and the removal of one takes it from the other. Namespaces may be shared.",
		remedy: "Put {{ .DeploymentTargetName }} or {{ .Namespace }} into its name.",
	},
	{
		code: "W1607", title: "a version that Flux no longer serves",
		text:   "source.toolkit.fluxcd.io and kustomize.toolkit.fluxcd.io are served as v1 alone, helm.toolkit.fluxcd.io as v2. wherry's agent applies the version that is served, and says so, as long as it has all the fields; Flux or kubectl on the same file would refuse it.",
		remedy: "Write the version that the hint names.",
	},
	{
		code: "E1608", title: "a health condition about nothing",
		text:    "It names a kind, or an object, that the assignment does not render. Agents fail such an assignment with InvalidHealth: the condition would be true unseen.",
		example: "wherry.dev/health: \"GitRepository: .status.readyClusters == 1\"   # GitRepo",
		remedy:  "Correct the kind or the name in the annotation.",
	},
	{
		code: "N1701", title: "artifacts that are not named by digest or commit",
		text:    "Images, charts, repositories and packages that assignments need are named by a tag or branch: what runs tomorrow may be something else, clusters may differ, and a bundle that is rolled back does not bring the old ones back. It is said once for an environment; \"wherry bundle inspect\" and .wherry/artifacts.ndjson list them all.",
		example: "image: nginx:1.29    # nginx@sha256:…",
		remedy:  "Name them by digest or commit, or have publishing find out and write it: annotate the ClusterType with wherry.dev/pin: commit.",
	},
}
