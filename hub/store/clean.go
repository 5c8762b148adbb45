package store

import (
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// maxItems bounds the items of a report.
const maxItems = 20_000

// isWord reports whether s has the form of states and kinds: 1 to 32 small letters and hyphens that begin with a letter. A newer
// agent may have more of them than this version knows.
func isWord(s string) bool {
	for i := range len(s) {
		if (s[i] < 'a' || s[i] > 'z') && (s[i] != '-' || i == 0) {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 32
}

// Clean checks the values of a report and makes its texts plain. Agents are not trusted to be kind.
func Clean(r *bundle.Report) error {
	if !isWord(string(r.State)) || !isWord(string(r.Kind)) {
		return fmt.Errorf("state %q and kind %q are not both a word", r.State, r.Kind)
	}
	if len(r.Items) > maxItems {
		return fmt.Errorf("%d items, at most %d", len(r.Items), maxItems)
	}
	if err := cleanTexts(&r.Reason, &r.Cluster.Name, &r.Cluster.Platform, &r.Cluster.Type, &r.Cluster.Environment, &r.Cluster.Ring, &r.Agent.Version, &r.Agent.Instance); err != nil {
		return err
	}
	if len(r.Cluster.Labels) > MaxLabels {
		return fmt.Errorf("%d labels, at most %d", len(r.Cluster.Labels), MaxLabels)
	}
	for k, v := range r.Cluster.Labels {
		if err := cleanTexts(&k, &v); err != nil {
			return err
		}
	}
	r.Cluster.Labels = PlainLabels(r.Cluster.Labels)
	for _, release := range []*bundle.ReportRelease{r.Desired, r.Observed} {
		if release == nil {
			continue
		}
		if release.Digest.Validate() != nil {
			return fmt.Errorf("invalid release digest %q", Clip(string(release.Digest)))
		}
		release.BaseCommit, release.EnvironmentCommit = Plain(Clip(release.BaseCommit)), Plain(Clip(release.EnvironmentCommit))
		release.AllowExpired = Plain(Clip(release.AllowExpired))
	}
	if m := r.OlderMedium; m != nil && m.Digest.Validate() != nil {
		return fmt.Errorf("invalid digest %q of an older medium", Clip(string(m.Digest)))
	}
	r.Message = Plain(Clip(r.Message))
	return cleanItems(r.Items)
}

func cleanItems(items []bundle.Item) error {
	seen := make(map[string]bool, len(items))
	for i := range items {
		it := &items[i]
		if !isWord(string(it.State)) {
			return fmt.Errorf("item %d: state %q is no word", i, Clip(string(it.State)))
		}
		config, content, values := string(it.ConfigDigest), string(it.Content), string(it.SiteValues)
		if err := cleanTexts(&it.Assignment, &it.Workspace, &it.Application, &it.Workload, &it.Target, &it.Adapter, &it.Reason, &it.Version, &it.Revision, &config, &content, &values); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
		it.ConfigDigest, it.Content, it.SiteValues = digest.Digest(config), digest.Digest(content), digest.Digest(values)
		it.Message, it.Failures = Plain(Clip(it.Message)), max(it.Failures, 0)
		if it.Assignment == "" || seen[it.Assignment] {
			return fmt.Errorf("item %d: assignment %q is empty or listed twice", i, it.Assignment)
		}
		seen[it.Assignment] = true
	}
	return nil
}

func cleanTexts(texts ...*string) error {
	for _, t := range texts {
		if len(*t) > MaxText {
			return fmt.Errorf("a value has %d bytes, at most %d: %q…", len(*t), MaxText, (*t)[:32])
		}
		*t = Plain(*t)
	}
	return nil
}
