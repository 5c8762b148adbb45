package web

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// auditPage is the data of assets/audit.html.
type auditPage struct {
	*frame
	store.AuditList
	Asked store.AuditQuery
	// Since and Until are as given. Older is a link. Condition is true if the query leaves out entries.
	Since, Until, Older string
	Condition           bool
}

// shownAudit bounds the entries of a page.
const shownAudit = 200

func (s *site) showAudit(r *http.Request, f *frame, _ Answers) (any, int, error) {
	f.only(fleet.Query{})
	values := r.URL.Query()
	q, err := store.ParseAuditQuery(values, f.Now)
	if err != nil {
		return nil, 0, err
	}
	q.Limit = cmp.Or(q.Limit, shownAudit)
	list, err := s.Actions.AuditLog(r.Context(), q)
	if err != nil {
		return nil, 0, err
	}
	page := &auditPage{frame: f, AuditList: list, Asked: q, Since: values.Get("since"), Until: values.Get("until")}
	f.template, f.Title, f.JSON, f.Command = "audit.html", "Audit", linkTo("/v1/audit", q.Values()), "wherry hub audit"
	for _, name := range store.AuditParameters() {
		if v := values.Get(name); v != "" && name != "before" && name != "limit" {
			page.Condition = true
			f.Command += " --" + name + " " + quoted(strings.ReplaceAll(v, "\n", " "))
		}
	}
	if list.Next > 0 {
		values.Set("before", strconv.FormatInt(list.Next, 10))
		page.Older = linkTo(auditPath, values)
	}
	return page, http.StatusOK, nil
}
