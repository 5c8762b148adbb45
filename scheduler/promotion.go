package scheduler

import (
	"cmp"
	"crypto"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// maxPromotionItems bounds each list of a PromotionPolicy.
const maxPromotionItems = 1000

// maxCheckTimeout bounds the time that an external check may take.
const maxCheckTimeout = time.Hour

// Promotion returns what the PromotionPolicy of the model's environment says, parsed. Without a policy, and for what the
// policy leaves out, the gates are [promotion.Default]; the rings are those of [Model.Rings].
//
// The error names two policies for the environment.
func (m *Model) Promotion() (promotion.Policy, error) {
	p := promotion.Policy{Environment: m.environment, Gate: promotion.Default(), RingGate: promotion.Default()}
	var err error
	if p.Rings, err = m.Rings(); err != nil {
		return promotion.Policy{}, err
	}
	o, err := m.promotionPolicy()
	if err != nil || o == nil {
		return p, err
	}
	p.Name = o.Metadata.Name
	if slices.ContainsFunc(o.Spec.Chain, func(e kinds.Text) bool { return e.Value == m.environment }) {
		for _, e := range o.Spec.Chain {
			p.Chain = append(p.Chain, e.Value)
		}
	}
	r := newPolicyReader(o) // without mistakes, which are errors of Load
	for _, g := range o.Spec.Groups {
		read := r.groups[g.Name.Value]
		p.Groups = append(p.Groups, promotion.Group{Name: read.Group, Members: read.Members, Hubs: read.Hubs})
	}
	written := o.Of(m.environment)
	p.ChangeRequest = written.ChangeRequest.Value
	p.Gate = r.gate(o.GateOf(m.environment))
	p.RingGate = ringGate(p.Gate)
	if written.RingGate.Line != 0 {
		p.RingGate = r.gate(&written.RingGate)
	}
	return p, finding.Join(r.errs)
}

// ringGate returns the gate between the rings of an environment without one of its own.
func ringGate(g promotion.Gate) promotion.Gate {
	g.SoakIn, g.RequirePinned, g.Approvals, g.Check = nil, false, promotion.Approvals{}, nil
	return g
}

// promotionPolicy returns the PromotionPolicy that names the model's environment, nil if none does.
func (m *Model) promotionPolicy() (*kinds.PromotionPolicy, error) {
	var found *kinds.PromotionPolicy
	for _, p := range sortedValues(m.objects.Promotions) {
		at, named := p.Names(m.environment)
		switch {
		case !named:
		case found != nil:
			first, _ := found.Names(m.environment)
			return nil, finding.Errorf(finding.CodePromotion, at, "remove it from one of them", "two PromotionPolicies name environment %q, %q and %q: first at %s", m.environment, found.Metadata.Name, p.Metadata.Name, first)
		default:
			found = p
		}
	}
	return found, nil
}

// checkPromotion returns the mistakes of a PromotionPolicy.
func checkPromotion(p *kinds.PromotionPolicy) []error {
	r := newPolicyReader(p)
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

// policyReader reads the values of a PromotionPolicy, and collects the mistakes in them.
type policyReader struct {
	policy *kinds.PromotionPolicy
	groups map[string]promotion.Approvals // without Required
	ring   bool                           // the gate that is read is one between rings
	errs   []error
}

func newPolicyReader(p *kinds.PromotionPolicy) *policyReader {
	r := &policyReader{policy: p, groups: map[string]promotion.Approvals{}}
	for _, g := range p.Spec.Groups {
		read := promotion.Approvals{Group: g.Name.Value}
		for _, m := range g.Members {
			key, _ := onePublicKey(m.PublicKey.Value)
			read.Members = append(read.Members, promotion.Member{Name: m.Name.Value, Key: key})
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

func (r *policyReader) mistake(at kinds.Line, hint, format string, args ...any) {
	r.errs = append(r.errs, finding.Errorf(finding.CodePromotion, r.policy.Position(at), hint, format, args...))
}

// unreachable reports a rule that can never hold.
func (r *policyReader) unreachable(at kinds.Line, hint, format string, args ...any) {
	r.errs = append(r.errs, finding.Errorf(finding.CodeUnreachable, r.policy.Position(at), hint, format, args...))
}

// fits reports whether a list is short enough to be read.
func (r *policyReader) fits(at kinds.Line, what string, n int) bool {
	if n > maxPromotionItems {
		r.mistake(at, "", "there are %d %s, at most %d are read", n, what, maxPromotionItems)
	}
	return n <= maxPromotionItems
}

func (r *policyReader) checkChain() {
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

func (r *policyReader) checkEnvironment(e *kinds.PromotedEnvironment, seen map[string]finding.Position) {
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
	r.errs = append(r.errs, checkRings(at, e.Rings)...)
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
func (r *policyReader) checkSoakIn(environment string, g *kinds.PromotionGate) {
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

func (r *policyReader) chainIndex(environment string) int {
	return slices.IndexFunc(r.policy.Spec.Chain, func(e kinds.Text) bool { return e.Value == environment })
}

// maxMemberName bounds the name of a member, in bytes.
const maxMemberName = 100

func (r *policyReader) checkGroups() {
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

func (r *policyReader) checkMembers(g *kinds.ApproverGroup) {
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
func (r *policyReader) gate(g *kinds.PromotionGate) promotion.Gate {
	read := promotion.Default()
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
	read.MaxReportAge = r.length("maxReportAge", g.MaxReportAge, read.MaxReportAge, time.Minute)
	if g.RequiredClusters.Line != 0 {
		requirements, err := requirements(&g.RequiredClusters, &r.policy.Common)
		if err != nil {
			r.errs = append(r.errs, err)
		}
		read.Required = labels.NewSelector().Add(requirements...)
	}
	read.RequirePinned, read.AllowEmptyCohort = g.RequirePinned.Value, g.AllowEmptyCohort.Value
	read.Approvals = r.approvals("approvals", g.Approvals)
	read.Override = r.approvals("override", g.Override)
	read.Check = r.check(g.Check)
	read.Schedule = r.schedule(g.Schedule)
	return read
}

func (r *policyReader) percent(field string, n kinds.Number, without float64) float64 {
	switch {
	case n.Line == 0:
		return without
	case n.Value < 0 || n.Value > 100:
		r.unreachable(n.Line, "it is a share in percent, from 0 to 100", "%s is %v", field, n.Value)
	}
	return n.Value
}

func (r *policyReader) count(field string, n kinds.Whole, without int) int {
	switch {
	case n.Line == 0:
		return without
	case n.Value < 0:
		r.unreachable(n.Line, "0 or more", "%s is %d: nothing can have less than none", field, n.Value)
	}
	return int(min(n.Value, 1<<31-1))
}

func (r *policyReader) length(field string, t kinds.Text, without, least time.Duration) time.Duration {
	if t.Value == "" {
		return without
	}
	d, err := duration.Parse(t.Value)
	switch {
	case err != nil:
		r.mistake(t.Line, "", "%s: %v", field, err)
	case d < least:
		r.mistake(t.Line, "", "%s: %s is too short, it must be %s at least", field, t.Value, least)
	}
	return d
}

func (r *policyReader) approvals(field string, a kinds.PromotionApprovals) promotion.Approvals {
	if a.Line == 0 {
		return promotion.Approvals{}
	}
	group, known := r.groups[a.Group.Value]
	switch {
	case a.Group.Value == "":
		r.mistake(a.Line, "name a group of spec.groups", "%s has no group", field)
	case !known:
		r.mistake(a.Group.Line, finding.DidYouMean(a.Group.Value, sortedKeys(r.groups)), "%s: there is no group %q", field, a.Group.Value)
	case a.Required.Value < 1:
		r.mistake(cmp.Or(a.Required.Line, a.Line), "give the number of people", "%s.required must be 1 at least", field)
	case a.Required.Value > int64(len(group.Members)):
		r.unreachable(a.Required.Line, "", "%s asks for %d people, and group %q has %d", field, a.Required.Value, a.Group.Value, len(group.Members))
	}
	group.Required = int(min(a.Required.Value, maxPromotionItems))
	return group
}

func (r *policyReader) check(c kinds.PromotionCheck) *promotion.Check {
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
		r.mistake(c.Timeout.Line, "", "timeout: %s is too long, it must be %s at most", c.Timeout.Value, maxCheckTimeout)
	}
	return &promotion.Check{Name: name, Command: c.Command.Value, URL: c.URL.Value, Timeout: timeout}
}

func (r *policyReader) schedule(s kinds.PromotionSchedule) promotion.Schedule {
	read, zone := promotion.Schedule{}, time.UTC
	if name := s.TimeZone.Value; name != "" {
		var err error
		if zone, err = time.LoadLocation(name); err != nil || name == "Local" {
			r.mistake(s.TimeZone.Line, "write a name such as Europe/Berlin", "there is no time zone %q", name)
			zone = time.UTC
		}
	}
	if !r.fits(s.Line, "periods", len(s.Open)) || !r.fits(s.Line, "freezes", len(s.Freeze)) {
		return read
	}
	for _, open := range s.Open {
		p, err := parsePeriod(open.Value)
		if err != nil {
			r.mistake(open.Line, `write it as "Mon-Thu 08:00-16:00"`, "open: %v", err)
			continue
		}
		if p.Location = zone; p.Opens == p.Closes {
			r.unreachable(open.Line, "", "open: %q has no minute", open.Value)
		}
		read.Open = append(read.Open, p)
	}
	for i := range s.Freeze {
		if f, ok := r.freeze(&s.Freeze[i], zone); ok {
			read.Freezes = append(read.Freezes, f)
		}
	}
	return read
}

func (r *policyReader) freeze(f *kinds.PromotionFreeze, zone *time.Location) (promotion.Freeze, bool) {
	before := len(r.errs)
	read := promotion.Freeze{From: r.moment(f.From, zone), Until: r.moment(f.Until, zone), Reason: f.Reason.Value}
	switch {
	case f.From.Value == "":
		r.mistake(f.Line, "give from", "a freeze has no beginning")
	case f.Until.Value == "":
		r.unreachable(f.Line, "give until", "a freeze has no end, so that the gate never opens again")
	case len(r.errs) == before && !read.Until.After(read.From):
		r.mistake(f.Until.Line, "until is the moment at which the freeze is over", "a freeze ends at %s, which is not after %s", f.Until.Value, f.From.Value)
	}
	return read, len(r.errs) == before
}

// moment reads a date or a time. The zero time is that of an empty text or of a mistake.
func (r *policyReader) moment(t kinds.Text, zone *time.Location) time.Time {
	if t.Value == "" {
		return time.Time{}
	}
	if date, err := time.ParseInLocation(time.DateOnly, t.Value, zone); err == nil {
		return date
	}
	at, err := time.Parse(time.RFC3339, t.Value)
	if err != nil {
		r.mistake(t.Line, "write a date, such as 2026-12-20, or a time, such as 2026-12-20T18:00:00+01:00", "freeze: %q is not a date", t.Value)
	}
	return at
}

// weekdays are the days as people write them, by [time.Weekday].
var weekdays = [...]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// parsePeriod reads days, times or both: "Mon-Thu 08:00-16:00", "Sat,Sun", "22:00-04:00".
func parsePeriod(s string) (promotion.Period, error) {
	p := promotion.Period{Closes: 24 * time.Hour}
	days, hours, both := strings.Cut(s, " ")
	if !both && strings.Contains(s, ":") {
		days, hours = "", s
	}
	if days != "" || hours == "" {
		var err error
		if p.Days, err = parseDays(days); err != nil {
			return p, fmt.Errorf("%q: %w", s, err)
		}
	}
	if hours == "" && !both {
		return p, nil
	}
	opens, closes, ok := strings.Cut(hours, "-")
	from, ok1 := clockTime(opens)
	to, ok2 := clockTime(closes)
	if !ok || !ok1 || !ok2 {
		return p, fmt.Errorf("%q: %q is not a time from 00:00 to 24:00", s, hours)
	}
	p.Opens, p.Closes = from, to
	return p, nil
}

// parseDays reads days and ranges of days, which may go over the end of the week. Each day is returned once, Sunday first.
func parseDays(s string) ([]time.Weekday, error) {
	var open [7]bool
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, to := slices.Index(weekdays[:], first), slices.Index(weekdays[:], last)
		if from < 0 || to < 0 {
			return nil, fmt.Errorf("%q is not a day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun", part)
		}
		for day := from; ; day = (day + 1) % 7 {
			if open[day] = true; day == to {
				break
			}
		}
	}
	var days []time.Weekday
	for day, isOpen := range open {
		if isOpen {
			days = append(days, time.Weekday(day))
		}
	}
	return days, nil
}

// clockTime reads a time of the day as HH:MM, 24:00 included.
func clockTime(s string) (time.Duration, bool) {
	if len(s) != len("08:00") || s[2] != ':' {
		return 0, false
	}
	hour, err1 := strconv.ParseUint(s[:2], 10, 8)
	minute, err2 := strconv.ParseUint(s[3:], 10, 8)
	d := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	return d, err1 == nil && err2 == nil && minute < 60 && d <= 24*time.Hour
}
