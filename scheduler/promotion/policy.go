package promotion

import (
	"cmp"
	"crypto"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// maxItems bounds each list of a PromotionPolicy.
const maxItems = 1000

// maxCheckTimeout bounds the time that an external check may take.
const maxCheckTimeout = time.Hour

// Read returns what a policy without mistakes says of an environment. O is nil if no policy names the environment. The rings are
// those of the environment, which the Platform may name instead of the policy.
func Read(o *kinds.PromotionPolicy, environment string, rings []string) Policy {
	p := Policy{Environment: environment, Rings: rings, Gate: Default(), RingGate: Default()}
	if o == nil {
		return p
	}
	p.Name = o.Metadata.Name
	if slices.ContainsFunc(o.Spec.Chain, func(e kinds.Text) bool { return e.Value == environment }) {
		for _, e := range o.Spec.Chain {
			p.Chain = append(p.Chain, e.Value)
		}
	}
	r := newReader(o)
	for _, g := range o.Spec.Groups {
		read := r.groups[g.Name.Value]
		p.Groups = append(p.Groups, read.Of())
	}
	written := o.Of(environment)
	p.ChangeRequest = written.ChangeRequest.Value
	p.Gate = r.gate(o.GateOf(environment))
	p.RingGate = ringGate(p.Gate)
	if written.RingGate.Line != 0 {
		p.RingGate = r.gate(&written.RingGate)
	}
	return p
}

// ringGate returns the gate between the rings of an environment without one of its own.
func ringGate(g Gate) Gate {
	g.SoakIn, g.RequirePinned, g.Approvals, g.Check, g.Content = nil, false, Approvals{}, nil, Default().Content
	return g
}

// Mistakes returns the mistakes of a PromotionPolicy.
func Mistakes(p *kinds.PromotionPolicy) []error {
	r := newReader(p)
	r.checkChain()
	r.checkGroups()
	if p.Spec.Gate.Line != 0 {
		r.gate(&p.Spec.Gate)
	}
	seen := map[string]finding.Position{}
	for i := range p.Spec.Environments {
		r.checkEnvironment(&p.Spec.Environments[i], seen)
	}
	for i, e := range p.Spec.Chain {
		if g := p.GateOf(e.Value); i > 0 && g == &p.Spec.Gate {
			r.checkSoakIn(e.Value, g)
		}
	}
	return r.errs
}

// reader reads the values of a PromotionPolicy, and collects the mistakes in them.
type reader struct {
	policy *kinds.PromotionPolicy
	groups map[string]Approvals // without Required
	ring   bool                 // the gate that is read is one between rings
	errs   []error
}

func newReader(p *kinds.PromotionPolicy) *reader {
	r := &reader{policy: p, groups: map[string]Approvals{}}
	for _, g := range p.Spec.Groups {
		read := Approvals{Group: g.Name.Value, HubSpeaksForKeys: g.HubSpeaksForKeys.Value}
		for _, m := range g.Members {
			key, _ := onePublicKey(m.PublicKey.Value)
			read.Members = append(read.Members, Member{Name: m.Name.Value, Key: key})
		}
		for _, hub := range g.Hubs {
			if key, err := onePublicKey(hub.Value); err == nil && key != nil {
				read.Hubs = append(read.Hubs, key)
			}
		}
		r.groups[g.Name.Value] = read
	}
	return r
}

func (r *reader) mistake(at kinds.Line, hint, format string, args ...any) {
	r.errs = append(r.errs, finding.Errorf(finding.CodePromotion, r.policy.Position(at), hint, format, args...))
}

// unreachable reports a rule that can never hold.
func (r *reader) unreachable(at kinds.Line, hint, format string, args ...any) {
	r.errs = append(r.errs, finding.Errorf(finding.CodeUnreachable, r.policy.Position(at), hint, format, args...))
}

// fits reports whether a list is short enough to be read.
func (r *reader) fits(at kinds.Line, what string, n int) bool {
	if n > maxItems {
		r.mistake(at, "", "there are %d %s, at most %d are read", n, what, maxItems)
	}
	return n <= maxItems
}

func (r *reader) checkChain() {
	if !r.fits(kinds.Line(r.policy.At.Line), "environments in the chain", len(r.policy.Spec.Chain)) {
		return
	}
	seen := map[string]bool{}
	for _, e := range r.policy.Spec.Chain {
		switch {
		case len(validation.IsDNS1123Subdomain(e.Value)) > 0:
			r.mistake(e.Line, "write the names of environments, the first to get a commit first", "the chain has %q, which is not the name of an environment", e.Value)
		case seen[e.Value]:
			r.mistake(e.Line, "remove one of them", "the chain names environment %q twice", e.Value)
		}
		seen[e.Value] = true
	}
}

func (r *reader) checkEnvironment(e *kinds.PromotedEnvironment, seen map[string]finding.Position) {
	at := r.policy.Position(e.Line)
	first, twice := seen[e.Name]
	switch {
	case e.Name == "":
		r.errs = append(r.errs, finding.Errorf(finding.CodeRings, at, "give its name", "an environment of the PromotionPolicy has no name"))
	case twice && len(e.Rings) > 0:
		r.errs = append(r.errs, finding.Errorf(finding.CodeRings, at, "remove one of them", "the rings of environment %q are named twice: first at %s", e.Name, first))
	case twice:
		r.mistake(e.Line, "write it once", "environment %q is listed twice: first at %s", e.Name, first)
	default:
		seen[e.Name] = at
	}
	r.errs = append(r.errs, CheckRings(at, e.Rings)...)
	for _, written := range []*kinds.PromotionGate{&e.Gate, &e.RingGate} {
		if written.Line == 0 {
			continue
		}
		r.ring = written == &e.RingGate
		r.gate(written)
		r.ring = false
		if !r.ring {
			r.checkSoakIn(e.Name, written)
		}
	}
}

// checkSoakIn checks that the environments of a gate's soakIn come before the gate's own in the chain.
func (r *reader) checkSoakIn(environment string, g *kinds.PromotionGate) {
	own := r.chainIndex(environment)
	for _, in := range g.SoakIn {
		switch i := r.chainIndex(in.Value); {
		case i < 0:
			r.unreachable(in.Line, "name environments of spec.chain", "soakIn of environment %q names %q, which is not in the chain", environment, in.Value)
		case own >= 0 && i >= own:
			r.unreachable(in.Line, "name environments before it", "soakIn of environment %q names %q, which does not come before it in the chain", environment, in.Value)
		}
	}
}

func (r *reader) chainIndex(environment string) int {
	return slices.IndexFunc(r.policy.Spec.Chain, func(e kinds.Text) bool { return e.Value == environment })
}

// maxMemberName bounds the name of a member, in bytes.
const maxMemberName = 100

func (r *reader) checkGroups() {
	seen := map[string]bool{}
	if !r.fits(kinds.Line(r.policy.At.Line), "groups", len(r.policy.Spec.Groups)) {
		return
	}
	for i := range r.policy.Spec.Groups {
		g := &r.policy.Spec.Groups[i]
		switch {
		case !isPlainName(g.Name.Value):
			r.mistake(g.Line, "", "a group cannot be called %q", g.Name.Value)
		case seen[g.Name.Value]:
			r.mistake(g.Name.Line, "remove one of them", "group %q is defined twice", g.Name.Value)
		}
		seen[g.Name.Value] = true
		if r.fits(g.Line, "members in group "+g.Name.Value, len(g.Members)) && r.fits(g.Line, "hubs in group "+g.Name.Value, len(g.Hubs)) {
			r.checkMembers(g)
		}
	}
}

func (r *reader) checkMembers(g *kinds.ApproverGroup) {
	names, keys := map[string]bool{}, map[string]string{} // keys: whose they are
	check := func(pem kinds.Text, whose string) {
		if pem.Value == "" {
			return
		}
		key, err := onePublicKey(pem.Value)
		if err != nil {
			r.mistake(pem.Line, "write the public key in PEM, such as the content of cosign.pub", "group %q: the key of %s: %v", g.Name.Value, whose, err)
			return
		}
		id, err := bundle.KeyID(key)
		switch other, twice := keys[id]; {
		case err != nil:
			r.mistake(pem.Line, "", "group %q: the key of %s: %v", g.Name.Value, whose, err)
		case twice:
			r.mistake(pem.Line, "each has a key of its own", "group %q: %s has the key of %s", g.Name.Value, whose, other)
		default:
			keys[id] = whose
		}
	}
	for _, m := range g.Members {
		switch {
		case !isPlainName(m.Name.Value):
			r.mistake(m.Line, "", "a member of group %q cannot be called %q", g.Name.Value, m.Name.Value)
		case names[m.Name.Value]:
			r.mistake(m.Name.Line, "remove one of them", "group %q has member %q twice", g.Name.Value, m.Name.Value)
		case m.PublicKey.Value == "" && len(g.Hubs) == 0:
			r.unreachable(m.Line, "give the member's publicKey, or the keys of hubs to the group", "member %q of group %q has no key, and the group has no hub that could speak for the member", m.Name.Value, g.Name.Value)
		}
		names[m.Name.Value] = true
		check(m.PublicKey, fmt.Sprintf("member %q", m.Name.Value))
	}
	for i, hub := range g.Hubs {
		if hub.Value == "" {
			r.mistake(cmp.Or(hub.Line, g.Line), "", "group %q has a hub without a key", g.Name.Value)
		}
		check(hub, fmt.Sprintf("hub %d", i+1))
	}
}

// isPlainName reports whether a name has only what people can tell apart in one line.
func isPlainName(name string) bool {
	return name != "" && len(name) <= maxMemberName && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, func(c rune) bool {
		return !unicode.IsPrint(c)
	})
}

// onePublicKey reads one key in PEM; no key, without an error, if pem is empty.
func onePublicKey(pem string) (crypto.PublicKey, error) {
	if pem == "" {
		return nil, nil
	}
	keys, err := bundle.ParsePublicKeys([]byte(pem))
	if err != nil {
		return nil, err
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("there are %d keys, and must be one", len(keys))
	}
	return keys[0], nil
}

// gate reads a gate. One that is not written is that of a policy that says nothing.
func (r *reader) gate(g *kinds.PromotionGate) Gate {
	read := Default()
	read.MinReported = r.percent("minReported", g.MinReported, read.MinReported)
	read.MinCompliant = r.percent("minCompliant", g.MinCompliant, read.MinCompliant)
	read.MaxFailed = r.count("maxFailed", g.MaxFailed, read.MaxFailed)
	read.MaxQuarantined = r.count("maxQuarantined", g.MaxQuarantined, read.MaxQuarantined)
	read.MaxFailures = r.count("maxFailures", g.MaxFailures, read.MaxFailures)
	read.Soak = r.length("soak", g.Soak, 0, 0)
	for _, in := range g.SoakIn {
		if r.ring {
			r.mistake(in.Line, "remove it", "soakIn has no meaning in a ringGate: a release soaks in the rings before")
			break
		}
		read.SoakIn = append(read.SoakIn, in.Value)
	}
	known := len(r.errs)
	read.MaxReportAge = r.length("maxReportAge", g.MaxReportAge, read.MaxReportAge, 0)
	if read.MaxReportAge <= ReportInterval && len(r.errs) == known {
		r.unreachable(g.MaxReportAge.Line, "give it several hours", "maxReportAge is %s, and agents without news report each hour: clusters count as offline in between", g.MaxReportAge.Value)
	}
	if g.RequiredClusters.Line != 0 {
		read.Required = r.selector(&g.RequiredClusters)
	}
	read.RequirePinned, read.AllowEmptyCohort, read.AllowFloating = g.RequirePinned.Value, g.AllowEmptyCohort.Value, g.AllowFloating.Value
	if read.RequirePinned && read.AllowFloating {
		r.mistake(g.AllowFloating.Line, "remove one of them", "allowFloating lets pass what requirePinned refuses")
	}
	read.Approvals = r.approvals("approvals", g.Approvals)
	read.Override = r.approvals("override", g.Override)
	read.Check = r.check(g.Check)
	read.Schedule = r.schedule(g.Schedule)
	read.Content = r.content(&g.Content, read.Approvals)
	return read
}

// content reads the rule about content of a gate with these approvals.
func (r *reader) content(c *kinds.PromotionContent, approvals Approvals) Content {
	read := Default().Content
	if r.ring && c.Line != 0 {
		r.mistake(c.Line, "remove it", "content has no meaning in a ringGate: content goes from ring to ring with the release")
		return read
	}
	if word := c.Any; word.Line != 0 {
		if word.Value != "any" {
			r.mistake(word.Line, "write any, or {} for the rule without settings", "content is %q", word.Value)
		}
		read.Held = false
		return read
	}
	read.Approvals = approvals
	if a := c.Approvals; a.Line != 0 {
		if read.Approvals = (Approvals{}); a.Required.Line == 0 || a.Required.Value != 0 {
			read.Approvals = r.approvals("content.approvals", kinds.PromotionApprovals(a))
		}
	}
	read.Exempt = Exempt{
		Workspaces:    r.names("workspaces", c.Exempt.Workspaces, false),
		Registrations: r.names("registrations", c.Exempt.Registrations, false),
		Workloads:     r.names("workloads", c.Exempt.Workloads, true),
	}
	read.BatchAfter = r.length("content.batchAfter", c.BatchAfter, DefaultBatchAfter, time.Minute)
	return read
}

// names reads a list of content.exempt. Those of workloads may have a registration before them.
func (r *reader) names(field string, all []kinds.Text, ofWorkloads bool) (names []string) {
	if len(all) > 0 && !r.fits(all[0].Line, field+" in content.exempt", len(all)) {
		return nil
	}
	for _, t := range all {
		registration, name, both := strings.Cut(t.Value, "/")
		if !both {
			registration, name = "", registration
		}
		if name == "" || both && (!ofWorkloads || registration == "" || strings.Contains(name, "/")) {
			r.mistake(t.Line, "write names, and workloads as REGISTRATION/NAME", "content.exempt.%s has %q", field, t.Value)
			continue
		}
		names = append(names, t.Value)
	}
	return names
}

// selector reads a selector. One with a mistake selects nothing.
func (r *reader) selector(s *kinds.LabelSelector) labels.Selector {
	kube := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		kube.MatchExpressions = append(kube.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	selector, err := metav1.LabelSelectorAsSelector(&kube)
	if err != nil {
		r.errs = append(r.errs, finding.Errorf(finding.CodeSelector, r.policy.Position(s.Line), "operators are In, NotIn, Exists and DoesNotExist",
			"PromotionPolicy %q: %v", r.policy.Metadata.Name, err))
		return labels.Nothing()
	}
	return selector
}

func (r *reader) percent(field string, n kinds.Number, without float64) float64 {
	switch {
	case n.Line == 0:
		return without
	case n.Value < 0 || n.Value > 100:
		r.unreachable(n.Line, "it is a share in percent, from 0 to 100", "%s is %v", field, n.Value)
	}
	return n.Value
}

func (r *reader) count(field string, n kinds.Whole, without int) int {
	switch {
	case n.Line == 0:
		return without
	case n.Value < 0:
		r.unreachable(n.Line, "0 or more", "%s is %d: nothing can have less than none", field, n.Value)
	}
	return int(min(n.Value, 1<<31-1))
}

func (r *reader) length(field string, t kinds.Text, without, least time.Duration) time.Duration {
	if t.Value == "" {
		return without
	}
	d, err := duration.Parse(t.Value)
	switch {
	case err != nil:
		r.mistake(t.Line, "", "%s: %v", field, err)
	case d < least:
		r.mistake(t.Line, "", "%s: %s is too short, it must be %s at least", field, t.Value, lengthText(least))
	}
	return d
}

func (r *reader) approvals(field string, a kinds.PromotionApprovals) Approvals {
	if a.Line == 0 {
		return Approvals{}
	}
	group, known := r.groups[a.Group.Value]
	switch {
	case a.Group.Value == "":
		r.mistake(a.Line, "name a group of spec.groups", "%s has no group", field)
	case !known:
		r.mistake(a.Group.Line, finding.DidYouMean(a.Group.Value, slices.Sorted(maps.Keys(r.groups))), "%s: there is no group %q", field, a.Group.Value)
	case a.Required.Value < 1:
		r.mistake(cmp.Or(a.Required.Line, a.Line), "give the number of people", "%s.required must be 1 at least", field)
	case a.Required.Value > int64(len(group.Members)):
		r.unreachable(a.Required.Line, "", "%s asks for %d people, and group %q has %d", field, a.Required.Value, a.Group.Value, len(group.Members))
	}
	group.Required = int(min(a.Required.Value, maxItems))
	return group
}

func (r *reader) check(c kinds.PromotionCheck) *Check {
	if c.Line == 0 {
		return nil
	}
	switch command, address := c.Command.Value != "", c.URL.Value != ""; {
	case command && address:
		r.mistake(c.URL.Line, "remove one of them", "the check has a command and a URL")
	case !command && !address:
		r.mistake(c.Line, "", "the check has neither a command nor a URL")
	case address:
		u, err := url.Parse(c.URL.Value)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			r.mistake(c.URL.Line, "", "the URL of the check must begin with https:// or http://") // it may hold a secret
		} else if u.User != nil {
			r.mistake(c.URL.Line, "", "the URL of the check must not hold a password: everybody who can read the platform can read it")
		}
	}
	name := cmp.Or(c.Name.Value, "check")
	if !isPlainName(name) {
		r.mistake(c.Name.Line, "", "a check cannot be called %q", name)
	}
	timeout := r.length("timeout", c.Timeout, time.Minute, time.Second)
	if timeout > maxCheckTimeout {
		r.mistake(c.Timeout.Line, "", "timeout: %s is too long, it must be %s at most", c.Timeout.Value, lengthText(maxCheckTimeout))
	}
	return &Check{Name: name, Command: c.Command.Value, URL: c.URL.Value, Timeout: timeout}
}
