package fleetcmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// query is the flags that choose rows.
type query struct {
	fleet.Query
	// environment is the one of a command that is about one; else environments are those of the query.
	environment             string
	environments            []string
	silentFor, asOf         string
	config, content, digest string
	states, relations       []string
	limit                   int
	limited                 bool // --limit was given
}

// choosing lists flags that choose rows, in the order of help.
var choosing = []struct {
	name, short, usage string
	to                 func(*query) *string
}{
	{"selector", "l", "only clusters with these labels, a `SELECTOR` such as region=east,gpu!=true", func(q *query) *string { return &q.Selector }},
	{"cluster", "", "only the cluster `NAME`, or with this uid", func(q *query) *string { return &q.Cluster }},
	{"platform", "", "only the platform `NAME`", func(q *query) *string { return &q.Platform }},
	{"type", "", "only this cluster `TYPE`", func(q *query) *string { return &q.Type }},
	{"ring", "", "only the ring `NAME`", func(q *query) *string { return &q.Ring }},
	{"workspace", "", "only the workspace `NAME`, or clusters with it", func(q *query) *string { return &q.Workspace }},
	{"application", "", "only the application `NAME`, or clusters with it", func(q *query) *string { return &q.Application }},
	{"workload", "", "only the workload `NAME`, or clusters with it", func(q *query) *string { return &q.Workload }},
	{"target", "", "only the deployment target `NAME`, or clusters with it", func(q *query) *string { return &q.Target }},
	{"adapter", "", "only the reconciler `NAME`, such as flux, or clusters with it", func(q *query) *string { return &q.Adapter }},
	{"version", "", "only this `VERSION` of a workload, or clusters with it", func(q *query) *string { return &q.Version }},
	{"commit", "", "only what runs a release of this `COMMIT` of the platform; 7 digits are enough", func(q *query) *string { return &q.Commit }},
	{"config", "", "only this `DIGEST` of a configuration, or clusters with it; 7 digits are enough", func(q *query) *string { return &q.config }},
	{"content", "", "only this `DIGEST` of an assignment's content, or clusters with it; 7 digits are enough", func(q *query) *string { return &q.content }},
	{"release", "", "only what runs the release with this `DIGEST`; 7 digits are enough", func(q *query) *string { return &q.digest }},
	{"image", "", "only what runs this `IMAGE`: a reference, a repository or a digest", func(q *query) *string { return &q.Image }},
}

// addChoosing adds the flags that choose rows, but for those that the command has no use for.
func (q *query) addChoosing(cmd *cobra.Command, without ...string) {
	f := cmd.Flags()
	for _, c := range choosing {
		if !slices.Contains(without, c.name) {
			f.StringVarP(c.to(q), c.name, c.short, "", c.usage)
			cli.NotEmpty(cmd, c.name)
		}
	}
	has := func(name string) bool { return !slices.Contains(without, name) }
	if has("environment") {
		f.StringSliceVarP(&q.environments, "environment", "e", nil, "only the environment `NAME`; may be repeated")
		cli.NotEmpty(cmd, "environment")
	}
	if has("state") {
		f.StringSliceVar(&q.states, "state", nil, "only these `STATES`, such as failed,stale")
		cli.NotEmpty(cmd, "state")
		_ = cmd.RegisterFlagCompletionFunc("state", listCompletion(words(store.States())))
	}
	if has("relation") {
		f.StringSliceVar(&q.relations, "relation", nil, "only `RELATIONS` to the desired release, such as behind,foreign")
		cli.NotEmpty(cmd, "relation")
		_ = cmd.RegisterFlagCompletionFunc("relation", listCompletion(words(fleet.Relations())))
	}
	if has("silent-for") {
		f.StringVar(&q.silentFor, "silent-for", "", "only clusters whose last word is at least this `DURATION` old, such as 7d")
		cli.NotEmpty(cmd, "silent-for")
	}
	if has("as-of") {
		f.StringVar(&q.asOf, "as-of", "", "as it was at a `TIME`: 2026-11-01, 2026-11-01T14:00:00Z, or 24h for a day ago")
		cli.NotEmpty(cmd, "as-of")
	}
	cli.Rare(cmd, "platform", "target", "adapter", "content", "relation", "application")
}

// addEnvironment adds --environment to a command that is about one.
func (q *query) addEnvironment(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&q.environment, "environment", "e", "", "only the environment `NAME`")
	cli.NotEmpty(cmd, "environment")
}

// addSort adds --sort with these fields.
func (q *query) addSort(cmd *cobra.Command, fields []string) {
	cmd.Flags().Var(sortFlag{&q.Sort, fields}, "sort", "sort by a `FIELD`, or by -FIELD for the reverse: "+alternatives(fields))
	var all []string
	for _, f := range fields {
		all = append(all, f, "-"+f)
	}
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// sortFlag refuses fields that rows do not have.
type sortFlag struct {
	value *string
	known []string
}

func (f sortFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f sortFlag) Type() string { return "field" }

func (f sortFlag) Set(s string) error {
	if !slices.Contains(f.known, strings.TrimPrefix(s, "-")) {
		return fmt.Errorf("must be %s, or one of them with - before it", alternatives(f.known))
	}
	*f.value = s
	return nil
}

// addLimit adds --limit.
func (q *query) addLimit(cmd *cobra.Command) {
	cmd.Flags().IntVar(&q.limit, "limit", 0, fmt.Sprintf("print `N` rows at most; 0 is all (default %d on a terminal, else 0)", terminalRows))
}

// terminalRows is the limit of lists on a terminal.
const terminalRows = 100

// ofPresent are the flags that choose among what is there, and not among changes.
var ofPresent = []string{"relation", "silent-for", "as-of", "image", "adapter"}

// words returns values as texts.
func words[S ~string](all []S) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = string(s)
	}
	return out
}

// chosenEnvironments returns the environments that flags name.
func (q *query) chosenEnvironments() []string {
	if q.environment != "" {
		return []string{q.environment}
	}
	return q.environments
}

// finish reads the flags' values into the query. Flags is those of the command.
func (q *query) finish(flags *pflag.FlagSet, now time.Time) (err error) {
	if q.AsOf, err = moment("--as-of", q.asOf, now); err != nil {
		return err
	}
	if q.silentFor != "" {
		if q.SilentFor, err = duration.Parse(q.silentFor); err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--silent-for: %w", err), "")
		}
	}
	q.Environments = q.chosenEnvironments()
	q.State, q.Relation = nil, nil
	for _, s := range q.states {
		q.State = append(q.State, bundle.State(strings.TrimSpace(s)))
	}
	for _, r := range q.relations {
		if !slices.Contains(fleet.Relations(), fleet.Relation(r)) {
			return cli.Usagef("--relation %q: expected one of %s", r, alternatives(fleet.Relations()))
		}
		q.Relation = append(q.Relation, fleet.Relation(r))
	}
	for _, s := range q.State {
		if err := store.CheckState(s); err != nil {
			return cli.Fail(cli.Usage, err, "")
		}
	}
	q.ConfigDigest, q.Content, q.Release = digest.Digest(q.config), digest.Digest(q.content), digest.Digest(q.digest)
	if f := flags.Lookup("limit"); f != nil {
		q.limited = f.Changed
		if q.limit < 0 {
			return cli.Usagef("--limit %d: expected a number of rows, or 0 for all", q.limit)
		}
	}
	return nil
}

// moment returns a time that a person gives: a date, an RFC 3339 time, or a duration back from now.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := duration.Moment(text, now)
	if err != nil {
		return t, cli.Fail(cli.Usage, fmt.Errorf("%s: %w", flag, err), "")
	}
	if t.After(now) {
		return t, cli.Usagef("%s %s is in the future", flag, text)
	}
	return t, nil
}
