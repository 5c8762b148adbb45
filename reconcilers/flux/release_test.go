package flux

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// These are the documented states of a HelmRelease: "HelmRelease Status" in helm-controller's reference of
// helm.toolkit.fluxcd.io/v2.

const (
	release   = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: shop}\n"
	helmChart = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nmetadata: {name: shop}\nspec: {version: 6.x}\n"
	chart61   = "{chartVersion: 6.1.0, status: deployed}"
	chart62   = "{chartVersion: 6.2.0, status: deployed}"
)

// released has a status of the generation that was assigned.
func released(history string, conditions ...string) string {
	return fmt.Sprintf("%sstatus: {observedGeneration: 2, history: [%s], conditions: [%s]}\n", release, history, strings.Join(conditions, ", "))
}

// said is a condition about a generation.
func said(generation int, name, status, reason string) string {
	return fmt.Sprintf("{type: %s, status: '%s', reason: %s, message: words of Flux, observedGeneration: %d}", name, status, reason, generation)
}

func now(name, status, reason string) string { return said(2, name, status, reason) }

func TestHowAReleaseStandsIsHowTheAssignmentStands(t *testing.T) {
	retrying := now("Reconciling", "True", "ProgressingWithRetry")
	for _, c := range []struct {
		name     string
		release  string
		state    bundle.State
		reason   string
		revision string
	}{
		{"not taken up", release, bundle.Progressing, "NotReady", ""},
		{"waiting for its turn", released("", now("Reconciling", "True", "Progressing"), now("Ready", "Unknown", "Progressing")), bundle.Progressing, "Progressing", ""},
		{"installed", released(chart61, now("Ready", "True", "InstallSucceeded"), now("Released", "True", "InstallSucceeded")), bundle.Compliant, "", "6.1.0"},
		{"upgraded", released(chart62, now("Ready", "True", "UpgradeSucceeded"), now("Released", "True", "UpgradeSucceeded")), bundle.Compliant, "", "6.2.0"},
		{"tested", released(chart62, now("Ready", "True", "TestSucceeded"), now("Released", "True", "UpgradeSucceeded"), now("TestSuccess", "True", "TestSucceeded")), bundle.Compliant, "", "6.2.0"},
		{"looked at again at its interval", released(chart62, now("Reconciling", "True", "Progressing"), now("Ready", "True", "UpgradeSucceeded")), bundle.Compliant, "", "6.2.0"},
		{"well in an older generation", released(chart61, said(1, "Ready", "True", "InstallSucceeded")), bundle.Progressing, "NotReady", "6.1.0"},
		{"an install that failed", released("{chartVersion: 6.1.0, status: failed}", now("Ready", "False", "InstallFailed"), now("Released", "False", "InstallFailed"), retrying), bundle.Failed, "InstallFailed", ""},
		{"an upgrade that failed", released("{chartVersion: 6.2.0, status: failed}, {chartVersion: 6.1.0, status: superseded}", now("Ready", "False", "UpgradeFailed"), now("Released", "False", "UpgradeFailed"), retrying), bundle.Failed, "UpgradeFailed", ""},
		{"a test that failed", released(chart62, now("Ready", "False", "TestFailed"), now("Released", "True", "UpgradeSucceeded"), now("TestSuccess", "False", "TestFailed")), bundle.Failed, "TestFailed", "6.2.0"},
		{"a test that failed and is ignored", released(chart62, now("Ready", "True", "UpgradeSucceeded"), now("TestSuccess", "False", "TestFailed")), bundle.Compliant, "", "6.2.0"},
		{"rolled back", released("{chartVersion: 6.2.0, status: failed}, "+chart61, now("Ready", "False", "UpgradeFailed"), now("Released", "False", "UpgradeFailed"), now("Remediated", "True", "RollbackSucceeded")), bundle.Failed, "RollbackSucceeded", "6.1.0"},
		{"rolled back, with a green light", released(chart61, now("Ready", "True", "RollbackSucceeded"), now("Remediated", "True", "RollbackSucceeded")), bundle.Failed, "RollbackSucceeded", "6.1.0"},
		{"uninstalled", released("", now("Ready", "False", "UninstallSucceeded"), now("Remediated", "True", "UninstallSucceeded")), bundle.Failed, "UninstallSucceeded", ""},
		{"not even rolled back", released("", now("Ready", "False", "RollbackFailed"), now("Remediated", "False", "RollbackFailed")), bundle.Failed, "RollbackFailed", ""},
		{"tried again after a rollback", released(chart61, now("Ready", "Unknown", "Progressing"), now("Reconciling", "True", "Progressing"), now("Remediated", "True", "RollbackSucceeded")), bundle.Progressing, "Progressing", "6.1.0"},
		{"a rollback of an older generation", released(chart62, now("Ready", "True", "UpgradeSucceeded"), said(1, "Remediated", "True", "RollbackSucceeded")), bundle.Compliant, "", "6.2.0"},
		{"given up", released(chart61, now("Ready", "False", "UpgradeFailed"), now("Stalled", "True", "RetriesExceeded")), bundle.Failed, "RetriesExceeded", "6.1.0"},
		{"without its values", released(chart61, now("Ready", "False", "ValuesError")), bundle.Failed, "ValuesError", "6.1.0"},
		{"waiting for another release", released("", now("Ready", "False", "DependencyNotReady")), bundle.Progressing, "DependencyNotReady", ""},
		{"waiting for its chart", released("", now("Ready", "False", "SourceNotReady")), bundle.Progressing, "SourceNotReady", ""},
		{"suspended", strings.Replace(released(chart61, now("Ready", "True", "InstallSucceeded")), "status:", "spec: {suspend: true}\nstatus:", 1), bundle.Suspended, "Suspended", "6.1.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := judgeAll(t, c.release)
			require.Equal(t, c.state, res.State, res.Message)
			require.Equal(t, c.reason, res.Reason)
			require.Equal(t, c.revision, res.Revision)
			require.True(t, res.Floating, "no chart is pinned by its version")
			require.Equal(t, c.state == bundle.Compliant, res.Message == "", "all but compliance is explained: %q", res.Message)
		})
	}
}

func TestAReleaseFollowsItsChart(t *testing.T) {
	const fetched = "status: {observedGeneration: 2, artifact: {revision: %s}, conditions: [" + ready + "]}\n"
	of := func(attempt string) string {
		return strings.Replace(released(chart61, now("Ready", "True", "InstallSucceeded")), "status: {", "status: {helmChart: flux-system/shop, "+attempt+", ", 1)
	}
	ociRelease := func(digest string) string {
		return strings.Replace(of("lastAttemptedRevision: 6.1.0+0cc9, lastAttemptedRevisionDigest: '"+digest+"'"), "status:", "spec: {chartRef: {kind: OCIRepository, name: shop}}\nstatus:", 1)
	}
	oci := func(ref string) string {
		return "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: shop}\nspec: {ref: {" + ref + "}}\n" + fmt.Sprintf(fetched, "'6.1.0@sha256:9c'")
	}
	for _, c := range []struct {
		name     string
		objects  []string
		state    bundle.State
		reason   string
		floating bool
	}{
		{"the newest version", []string{of("lastAttemptedRevision: 6.1.0"), helmChart + fmt.Sprintf(fetched, "6.1.0")}, bundle.Compliant, "", true},
		{"an older version", []string{of("lastAttemptedRevision: 6.1.0"), helmChart + fmt.Sprintf(fetched, "6.2.0")}, bundle.Progressing, "NotReady", true},
		{
			"a chart that cannot be had",
			[]string{of("lastAttemptedRevision: 6.1.0"), helmChart + "status: {observedGeneration: 2, conditions: [" + now("Ready", "False", "ChartPullError") + "]}\n"},
			bundle.Failed, "ChartPullError", true,
		},
		{"a chart that is being fetched", []string{of("lastAttemptedRevision: 6.1.0"), helmChart}, bundle.Progressing, "NotReady", true},
		{"the newest digest", []string{ociRelease("sha256:9c"), oci("semver: 6.x")}, bundle.Compliant, "", true},
		{"the digest that it is pinned to", []string{ociRelease("sha256:9c"), oci("digest: 'sha256:9c'")}, bundle.Compliant, "", false},
		{"an older digest", []string{ociRelease("sha256:8b"), oci("semver: 6.x")}, bundle.Progressing, "NotReady", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := judgeAll(t, c.objects...)
			require.Equal(t, c.state, res.State, res.Message)
			require.Equal(t, c.reason, res.Reason)
			require.Equal(t, c.floating, res.Floating)
		})
	}
}
