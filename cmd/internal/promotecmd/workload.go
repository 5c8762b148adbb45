package promotecmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// entering is what check says of a workload. Its JSON form is an interface.
type entering struct {
	Environment  string        `json:"environment"`
	From         string        `json:"from"`
	Registration string        `json:"registration,omitempty"`
	Workload     string        `json:"workload"`
	Result       gate.Result   `json:"result"`
	Version      string        `json:"version,omitempty"`
	Revision     digest.Digest `json:"revision,omitempty"` // empty for a removal, or if nothing is new
	// Waits says why it does not pass, and Overridden who let it pass without a proof, and why.
	Waits      string `json:"waits,omitempty"`
	Overridden string `json:"overridden,omitempty"`
}

// checkWorkload says whether the newest revision of a workload that the environment below has may enter.
func (a *asking) checkWorkload(cmd *cobra.Command, args []string, name, format string) error {
	o, err := a.opened(cmd, args)
	if err != nil {
		return err
	}
	if o.Policy.Below() == "" || !o.Policy.Gate.Content.Held {
		return notHeld(o.Policy)
	}
	e, err := o.Facts.EntryNow(cmd.Context(), o.Loaded, o.Policy)
	if err != nil {
		return a.Failure(err, &o.Facts)
	}
	t, err := e.Take(name)
	if err != nil {
		return cli.Fail(cli.Usage, err, "wherry plan shows what waits")
	}
	in := entering{
		Environment: o.Policy.Environment, From: o.Policy.Below(), Registration: t.Registration, Workload: t.Workload,
		Result: gate.Pass, Waits: t.Waits, Overridden: t.Overridden,
	}
	if len(t.Newer) > 0 {
		in.Version, in.Revision = t.Newer[0].Version, t.Newer[0].Revision
	}
	switch {
	case t.Waits != "" && len(t.Newer) > 0 && t.Newer[0].Fails:
		in.Result = gate.Fail
	case t.Waits != "":
		in.Result = gate.Wait
	}
	if format == "table" {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), show.Line(in.headline(t)))
	} else {
		err = cli.Print(cmd.OutOrStdout(), format, in, nil)
	}
	if err != nil {
		return err
	}
	if in.Result == gate.Pass && t.Kind != content.Head {
		cmd.PrintErrf("note: what %s alone has is read by rendering: wherry plan -e %s says whether that waits\n", in.Environment, in.Environment)
	}
	return exitBy(in.Result)
}

// headline says in one line what becomes of a workload.
func (in entering) headline(t *content.Take) string {
	text := fmt.Sprintf("%s: yes for %s", in.Environment, t.Key)
	switch {
	case in.Result == gate.Wait:
		return fmt.Sprintf("%s: not yet for %s: %s", in.Environment, t.Key, in.Waits)
	case in.Result == gate.Fail:
		return fmt.Sprintf("%s: no for %s: %s", in.Environment, t.Key, in.Waits)
	case in.Overridden != "":
		return text + ": overridden by " + in.Overridden
	case t.Kind == content.Head:
		return text + ": it needs no proof"
	case len(t.Newer) == 0:
		return text + ": " + in.From + " has nothing newer"
	}
	return text + ": it is proved in " + in.From
}

func notHeld(p promotion.Policy) error {
	hint := "remove content: any from its gate in the PromotionPolicy"
	if p.Below() == "" {
		hint = "no environment is below it in a chain that could prove them"
	}
	return cli.Fail(cli.Usage, fmt.Errorf("the gate of environment %s does not hold the content of workloads", p.Environment), hint)
}

// aboutWorkload has said be about the revision of a workload that waits, which it shows and names, and returns the decisions about it.
func (d *deciding) aboutWorkload(cmd *cobra.Command, said *bundle.Decision) (what string, found []decisions.Found, _ error) {
	from, err := d.facts(cmd, nil)
	if err != nil {
		return "", nil, err
	}
	if from.Decisions = nil; from.Hub != nil {
		from.Decisions = []func(context.Context, string) ([]decisions.Found, error){func(context.Context, string) ([]decisions.Found, error) { return d.atHub(cmd) }}
	}
	from.Warn = warner(cmd)
	e, err := from.EntryNow(cmd.Context(), d.loaded, d.policy)
	if err != nil {
		return "", nil, new(env.Gates).Failure(err, from)
	}
	d.trust.Platform = cmp.Or(d.platform, publisher.DefaultPlatform)
	said.Platform, said.Environment, said.From = d.trust.Platform, d.policy.Environment, d.policy.Below()
	t, err := e.Take(d.workload)
	if own, is := d.ownRevision(t); is {
		said.From, said.Workload = d.policy.Environment, own.Decides()
		what = show.Line(fmt.Sprintf("%s (%s)", own.Key, shortRevision(own.Revision)))
		cmd.PrintErrf("%s of %s itself, which %s does not have\n", what, d.policy.Environment, d.policy.Below())
	} else {
		if err != nil {
			return "", nil, cli.Fail(cli.Usage, err, "wherry plan shows what waits")
		}
		next, err := d.newer(t)
		if err != nil {
			return "", nil, err
		}
		said.Workload = content.Subject{Key: t.Key, Revision: next.Revision}.Decides()
		what = t.Key.String()
		if next.Removal {
			what = "the removal of " + what
		} else {
			what = strings.TrimSpace(what+" "+next.Version) + " (" + shortRevision(next.Revision) + ")"
		}
		what = show.Line(what)
		d.showWorkload(cmd, what, next)
	}
	found, err = d.found(cmd, func(ctx context.Context, loc oci.Location, opts oci.Options, _ string, warn func(string, ...any)) ([]decisions.Found, error) {
		return decisions.ReadAbout(ctx, loc, opts, d.trust, said.From, []bundle.DecisionWorkload{said.Workload}, warn)
	})
	return what, found, err
}

// ownRevision returns what the environment alone has, if --revision names it in full, as wherry plan does: no ledger has it yet.
func (d *deciding) ownRevision(t *content.Take) (content.Subject, bool) {
	revision := digest.NewDigestFromEncoded(digest.SHA256, strings.ToLower(d.revision))
	if revision.Validate() != nil || t != nil && (t.Own != nil && t.Own.Revision == revision || slices.ContainsFunc(t.Newer, func(n content.Newer) bool { return n.Revision == revision })) {
		return content.Subject{}, false
	}
	s := content.Subject{Revision: revision}
	if t != nil {
		s.Key = t.Key
	} else if registration, name, is := strings.Cut(d.workload, "/"); is {
		s.Key = ledger.Key{Registration: registration, Workload: name}
	} else {
		s.Key.Workload = d.workload
	}
	return s, true
}

// newer returns what is decided about: the newest that the environment does not have, else what it has if its files stay, or that of --revision.
func (d *deciding) newer(t *content.Take) (content.Newer, error) {
	below, own := d.policy.Below(), d.policy.Environment
	if t.Kind == content.Head {
		return content.Newer{}, cli.Fail(cli.No, fmt.Errorf("%s takes %s without a proof: content.exempt of its policy names it", own, show.Cell(t.Key.String())), "")
	}
	all := t.Newer
	if t.Own != nil {
		all = append(slices.Clone(all), *t.Own)
	}
	i := slices.IndexFunc(all, func(n content.Newer) bool {
		return strings.HasPrefix(string(n.Revision), "sha256:"+strings.ToLower(d.revision))
	})
	switch {
	case d.revision == "" && len(all) > 0:
		return all[0], nil
	case d.revision != "" && i >= 0:
		return all[i], nil
	case len(all) == 0:
		return content.Newer{}, cli.Fail(cli.No, fmt.Errorf("%s has nothing of %s that %s does not have", below, show.Cell(t.Key.String()), own), "publish it there first")
	}
	var known []string
	for _, n := range all {
		known = append(known, shortRevision(n.Revision))
	}
	return content.Newer{}, cli.Fail(cli.No, fmt.Errorf("no revision of %s that waits begins with %s", show.Cell(t.Key.String()), show.Line(d.revision)), "known: "+strings.Join(known, ", "))
}

// showWorkload prints what is decided about: the commits it was read at, what it needs, and what it waits for.
func (d *deciding) showWorkload(cmd *cobra.Command, what string, n content.Newer) {
	cmd.PrintErrf("%s to %s: %s, published in record %s\n", d.policy.Below(), d.policy.Environment, what, n.Record)
	var lines []string
	for _, target := range n.Targets {
		lines = append(lines, sourceText(target.Source.Repo, target.Source.Ref, target.Source.Commit))
	}
	lines = append(lines, sourceText(n.Source.Repo, n.Source.Ref, n.Source.Commit))
	for _, a := range n.Artifacts {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Type, a.Reference, a.Digest)))
	}
	slices.Sort(lines)
	lines = slices.DeleteFunc(slices.Compact(lines), func(line string) bool { return line == "" })
	for i, line := range lines {
		if i == maxShown {
			cmd.PrintErrf("  and %d more\n", len(lines)-maxShown)
			break
		}
		cmd.PrintErrf("  %s\n", show.Line(line))
	}
	cmd.PrintErrf("before this decision: %s\n", cmp.Or(show.Line(n.Waits), "it may enter"))
}

func sourceText(repo, ref, commit string) string {
	if repo == "" {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("git %s %s %s", repo, ref, commit))
}

// shortRevision names a revision for people.
func shortRevision(r digest.Digest) string {
	if r == "" {
		return "removed"
	}
	return r.Encoded()[:min(12, len(r.Encoded()))]
}
