package env

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/promote"
)

// FollowHub returns the hub as something that wakes a loop, and as something that is followed, so that people learn when it does not answer
// or does not take the token any more. There are none without a hub.
func (f *Gates) FollowHub(cmd *cobra.Command) ([]watch.Waker, []watch.Source, error) {
	if f.Fleet.URL() == "" {
		return nil, nil, nil
	}
	hub, err := f.Fleet.Client(cmd)
	if err != nil {
		return nil, nil, err
	}
	address := f.Fleet.URL()
	return []watch.Waker{Changes(hub, fleet.Query{})}, []watch.Source{{Name: address, State: func(ctx context.Context) (string, error) {
		err := hub.Events(ctx, -1, fleet.Query{AsOf: time.Now()}, func(fleet.Event) error { return nil })
		return "", failure.HubRequest(err, address)
	}}}, nil
}

// Changes wakes a loop for each event about what query chooses. A hub that tells of none is asked for them again after a while.
func Changes(hub fleet.Answers, query fleet.Query) watch.Waker {
	return func(ctx context.Context, wake func()) error {
		for ctx.Err() == nil {
			_ = hub.Events(ctx, -1, query, func(e fleet.Event) error {
				if e.Kind != fleet.EventPromotion { // the look of a judge, such as this one
					wake()
				}
				return nil
			})
			select {
			case <-ctx.Done():
			case <-time.After(watch.ForReports):
			}
		}
		return nil
	}
}

// Rings advances the rings of environments again and again, for a command that goes on. The zero value is ready to use.
type Rings struct {
	// Tell, if not nil, gets each publication.
	Tell    func(*publisher.Published)
	printed map[string]string // the last line of each ring
}

// Advance brings what is in rings to the rings after them as far as gates pass, prints what is new since the last call, and asks for the next
// turn: at the moment at which a gate may pass by time alone, and soon if a gate waits for something else. An error of printing stops the loop.
func (r *Rings) Advance(ctx context.Context, t *watch.Turn, j *flags.Journal, to oci.Location, signers []*keys.Key, all []advance.Options, judge advance.Gate, opts publisher.PublishOptions) error {
	return advance.Pass(ctx, to, signers, all, judge, opts, func(d *advance.Done) error {
		if d.Published != nil && r.Tell != nil {
			r.Tell(d.Published)
		}
		if !d.Has(advance.Advanced) { // else it is looked at again
			t.At(d.NextLook)
			if len(d.Steps) > 0 {
				t.Within(watch.ForReports)
			}
		}
		return watch.Stop(r.print(j, d))
	})
}

// print prints a line for each ring of which there is something new.
func (r *Rings) print(j *flags.Journal, done *advance.Done) error {
	if r.printed == nil {
		r.printed = map[string]string{}
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
		if r.printed[name] == about && s.Result != advance.Advanced {
			continue
		}
		r.printed[name] = about
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
	for name := range r.printed {
		if strings.HasPrefix(name, done.Environment+"\n") && !behind[name] {
			delete(r.printed, name)
		}
	}
	return nil
}
