package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// auditPage is the data of assets/audit.html.
type auditPage struct {
	*frame
	Entries           []store.AuditEntry
	By, What, Object  string // conditions: a part of the text, whatever the case
	Older             string // a link
	Oldest, Condition bool
}

// shownAudit bounds the entries of a page, and readAudit the times that the log is read for it.
const (
	shownAudit = 200
	readAudit  = 10
)

func (s *site) showAudit(r *http.Request, f *frame, _ Answers) (any, int, error) {
	f.only(fleet.Query{})
	f.template, f.Title, f.JSON, f.Command = "audit.html", "Audit", "/v1/audit", "wherry hub audit"
	q := r.URL.Query()
	page := &auditPage{frame: f, By: q.Get("by"), What: q.Get("what"), Object: q.Get("object")}
	page.Condition = page.By+page.What+page.Object != ""
	before, err := positionIn(q.Get("before"))
	if err != nil {
		return nil, 0, err
	}
	for range readAudit {
		entries, err := s.Actions.AuditBefore(r.Context(), before)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range entries {
			if len(page.Entries) == shownAudit {
				break
			}
			if before = e.Position; has(e.Actor, page.By) && has(e.Action, page.What) && has(e.Object, page.Object) {
				page.Entries = append(page.Entries, e)
			}
		}
		if page.Oldest = len(entries) == 0 || before == 1; page.Oldest || len(page.Entries) == shownAudit {
			break
		}
	}
	if !page.Oldest {
		q.Set("before", strconv.FormatInt(before, 10))
		page.Older = linkTo(auditPath, q)
	}
	return page, http.StatusOK, nil
}

// positionIn reads a position of the audit log; 0 for an empty text.
func positionIn(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: parameter before: %q is not the position of an entry", store.ErrInvalid, text)
	}
	return n, nil
}

// has reports whether text has a part, whatever the case.
func has(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
