package promotecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler"
)

// showChanges prints the commits that come with a candidate, and the assignments and versions that would change. A decision may be
// made also if they cannot be told.
func (d *deciding) showChanges(cmd *cobra.Command, c *gate.Candidate) {
	changes, from, err := d.changes(cmd, c)
	if err == nil {
		err = d.showCommits(cmd, from, c.BaseCommit)
	}
	if err != nil {
		cmd.PrintErrf("note: it is not known what would change: %s\n", cli.Indented(err.Error()))
	}
	if len(changes) == 0 && err == nil {
		cmd.PrintErrf("no assignment would change\n")
	}
	for i, text := range changes {
		if i == maxShown {
			cmd.PrintErrf("  and %d more\n", len(changes)-maxShown)
			break
		}
		cmd.PrintErrf("  %s\n", show.Line(text))
	}
}

// showCommits prints the commits of the base that come along.
func (d *deciding) showCommits(cmd *cobra.Command, from, to string) error {
	if from == "" || from == to {
		return nil
	}
	source, err := d.source.Options(d.place, d.loc.Dir)
	if err != nil {
		return err
	}
	commits, more, err := promote.Between(cmd.Context(), d.loaded, source, from, to)
	if err != nil || len(commits) == 0 {
		return cmp.Or(err, fmt.Errorf("the base does not have %s and %s any more", show.Cell(from), show.Cell(to)))
	}
	cmd.PrintErrf("%s since %s:\n", show.Count(len(commits)+more, "commit"), from[:min(len(from), 7)])
	for i, c := range commits {
		if i == maxShown {
			more += len(commits) - maxShown
			break
		}
		cmd.PrintErrf("  %s %s, %s\n", c.ID[:7], show.Line(c.Subject), show.Line(c.Author))
	}
	if more > 0 {
		cmd.PrintErrf("  and %d more\n", more)
	}
	return nil
}

// changes returns what a candidate would change, for people, and the base commit that it would replace.
func (d *deciding) changes(cmd *cobra.Command, c *gate.Candidate) (changes []string, from string, err error) {
	if d.ring != "" {
		return d.ringChanges(cmd.Context(), c)
	}
	for _, b := range d.loaded.Model.BaseRepos() {
		if b.Name == scheduler.MainBase {
			from = b.Commit
		}
	}
	if from == "" {
		return nil, "", errors.New("the environment pins no commit of a base")
	}
	at := d.source
	at.BaseAt = c.BaseCommit
	found, err := releasecmd.Changes(cmd, &at, d.place, d.loc, d.trust.Releases, publisher.PublishOptions{OCI: d.registry.Options()})
	if err != nil {
		return nil, from, err
	}
	for _, ct := range found.ClusterTypes {
		for _, a := range ct.Changes {
			text := fmt.Sprintf("%s %s/%s", a.Change, ct.ClusterType, a.Name)
			for _, f := range a.Fields {
				if f.Field == "version" {
					text += fmt.Sprintf(": version %s → %s", fieldText(f.Old), fieldText(f.New))
				}
			}
			changes = append(changes, text)
		}
	}
	return changes, from, nil
}

func fieldText(raw json.RawMessage) string {
	var text string
	_ = json.Unmarshal(raw, &text) // a version is text
	return cmp.Or(text, "none")
}

// ringChanges is changes for a ring, which gets what the ring before it has.
func (d *deciding) ringChanges(ctx context.Context, c *gate.Candidate) (changes []string, from string, err error) {
	of := facts.Facts{Location: d.loc, Options: d.registry.Options(), Signers: d.trust.Releases, Platform: d.trust.Platform}
	h, err := of.History(ctx, d.policy.Environment)
	if err != nil || h.Newest() == nil {
		return nil, "", err
	}
	record := h.Newest()
	read := func(typ, ring string) (bundle.Release, map[string]bundle.Assignment, error) {
		all := map[string]bundle.Assignment{}
		named := record.ReleaseOf(typ, ring)
		if named == "" {
			return bundle.Release{}, all, nil
		}
		r, list, err := h.Assignments(ctx, typ, named)
		for _, a := range list {
			all[a.Name] = a
		}
		return r, all, err
	}
	for _, typ := range slices.Sorted(maps.Keys(c.Contents)) {
		old, had, err := read(typ, d.ring)
		if err != nil {
			return nil, "", err
		}
		_, has, err := read(typ, d.policy.RingBefore(d.ring))
		if err != nil {
			return nil, "", err
		}
		from = cmp.Or(from, old.BaseCommit)
		changes = append(changes, assignmentChanges(typ, had, has)...)
	}
	return changes, from, nil
}

// assignmentChanges says how the assignments of a cluster type differ.
func assignmentChanges(typ string, had, has map[string]bundle.Assignment) (all []string) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(had)), maps.Keys(has))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		a, was := had[name]
		b, is := has[name]
		text := fmt.Sprintf("%s %s/%s", diff.ChangeChanged, typ, name)
		switch {
		case !was:
			text = fmt.Sprintf("%s %s/%s", diff.ChangeAdded, typ, name)
		case !is:
			text = fmt.Sprintf("%s %s/%s", diff.ChangeRemoved, typ, name)
		case a.Version != b.Version:
			text += fmt.Sprintf(": version %s → %s", cmp.Or(a.Version, "none"), cmp.Or(b.Version, "none"))
		case a.Content == b.Content && a.ConfigDigest == b.ConfigDigest:
			continue
		}
		all = append(all, text)
	}
	return all
}
