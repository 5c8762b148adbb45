package env

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/follow"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/promote"
)

// LookAtFacts is the longest time between two looks at a gate that waits for something else than time: reports come without a word.
const LookAtFacts = 5 * time.Minute

// maxAdvances bounds how often Rings.Advance looks at an environment again because a ring got something.
const maxAdvances = 20

// FollowHub tells of what a hub sees, until stop is called, and returns the hub as something that is followed, so that people learn when
// it does not answer or does not take the token any more. Both are empty without a hub.
func (f *Gates) FollowHub(cmd *cobra.Command) (changes <-chan struct{}, hubs []follow.Source, stop func(), err error) {
	if f.Fleet.URL() == "" {
		return nil, nil, func() {}, nil
	}
	hub, err := f.Fleet.Client(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	address := f.Fleet.URL()
	hubs = []follow.Source{{Name: address, State: func(ctx context.Context) (string, error) {
		err := hub.Events(ctx, -1, fleet.Query{AsOf: time.Now()}, func(fleet.Event) error { return nil })
		return "", failure.HubRequest(err, address)
	}}}
	ctx, cancel := context.WithCancel(cmd.Context())
	tell, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil { // a hub that tells nothing is asked by every pass all the same
			_ = hub.Events(ctx, -1, fleet.Query{}, func(fleet.Event) error {
				select {
				case tell <- struct{}{}:
				default:
				}
				return nil
			})
			select {
			case <-ctx.Done():
			case <-time.After(LookAtFacts):
			}
		}
	}()
	return tell, hubs, func() { cancel(); <-ended }, nil
}

// Rings advances the rings of environments again and again, for a command that goes on. The zero value is ready to use.
type Rings struct {
	// Tell, if not nil, gets each publication.
	Tell func(*publisher.Published)
	said map[string]string // what was said last of each ring
}

// Advance brings what is in rings to the rings after them as far as gates pass, prints what is new since the last call, and returns when
// to look again; the zero time is never. What fails in one environment keeps none of the others back. The error lost is that of
// printing.
func (r *Rings) Advance(ctx context.Context, j *flags.Journal, to oci.Location, signers []*keys.Key, all []advance.Options, judge advance.Gate, opts publisher.PublishOptions) (next time.Time, err, lost error) {
	var failed []error
	for round := 0; len(all) > 0; round++ {
		done, _, err := advance.Pass(ctx, to, signers, all, judge, opts)
		if err != nil {
			failed = append(failed, err)
		}
		var again []advance.Options
		for _, o := range all {
			d := done[o.Environment]
			if d == nil {
				continue
			}
			if d.Published != nil && r.Tell != nil {
				r.Tell(d.Published)
			}
			if lost := r.print(j, d); lost != nil {
				return next, errors.Join(failed...), lost
			}
			look := d.NextLook
			switch {
			case d.Has(advance.Advanced) && round < maxAdvances: // the gate of the next ring may pass, or know when it will
				again = append(again, o)
				continue
			case len(d.Steps) > 0:
				if facts := time.Now().Add(LookAtFacts); look.IsZero() || facts.Before(look) {
					look = facts
				}
			}
			if !look.IsZero() && (next.IsZero() || look.Before(next)) {
				next = look
			}
		}
		all = again
	}
	return next, errors.Join(failed...), nil
}

// print prints a line for each ring of which there is something new.
func (r *Rings) print(j *flags.Journal, done *advance.Done) error {
	if r.said == nil {
		r.said = map[string]string{}
	}
	behind := map[string]bool{}
	for _, s := range done.Steps {
		name := done.Environment + "\n" + s.Ring
		behind[name] = true
		about := string(s.Result) + "\n" + s.Commit
		for _, rule := range s.Verdict.Rules { // those of the reason, without the numbers, which go on with time
			if rule.Result == s.Verdict.Result {
				about += "\n" + rule.Name
			}
		}
		if r.said[name] == about && s.Result != advance.Advanced {
			continue
		}
		r.said[name] = about
		line := flags.Line{Event: string(s.Result), Environment: done.Environment, Result: s}
		commit := s.Commit[:min(len(s.Commit), 7)]
		switch s.Result {
		case advance.Advanced:
			line.Message = strings.TrimRight(fmt.Sprintf("ring %s: advanced %s", s.Ring, commit), " ")
		case advance.Pending:
			line.Event, line.Message = "waiting", fmt.Sprintf("ring %s: not yet: more signatures are needed", s.Ring)
			line.Hint = "wherry sign LOCATION --environment " + done.Environment + " --key FILE"
		case advance.NotYet:
			line.Event, line.Message = "waiting", fmt.Sprintf("ring %s: not yet: %s", s.Ring, promote.Reason(s.Verdict))
		default:
			line.Message = fmt.Sprintf("ring %s: held: %s", s.Ring, promote.Reason(s.Verdict))
			line.Hint = "wherry gate check --environment " + done.Environment + " --ring " + s.Ring
		}
		if by := s.Verdict.CountedBy(); by != "" {
			line.Message += "; " + by
		}
		if err := j.Print(line); err != nil {
			return err
		}
	}
	for name := range r.said {
		if strings.HasPrefix(name, done.Environment+"\n") && !behind[name] {
			delete(r.said, name)
		}
	}
	return nil
}
