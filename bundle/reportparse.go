package bundle

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/opencontainers/go-digest"
)

// unmarshalReport is json.Unmarshal. Reports as agents write them, without spaces and escapes, are read in a fifth of the time,
// which is most of what a hub does with one.
func unmarshalReport(body []byte, r *Report) error {
	p := reportParser{rest: body}
	if p.report(r); !p.failed && len(p.rest) == 0 {
		return nil
	}
	*r = Report{}
	return json.Unmarshal(body, r)
}

// reportParser reads a report in the one form that it knows, and fails for all others, valid or not.
type reportParser struct {
	rest   []byte
	failed bool
	before Item // the item before: many texts are the same
}

// take reports whether the text comes next, and passes over it.
func (p *reportParser) take(text string) bool {
	if len(p.rest) >= len(text) && string(p.rest[:len(text)]) == text {
		p.rest = p.rest[len(text):]
		return true
	}
	return false
}

func (p *reportParser) want(text string) {
	p.failed = p.failed || !p.take(text)
}

// quoted returns the next string without its quotation marks. It fails for those that a decoder would change.
func (p *reportParser) quoted() []byte {
	p.want(`"`)
	end := bytes.IndexByte(p.rest, '"')
	if p.failed || end < 0 {
		p.failed = true
		return nil
	}
	text := p.rest[:end]
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' {
			p.failed = true
			return nil
		}
	}
	p.rest = p.rest[end+1:]
	return text
}

func (p *reportParser) text() string { return string(p.quoted()) }

// same is text for a value that often is that of the item before.
func (p *reportParser) same(before string) string {
	if text := p.quoted(); string(text) != before {
		return string(text)
	}
	return before
}

func (p *reportParser) number() (n int64) {
	negative := p.take("-")
	digits := 0
	for digits < len(p.rest) && p.rest[digits] >= '0' && p.rest[digits] <= '9' {
		n = n*10 + int64(p.rest[digits]-'0')
		digits++
	}
	// A leading zero is not valid, and more digits may be too many.
	p.failed = p.failed || digits == 0 || digits > 18 || digits > 1 && p.rest[0] == '0'
	if p.rest = p.rest[digits:]; negative {
		return -n
	}
	return n
}

func (p *reportParser) truth() bool {
	if p.take("true") {
		return true
	}
	p.want("false")
	return false
}

func (p *reportParser) time() (t time.Time) {
	from := p.rest
	text := p.quoted()
	if !p.failed {
		p.failed = t.UnmarshalJSON(from[:len(text)+2]) != nil
	}
	return t
}

// object calls field with the names of an object's fields, each of which comes once. Field returns a bit of its own for each, and
// zero for one that it does not know.
func (p *reportParser) object(field func(name []byte) uint32) {
	p.want("{")
	if p.failed || p.take("}") {
		return
	}
	var seen uint32
	for {
		name := p.quoted()
		p.want(":")
		if p.failed {
			return
		}
		bit := field(name)
		if p.failed = p.failed || bit == 0 || seen&bit != 0; p.failed {
			return
		}
		if seen |= bit; p.take("}") {
			return
		}
		p.want(",")
	}
}

// array calls element at each element of an array.
func (p *reportParser) array(element func()) {
	p.want("[")
	if p.failed || p.take("]") {
		return
	}
	for !p.failed {
		if element(); p.take("]") {
			return
		}
		p.want(",")
	}
}

func (p *reportParser) report(r *Report) {
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "schema":
			r.Schema = int(p.number())
			return 1 << 0
		case "cluster":
			p.cluster(&r.Cluster)
			return 1 << 1
		case "agent":
			p.agent(&r.Agent)
			return 1 << 2
		case "kind":
			r.Kind = ReportKind(p.text())
			return 1 << 3
		case "occurredAt":
			r.OccurredAt = p.time()
			return 1 << 4
		case "state":
			r.State = State(p.text())
			return 1 << 5
		case "reason":
			r.Reason = p.text()
			return 1 << 6
		case "message":
			r.Message = p.text()
			return 1 << 7
		case "desired":
			r.Desired = p.release()
			return 1 << 8
		case "observed":
			r.Observed = p.release()
			return 1 << 9
		case "items":
			r.Items = []Item{}
			p.array(func() {
				r.Items = append(r.Items, Item{})
				p.item(&r.Items[len(r.Items)-1])
			})
			return 1 << 10
		case "siteValues":
			r.SiteValues = []SiteValue{}
			p.array(func() {
				r.SiteValues = append(r.SiteValues, SiteValue{})
				p.siteValue(&r.SiteValues[len(r.SiteValues)-1])
			})
			return 1 << 11
		case "olderMedium":
			r.OlderMedium = p.olderMedium()
			return 1 << 12
		}
		return 0
	})
}

func (p *reportParser) olderMedium() *OlderMedium {
	o := new(OlderMedium)
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "digest":
			o.Digest = digest.Digest(p.text())
			return 1 << 0
		case "at":
			o.At = p.time()
			return 1 << 1
		}
		return 0
	})
	return o
}

func (p *reportParser) cluster(c *ReportCluster) {
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "uid":
			c.UID = p.text()
			return 1 << 0
		case "name":
			c.Name = p.text()
			return 1 << 1
		case "platform":
			c.Platform = p.text()
			return 1 << 2
		case "type":
			c.Type = p.text()
			return 1 << 3
		case "environment":
			c.Environment = p.text()
			return 1 << 4
		case "ring":
			c.Ring = p.text()
			return 1 << 5
		case "labels":
			p.labels(c)
			return 1 << 6
		}
		return 0
	})
}

func (p *reportParser) labels(c *ReportCluster) {
	c.Labels = map[string]string{}
	p.want("{")
	if p.failed || p.take("}") {
		return
	}
	for !p.failed {
		key := p.text()
		p.want(":")
		c.Labels[key] = p.text()
		if p.take("}") {
			return
		}
		p.want(",")
	}
}

func (p *reportParser) agent(a *ReportAgent) {
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "version":
			a.Version = p.text()
			return 1 << 0
		case "incarnation":
			a.Incarnation = p.number()
			return 1 << 1
		case "seq":
			a.Seq = p.number()
			return 1 << 2
		case "oldest":
			a.Oldest = p.text()
			return 1 << 3
		case "instance":
			a.Instance = p.text()
			return 1 << 4
		}
		return 0
	})
}

func (p *reportParser) release() *ReportRelease {
	r := &ReportRelease{}
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "digest":
			r.Digest = digest.Digest(p.text())
			return 1 << 0
		case "epoch":
			r.Epoch = p.number()
			return 1 << 1
		case "sequence":
			r.Sequence = p.number()
			return 1 << 2
		case "number":
			r.Number = p.number()
			return 1 << 3
		case "baseCommit":
			r.BaseCommit = p.text()
			return 1 << 4
		case "environmentCommit":
			r.EnvironmentCommit = p.text()
			return 1 << 5
		case "issuedAt":
			r.IssuedAt = p.time()
			return 1 << 6
		case "expired":
			r.Expired = p.truth()
			return 1 << 7
		case "allowExpired":
			r.AllowExpired = p.text()
			return 1 << 8
		}
		return 0
	})
	return r
}

func (p *reportParser) siteValue(v *SiteValue) {
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "key":
			v.Key = p.text()
			return 1 << 0
		case "source":
			v.Source = p.text()
			return 1 << 1
		case "digest":
			v.Digest = digest.Digest(p.text())
			return 1 << 2
		}
		return 0
	})
}

func (p *reportParser) item(it *Item) {
	p.object(func(name []byte) uint32 {
		switch string(name) {
		case "assignment":
			it.Assignment = p.text()
			return 1 << 0
		case "workspace":
			it.Workspace = p.same(p.before.Workspace)
			return 1 << 1
		case "application":
			it.Application = p.same(p.before.Application)
			return 1 << 2
		case "workload":
			it.Workload = p.same(p.before.Workload)
			return 1 << 3
		case "target":
			it.Target = p.same(p.before.Target)
			return 1 << 4
		case "adapter":
			it.Adapter = p.same(p.before.Adapter)
			return 1 << 5
		case "state":
			it.State = State(p.same(string(p.before.State)))
			return 1 << 6
		case "reason":
			it.Reason = p.same(p.before.Reason)
			return 1 << 7
		case "message":
			it.Message = p.text()
			return 1 << 8
		case "since":
			it.Since = p.time()
			return 1 << 9
		case "version":
			it.Version = p.same(p.before.Version)
			return 1 << 10
		case "configDigest":
			it.ConfigDigest = digest.Digest(p.text())
			return 1 << 11
		case "content":
			it.Content = digest.Digest(p.text())
			return 1 << 12
		case "siteValues":
			it.SiteValues = digest.Digest(p.text())
			return 1 << 13
		case "revision":
			it.Revision = p.text()
			return 1 << 14
		case "floating":
			it.Floating = p.truth()
			return 1 << 15
		case "failures":
			it.Failures = p.number()
			return 1 << 16
		}
		return 0
	})
	p.before = *it
}
