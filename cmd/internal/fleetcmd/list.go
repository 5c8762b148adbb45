package fleetcmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/hub/fleet"
)

// pageRows is how many rows are asked for at once.
const pageRows = 1000

// kind is one kind of rows: how they are asked for, and shown. A page P has rows T.
type kind[P, T any] struct {
	columns []column[T]
	// name is what "describe" takes.
	name func(T) string
	// page asks for a page. Rows and next are its fields.
	page func(ctx context.Context, a fleet.Answers, q fleet.Query) (P, error)
	rows func(*P) *[]T
	next func(*P) *string
	// totals is the first line for people, and count the number of all rows; zero if the hub does not say.
	totals func(p P, asOf time.Time) string
	count  func(P) int
	// asOf is the moment of the rows; nil, and the zero time, mean now.
	asOf func(P) time.Time
	// worstFirst is the order of tables unless --sort is given; empty is the hub's.
	worstFirst string
}

// lister holds the flags of a command that prints rows.
type lister struct {
	*source
	query
	format format
	// quiet leaves out the note that nothing matches.
	quiet bool
}

// list asks for rows and prints them.
func list[P, T any](cmd *cobra.Command, l *lister, k kind[P, T]) error {
	if err := l.finish(cmd.Flags(), l.now()); err != nil {
		return err
	}
	limit, width := l.limit, 0
	if l.format.forPeople() {
		width = l.width()
		if width > 0 && !l.limited {
			limit = terminalRows
		}
		if l.Sort == "" {
			l.Sort = k.worstFirst
		}
	}
	p := &printer[T]{w: cmd.OutOrStdout(), format: l.format, columns: shownColumns(k.columns, l.format), name: k.name}
	return l.ask(cmd, func(a fleet.Answers) error {
		whole, n, err := pages(cmd.Context(), a, l.Query, limit, k, p)
		switch {
		case err != nil:
			return err
		case l.format.streams():
			if n == 0 {
				err = p.stream(nil) // the header
			}
		case l.format.forPeople():
			err = people(cmd, l, k, whole, p.columns, width)
		default:
			err = document(cmd.OutOrStdout(), l.format, whole)
		}
		if err == nil && n == 0 && !l.quiet {
			cmd.PrintErrln(nothing(cmd))
		}
		return err
	})
}

// nothing says that there are no rows. A hub that is asked for all has none yet.
func nothing(cmd *cobra.Command) string {
	chosen := cmd.Flags().NArg() > 0
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		chosen = chosen || f.Changed && !slices.Contains([]string{"output", "sort", "limit", "of", "by"}, f.Name)
	})
	if chosen {
		return "nothing matches"
	}
	return "there is nothing yet"
}

// pages asks for rows, page by page, until there are limit; zero means all. Forms that stream are written as rows come, and
// others are returned as one page. N counts the rows.
func pages[P, T any](ctx context.Context, a fleet.Answers, q fleet.Query, limit int, k kind[P, T], p *printer[T]) (whole P, n int, err error) {
	for first := true; ; first = false {
		q.Limit = pageRows
		if limit > 0 {
			q.Limit = min(pageRows, limit-n)
		}
		page, err := k.page(ctx, a, q)
		if err != nil {
			return whole, n, err
		}
		rows, after := *k.rows(&page), *k.next(&page)
		n += len(rows)
		switch {
		case p.format.streams():
			if err := p.stream(rows); err != nil {
				return whole, n, err
			}
		case first:
			whole = page
		default:
			*k.rows(&whole) = append(*k.rows(&whole), rows...)
			*k.next(&whole) = after
		}
		if after == "" || limit > 0 && n >= limit {
			return whole, n, nil
		}
		if after == q.After {
			return whole, n, fmt.Errorf("the hub returned the same page twice")
		}
		q.After = after
	}
}

// people prints rows as a table, below a line of totals.
func people[P, T any](cmd *cobra.Command, l *lister, k kind[P, T], whole P, columns []column[T], width int) error {
	now, asked := l.now(), l.AsOf
	if k.asOf != nil && !k.asOf(whole).IsZero() {
		now = k.asOf(whole)
	}
	if !asked.IsZero() {
		now = asked
	}
	out, rows := cmd.OutOrStdout(), *k.rows(&whole)
	if _, err := fmt.Fprintln(out, k.totals(whole, asked)); err != nil || len(rows) == 0 {
		return err
	}
	if err := newTable(columns, rows, now).write(out, width); err != nil {
		return err
	}
	if *k.next(&whole) == "" {
		return nil
	}
	more := "more"
	if k.count != nil && k.count(whole) > len(rows) {
		more = number(k.count(whole)-len(rows)) + " more"
	}
	_, err := fmt.Fprintf(out, "… and %s; --limit 0 shows all\n", more)
	return err
}
