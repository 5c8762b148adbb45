package agentcmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// trustShown is what trust show prints. Its JSON is an interface that is only ever extended.
type trustShown struct {
	// Pinned are the ids of pinned keys. They count where there is no document.
	Pinned []string `json:"pinned,omitempty"`
	// The rest is nil in an agent with pinned keys.
	Platform string         `json:"platform,omitempty"`
	InForce  *trust.Status  `json:"inForce,omitempty"`
	Root     *bundle.Role   `json:"root,omitempty"`
	Release  *bundle.Role   `json:"release,omitempty"`
	Versions []trustVersion `json:"versions,omitempty"`
}

type trustVersion struct {
	Version   int64     `json:"version"`
	Epoch     int64     `json:"epoch"`
	IssuedAt  time.Time `json:"issuedAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

func shownTrust(t trust.Known, now time.Time) trustShown {
	s := trustShown{Pinned: t.Pinned, InForce: t.Status(now)}
	if s.InForce == nil {
		return s
	}
	d := t.Chain.Current()
	s.Platform, s.Root, s.Release = d.Platform, &d.Root, &d.Release
	for _, l := range t.Chain {
		s.Versions = append(s.Versions, trustVersion{l.Document.Version, l.Document.Epoch, l.Document.IssuedAt, l.Document.ExpiresAt})
	}
	return s
}

func writeTrust(w io.Writer, s trustShown) {
	row := func(name, format string, values ...any) {
		cli.Row(w, name, fmt.Sprintf(format, values...))
	}
	f := s.InForce
	if f == nil {
		row("trust", "pinned keys; no trust document is installed")
		for _, id := range s.Pinned {
			row("key", "%s", id)
		}
		return
	}
	row("platform", "%s", s.Platform)
	row("version", "%d", f.Version)
	row("epoch", "%d", f.Epoch)
	row("issued", "%s", f.IssuedAt.Format(time.RFC3339))
	row("expires", "%s (%s left)", f.ExpiresAt.Format(time.RFC3339), show.Days(f.DaysLeft))
	if f.Soon() {
		row("warning", "%s", validity(f))
	}
	asked := "never"
	if f.AskedAt != nil {
		asked = f.AskedAt.Format(time.RFC3339)
	}
	row("asked", "%s%s", asked, spaced(reasonOf(f.Reason, f.Message)))
	row("root", "%d of %s", s.Root.Threshold, show.Count(len(s.Root.Keys), "key"))
	row("release", "%d of %s", s.Release.Threshold, show.Count(len(s.Release.Keys), "key"))
	if len(s.Pinned) > 0 {
		row("passed over", "%s, which no longer counts", show.Count(len(s.Pinned), "pinned key"))
	}
	fmt.Fprintf(w, "\nROLE\tKEY\tNAME\n")
	writeRole(w, "root", *s.Root)
	writeRole(w, "release", *s.Release)
}

func writeRole(w io.Writer, name string, r bundle.Role) {
	for _, k := range r.Keys {
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, k.ID, quoted(k.Name))
	}
}

// writeChange writes what an installation has changed.
func writeChange(w io.Writer, c trust.Change) {
	d := c.After
	printf := func(format string, values ...any) { fmt.Fprintf(w, format+"\n", values...) }
	var before bundle.TrustDocument
	switch {
	case d == nil:
		return
	case c.Before == nil:
		printf("trust document version %d of platform %s is installed: pinned keys no longer count", d.Version, d.Platform)
	case c.Before.Version == d.Version:
		printf("trust document version %d of platform %s is installed already: nothing has changed", d.Version, d.Platform)
		return
	default:
		before = *c.Before
		printf("trust document of platform %s: version %d follows version %d", d.Platform, d.Version, before.Version)
	}
	if d.Epoch != before.Epoch {
		printf("epoch %d: releases of lower epochs are refused from now on", d.Epoch)
	}
	writeRoleChange(printf, "root", before.Root, d.Root)
	writeRoleChange(printf, "release", before.Release, d.Release)
	status := trust.Known{Chain: bundle.TrustChain{{Document: *d}}}.Status(time.Now())
	printf("%s", validity(status))
}

// quoted shows a name, which may hold anything.
func quoted(name string) string {
	if name == "" {
		return ""
	}
	return strconv.Quote(name)
}

func writeRoleChange(printf func(string, ...any), name string, before, after bundle.Role) {
	if before.Threshold != after.Threshold || len(before.Keys) != len(after.Keys) {
		printf("%s: %d of %s", name, after.Threshold, show.Count(len(after.Keys), "key"))
	}
	byID := func(r bundle.Role) map[string]bundle.TrustKey {
		m := map[string]bundle.TrustKey{}
		for _, k := range r.Keys {
			m[k.ID] = k
		}
		return m
	}
	was, is := byID(before), byID(after)
	all := map[string]bundle.TrustKey{}
	maps.Copy(all, was)
	maps.Copy(all, is)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		sign := "+"
		if _, gone := was[id]; gone {
			sign = "-"
		}
		if _, both := is[id]; both && sign == "-" {
			continue
		}
		printf("  %s %s key %s%s", sign, name, id, spaced(quoted(all[id].Name)))
	}
}
