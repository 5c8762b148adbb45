package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A package imports packages below it and never those above: this is the one table of that. A new package in a folder of
// the table gets a row, so that its place is a decision.
//
// What the programs for the edge link in all, whatever lies between, is held by the tests of cmd/wherry-agent.
func TestImportsPointDownTheLayers(t *testing.T) {
	betweenFolders := map[string][]string{
		"agent":       {"airgap", "bundle", "reconcilers"},
		"airgap":      {"bundle", "published"},
		"bundle":      nil,
		"deploy":      {"bundle", "reconcilers"},
		"docs":        nil,
		"examples":    {"agent", "airgap", "bundle", "hub", "publisher", "reconcilers", "scheduler"}, // for the demo
		"hub":         {"bundle", "docs", "published"},
		"published":   {"bundle"},
		"publisher":   {"airgap", "bundle", "published", "scheduler"},
		"rollout":     {"bundle", "hub", "published", "publisher", "scheduler"},
		"reconcilers": {"bundle"},
		"scheduler":   {"bundle"},
	}
	insideFolders := map[string]map[string][]string{
		"agent": {
			"config":        {"", "artifact", "carry", "clustermemory", "control", "doctor", "engines", "freeze", "intake", "metrics", "outbox", "registries", "serve", "sitevalues", "state", "trust", "window"},
			"doctor":        {"", "carry", "content", "control", "enroll", "freeze", "intake", "outbox", "serve", "sitevalues", "state", "trust"},
			"clustermemory": {"backup", "lease"},

			"":          {"artifact", "assignments", "backup", "carry", "content", "control", "engines", "enroll", "freeze", "intake", "lease", "metrics", "outbox", "probation", "registries", "relay", "retry", "serve", "sitevalues", "state", "trust", "window"},
			"artifact":  {"content", "state"},
			"backup":    {"assignments", "lease", "state"},
			"carry":     {"assignments", "content", "retry", "state"},
			"content":   {"state"},
			"control":   nil,
			"enroll":    {"outbox", "state"},
			"intake":    {"content", "state", "trust"},
			"lease":     {"retry", "state"},
			"metrics":   {"carry", "content", "control", "intake", "outbox", "relay", "serve", "state", "trust"},
			"outbox":    {"retry", "state"},
			"relay":     {"state"},
			"retry":     nil,
			"serve":     nil,
			"state":     nil,
			"probation": {"state"},
			"trust":     {"state"},
			"window":    nil,

			"registries": {"retry", "state"},

			"freeze":      {"assignments", "engines", "state", "window"},
			"engines":     {"assignments", "content", "state"},
			"sitevalues":  {"assignments", "content", "state"},
			"assignments": {"state"},

			"agenttest": {"state"},
		},
		"airgap": {
			"export": {"", "medium"},
			"medium": {""},
			"":       nil,

			"registry":    nil,
			"packagetest": {""},
		},
		"cmd": {
			"wherry": {
				"internal/agentcmd", "internal/airgapcmd", "internal/authorcmd", "internal/bundlecmd", "internal/cli", "internal/configcmd", "internal/explaincmd", "internal/failure", "internal/flags",
				"internal/fleetcmd", "internal/hubcmd", "internal/installcmd", "internal/promotecmd", "internal/releasecmd", "internal/rolloutcmd", "internal/trustcmd",
			},
			"wherry-agent": {"internal/agentcmd", "internal/cli"},

			"internal/airgapcmd":  {"internal/cli", "internal/failure", "internal/flags"},
			"internal/authorcmd":  {"internal/cli", "internal/failure", "internal/flags"},
			"internal/bundlecmd":  {"internal/cli", "internal/failure", "internal/flags"},
			"internal/configcmd":  {"internal/cli", "internal/flags"},
			"internal/explaincmd": {"internal/cli", "internal/failure", "internal/flags"},
			"internal/fleetcmd":   {"internal/cli", "internal/env", "internal/failure", "internal/flags", "internal/hubcmd"},
			"internal/hubcmd":     {"internal/cli", "internal/failure", "internal/flags"},
			"internal/installcmd": {"internal/agentcmd", "internal/cli", "internal/failure", "internal/flags"},
			"internal/releasecmd": {"internal/cli", "internal/env", "internal/failure", "internal/flags"},
			"internal/rolloutcmd": {"internal/cli", "internal/env", "internal/failure", "internal/flags", "internal/releasecmd"},
			"internal/promotecmd": {"internal/cli", "internal/env", "internal/failure", "internal/flags", "internal/releasecmd"},
			"internal/trustcmd":   {"internal/cli", "internal/failure", "internal/flags"},

			"internal/agentcmd": {"internal/cli"},
			"internal/flags":    {"internal/cli", "internal/failure"},
			"internal/env":      {"internal/cli", "internal/failure", "internal/flags"},
			"internal/failure":  {"internal/cli"},
			"internal/cli":      nil,

			"internal/programtest": nil,
		},
		"deploy": {
			"":     nil,
			"rbac": nil,
		},
		"examples": {
			"demo": {""},
			"":     nil,
		},
		"hub": {
			"": {"access", "admission", "api", "desired", "fleet", "login", "manage", "metrics", "store", "store/postgres", "store/sqlite", "upkeep", "upstream", "web"},

			"access":    {"store"},
			"admission": {"store"},
			"api":       {"access", "fleet", "store"},
			"client":    {"fleet", "store"},
			"demo":      {"store", "store/sqlite"},
			"desired":   {"store"},
			"fleet":     {"store"},
			"login":     {"access", "store"},
			"manage":    {"access", "store"},
			"metrics":   {"store"},
			"upkeep":    {"fleet", "store"},
			"upstream":  {"store"},
			"web":       {"access", "api", "fleet", "store"},
			"store":     nil,

			"store/memory":     {"store", "store/timeline"},
			"store/postgres":   {"store", "store/relational"},
			"store/relational": {"store", "store/timeline"},
			"store/sqlite":     {"store", "store/relational", "store/timeline"},
			"store/timeline":   {"store"},

			"store/postgres/pgtest": nil,
			"store/storetest":       {"store"},
		},
		"publisher": {
			"": {"artifacts", "catalog", "checks", "diff", "impact", "keys", "pack", "platform", "releases", "state", "trust", "usage"},

			"author/scaffold": {"author", "gitrepo"},
			"author":          {"gitrepo", "platform", "settings", "textdiff"},

			"checks": {"forge", "keys"},

			"embed/chart":         nil,
			"embed/chart/render":  {"embed/chart"},
			"embed/kustomization": nil,

			"announce":    nil,
			"state":       {"releases", "usage"},
			"codeowners":  {"gitrepo"},
			"copier":      {"releases", "trust", "usage"},
			"garbage":     nil,
			"catalog":     {"diff", "impact", "releases"},
			"verify":      {"catalog", "releases"},
			"findings":    {"artifacts", "embed", "platform", "sources"},
			"diff/view":   {"catalog", "diff", "impact"},
			"diff":        {"impact", "outdir", "pack", "platform", "textdiff"},
			"impact":      nil,
			"textdiff":    nil,
			"settings":    {"gitrepo"},
			"platform":    {"artifacts", "egress", "embed", "gitrepo", "meter", "pack", "sandbox", "sources"},
			"embed":       {"artifacts", "embed/chart", "gitrepo", "meter", "sandbox", "sources"},
			"sandbox":     {"embed/chart", "meter"},
			"pack":        {"artifacts", "state"},
			"artifacts":   {"gitrepo", "meter", "sources"},
			"sources":     {"egress", "gitrepo", "meter"},
			"outgit":      {"forge", "gitrepo"},
			"forge":       {"gitrepo"},
			"gitrepo":     {"egress", "meter"},
			"egress":      {"meter"},
			"meter":       nil,
			"trust":       {"keys", "releases", "usage"},
			"releases":    {"keys"},
			"keys":        {"usage"},
			"usage":       nil,
			"outdir":      nil,
			"rendercache": nil,
			"roster":      nil,
			"migrate":     nil,

			"gittest":      nil,
			"keytest":      {"keys"},
			"registrytest": nil,
			"sigstoretest": nil,
		},
		"reconcilers": {
			"needs":      {"rewrite", "zarf"},
			"ansible":    {"", "internal/program"},
			"argo":       {"", "kubernetes", "rewrite"},
			"directory":  {"", "internal/program"},
			"flux":       {"", "kubernetes", "rewrite"},
			"kubernetes": {"", "rewrite"},
			"rewrite":    {""},
			"zarf":       {"", "internal/program"},
			"":           nil,

			"internal/program": nil,

			"reconcilertest":            {""},
			"kubernetes/kubernetestest": {"", "kubernetes", "reconcilertest"},
		},
		"rollout": {
			"facts":     {"advance", "content", "decisions", "gate"},
			"promote":   {"content", "decisions", "gate"},
			"undo":      {"decisions"},
			"advance":   {"gate"},
			"content":   {"gate"},
			"decisions": {"gate"},
			"gate":      nil,
			"watch":     nil,
		},
		"scheduler": {
			"lint": {"", "builtin", "check", "finding", "kinds", "memo", "promotion", "yamlvalue"},

			"":          {"check", "finding", "kinds", "memo", "promotion", "schema", "template", "yamlvalue"},
			"promotion": {"finding", "kinds"},

			"template": {"finding", "template/internal/scheduler", "yamlvalue"},
			"schema":   {"finding"},

			"check":     {"finding", "kinds"},
			"kinds":     {"finding"},
			"finding":   nil,
			"yamlvalue": nil,

			"kindschema": nil,

			"builtin": nil,

			"template/internal/scheduler": nil,

			"memo":         nil,
			"platformtest": nil,
		},
	}
	for path, imports := range importsOfAll(t) {
		folder, inner, _ := strings.Cut(path, "/")
		table := insideFolders[folder]
		if _, listed := table[inner]; table != nil {
			require.True(t, listed, "%s is in no layer: give it a row", path)
		}
		for _, other := range imports {
			otherFolder, otherInner, _ := strings.Cut(other, "/")
			switch {
			case folder == otherFolder && table != nil:
				require.Contains(t, table[inner], otherInner, "%s imports %s", path, other)
			case folder != otherFolder && folder != "cmd" && folder != "e2e":
				require.Contains(t, betweenFolders[folder], otherFolder, "%s imports %s", path, other)
			}
		}
	}
	for folder, table := range insideFolders {
		for inner, below := range table {
			for _, other := range below {
				require.False(t, slices.Contains(table[other], inner), "%s/%s and %s/%s are above each other", folder, inner, folder, other)
			}
		}
	}
}

// SQL and its dialect are in the implementations of hub/store, and nowhere else.
func TestOnlyAStoreOfTheHubKnowsADatabase(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "github.com/wherry-dev/wherry/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if slices.ContainsFunc(words[1:], func(path string) bool { return path == "database/sql" || strings.HasPrefix(path, "modernc.org/sqlite") }) {
			found = append(found, words[0])
		}
	}
	for _, path := range found {
		require.Contains(t, []string{"relational", "sqlite", "postgres", "postgres/pgtest"}, strings.TrimPrefix(path, "github.com/wherry-dev/wherry/hub/store/"))
	}
}

// importsOfAll returns the packages of the module, without its path, and what each imports of it outside its tests.
func importsOfAll(t *testing.T) map[string][]string {
	t.Helper()
	const self = "github.com/wherry-dev/wherry/"
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, self+"...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		path := strings.TrimPrefix(words[0], self)
		all[path] = nil
		for _, word := range words[1:] {
			if other, ok := strings.CutPrefix(word, self); ok {
				all[path] = append(all[path], other)
			}
		}
	}
	return all
}
