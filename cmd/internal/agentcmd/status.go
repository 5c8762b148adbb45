package agentcmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newStatusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the cluster",
		Long: `Say how the cluster stands: asked of the running agent, or else as the last one left it. In JSON,
reportKey is the public key that the hub needs to know this agent by.`,
		Example: example("status --state-dir /var/lib/wherry-agent -o json"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			return printStatus(cmd, output, s)
		}),
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

func printStatus(cmd *cobra.Command, format string, s agent.Status) error {
	return cli.Print(cmd.OutOrStdout(), format, s, func(w io.Writer) { writeTable(w, s, time.Now()) })
}

func reasonOf(reason, message string) string {
	if reason == "" || message == "" {
		return reason
	}
	return reason + ": " + message
}

// spaced returns s after a space, or "" for an empty s.
func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

// validity returns the expiry of a trust document, and advice if it is near.
func validity(t *trust.Status) string {
	switch {
	case t.Expired:
		return "expired at " + t.ExpiresAt.Format(time.RFC3339) + ": nothing new is accepted before the roots have signed the next version"
	case t.Soon():
		left := show.Days(t.DaysLeft)
		if t.DaysLeft == 0 {
			left += ", at " + t.ExpiresAt.Format(time.RFC3339)
		}
		return fmt.Sprintf("expires in %s: the roots have to sign the next version", left)
	}
	return "expires in " + show.Days(t.DaysLeft)
}

// exitOf is the exit code of a pass, with the reason for it.
func exitOf(r agent.Result) error {
	switch r.Verdict {
	case agent.Refused:
		return refused(r.Error, r.Status)
	case agent.Unreachable:
		hint := "what runs keeps running"
		switch r.Status.Reason {
		case agent.ReasonNotFound:
			hint += `; "wherry bundle ls LOCATION" lists what is published`
		case agent.ReasonCredentialsWithheld, agent.ReasonUnreachable:
			hint += "; doctor says what to do"
		case agent.ReasonRebinding:
			hint += "; publish for what it is bound to, or go back with rebind --undo"
		}
		return cli.Fail(cli.Failed, errors.New(r.Error), hint)
	case agent.Deferred:
		return cli.Fail(cli.NotYet, errors.New(r.Error), "what runs keeps running")
	case agent.Broken:
		return cli.Fail(cli.Failed, errors.New(r.Error), "")
	}
	if ref := r.Status.Release.Refused; ref != nil && r.Status.State == bundle.Rejected { // by an earlier pass
		return refused(reasonOf(string(ref.Reason), ref.Message), r.Status)
	}
	freeze := r.Status.Freeze
	switch state := r.Status.State; {
	case freeze != nil && freeze.State == bundle.Failed:
		return cli.Fail(cli.No, errors.New(freezeLine(freeze)), "")
	case state == bundle.Failed, state == bundle.Drifted:
		hint := ""
		switch reason := r.Status.Reason; {
		case reason == agent.ReasonQuarantined:
			return cli.Fail(cli.No, errors.New(r.Status.Message), "publish what is mended, or have it tried again with resume --retry")
		case reason == agent.ReasonCrashLoop:
			return cli.Fail(cli.No, errors.New("nothing is changed "+r.Status.Message), "resume --retry does not wait")
		case reason == agent.ReasonOnFailureHold, reason == agent.ReasonNoGoodRelease:
			hint = "publish what is mended; rollback --list shows what can be gone back to"
		case freeze != nil:
			hint = "nothing is changed now: " + freezeLine(freeze)
		}
		if slices.ContainsFunc(r.Status.Items, func(i bundle.Item) bool { return i.Reason == assignments.ReasonAdapterUnavailable }) {
			hint = "ansible needs --ansible-playbook, directory --directory-root, zarf --zarf and kubernetes --kubeconfig; --adapter takes another than the release names"
		}
		return cli.Fail(cli.No, fmt.Errorf("failed or drifted: %s", open(r.Status.Items, bundle.Failed, bundle.Drifted)), hint)
	case freeze != nil && freeze.Holding:
		return cli.Fail(cli.NotYet, errors.New("changes are waiting: "+freezeLine(freeze)), freezeHint(freeze))
	case state == bundle.Compliant, state == bundle.Suspended:
		return nil
	}
	if r.Status.Reason == agent.ReasonRebinding {
		return cli.Fail(cli.NotYet, errors.New(r.Status.Message), "bring one with import, give --registry, or go back with rebind --undo")
	}
	if s := r.Status; len(s.Items) == 0 && s.Reason != "" && s.Reason != agent.ReasonNoRelease {
		return cli.Fail(cli.NotYet, errors.New(reasonOf(s.Reason, s.Message)), "nothing was changed")
	}
	if len(r.Status.Items) == 0 {
		return cli.Fail(cli.NotYet, errors.New("there is no release yet"), "give --registry, or bring one with import")
	}
	return cli.Fail(cli.NotYet, fmt.Errorf("not compliant yet: %s", open(r.Status.Items, bundle.Pulling, bundle.Applying, bundle.Progressing, bundle.Pending)), "")
}

// refused returns the error for a refused release with the reason. For one that is too old, it also names the running one.
func refused(why string, s agent.Status) error {
	err := fmt.Errorf("release refused: %s", why)
	if run := s.Release.Running; run != nil && (s.Release.Refused == nil || s.Release.Refused.Reason == bundle.OlderRelease) {
		err = fmt.Errorf("%w; release %s runs", err, run.Name())
	}
	return cli.Fail(cli.Denied, err, refusalHint(s))
}

// open counts the items in one of states, and says of the first how it stands.
func open(items []bundle.Item, states ...bundle.State) string {
	found := slices.DeleteFunc(slices.Clone(items), func(i bundle.Item) bool { return !slices.Contains(states, i.State) })
	s := fmt.Sprintf("%d of %d assignments", len(found), len(items))
	if len(found) > 0 {
		s += "; " + found[0].Assignment + " " + stands(found[0].State)
		if why := reasonOf(found[0].Reason, found[0].Message); why != "" {
			s += " (" + why + ")"
		}
	}
	return s
}

// stands returns a state as the end of a sentence: "failed", "is progressing".
func stands(s bundle.State) string {
	if s == bundle.Failed || s == bundle.Drifted {
		return string(s)
	}
	return "is " + string(s)
}

// freezeLine returns why the cluster must not be changed, and since when.
func freezeLine(b *agent.FreezeStatus) string {
	var until time.Time
	if b.Until != nil {
		until = *b.Until
	}
	return b.Reason + " " + pausedBy(b.Since, until, b.Message)
}

func freezeHint(b *agent.FreezeStatus) string {
	if b.State == bundle.Suspended {
		return "resume ends a pause"
	}
	return ""
}

func ringFlag(ring string) string {
	if ring == "" {
		return ""
	}
	return " --ring " + ring
}

func refusalHint(s agent.Status) string {
	if s.Release.Refused == nil {
		return "it is the release that a rollback went back to, and runs already; resume ends the rollback"
	}
	keeps := "the release before keeps running"
	if s.Release.Running == nil {
		keeps = "nothing was applied"
	}
	switch s.Release.Refused.Reason {
	case bundle.Unsigned, bundle.UntrustedKey:
		if s.Trust != nil {
			return keeps + "; releases have to be signed with the release keys that trust show lists"
		}
		return keeps + "; releases have to be signed with the key that --key names"
	case bundle.BelowThreshold:
		return keeps + "; more of the holders of release keys have to sign it, with wherry sign"
	case bundle.OldEpoch:
		if s.Trust == nil {
			return keeps + "; releases of an epoch above 0 need the platform's trust document: install it with trust install"
		}
		return keeps + "; publish again in the epoch of the trust document that trust show shows"
	case bundle.TrustDocumentRejected:
		return keeps + "; what lies in the registry as the next version of the trust document was not signed by those who may"
	case bundle.WrongPlatform, bundle.WrongEnvironment, bundle.WrongClusterType, bundle.WrongRing:
		return keeps + "; compare --platform, --environment, --cluster-type and --ring with what was published"
	case bundle.UnsupportedSchema:
		return keeps + "; put a newer agent here, which then judges it again"
	case bundle.OlderRelease:
		if r := s.Release.Running; r != nil && len(r.Rings) > 0 && !slices.Contains(r.Rings, s.Cluster.Ring) {
			return keeps + fmt.Sprintf("; it is of ring %s, which this cluster has left: whoever publishes has to run wherry rollout move LOCATION --environment %s --cluster-type %s%s --above s%d-%d",
				strings.Join(r.Rings, ", "), s.Cluster.Environment, s.Cluster.Type, ringFlag(s.Cluster.Ring), r.Epoch, r.Sequence)
		}
		if refused := s.Release.Refused; refused.AcceptedBefore {
			return keeps + "; to go back to it: wherry-agent rollback --to " + bundle.ReleaseName(0, refused.Digest)
		}
		return keeps + "; this agent never ran the older one, so that no rollback leads to it: to go back on purpose, publish its content again"
	case bundle.Expired:
		if s.Trust != nil && s.Trust.Expired {
			return keeps + "; the roots have to sign the next version of the trust document"
		}
		return keeps + "; publish again to renew it, or set the clock; a person allows those of one package: import FILE --allow-expired REASON"
	}
	return keeps
}
