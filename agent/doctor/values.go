package doctor

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

// checkSiteValues reads the values that the site itself sets, and looks for values that assignments use or the cluster type
// requires, and that are missing. It says nothing where nobody has anything to do with site values.
func checkSiteValues(ctx context.Context, e *examination) diagnosis.Finding {
	const remedy = `mend it: "wherry-agent values" shows all of them, and "wherry-agent values check FILE" judges a file before it is put in place`
	var own sitevalues.Own
	gone := false
	if e.SiteValues != nil {
		var err error
		var m *sitevalues.Mistake
		own, err = e.SiteValues.Read(ctx)
		switch {
		case errors.As(err, &m):
			return diagnosis.Failf(remedy, "%s: %v", e.SiteValues, err)
		case errors.Is(err, fs.ErrNotExist): // the status below says whether values were lost
			gone = true
		case err != nil:
			return diagnosis.Failf("make it readable to the agent, or name another place with --site-values", "%v", err)
		}
	}
	status, err := agent.NewClient(e.StateDir).SiteValues(ctx)
	if err != nil {
		st, err := agent.ReadState(e.StateDir)
		if err != nil {
			return diagnosis.Finding{} // the check of the state says so
		}
		status, err = st.SiteValues()
		if _ = st.Close(); err != nil { // it was only read
			return diagnosis.Finding{}
		}
	}
	var missing []string
	used := 0
	for _, v := range status.Values {
		if len(v.UsedBy) > 0 {
			used++
		}
		if v.Problem != "" && (v.Required || len(v.UsedBy) > 0 || v.Source == "" && own.Values[v.Key] != nil) {
			missing = append(missing, v.Problem)
		}
	}
	switch {
	case len(missing) > 0:
		return diagnosis.Warnf(remedy, "%s", strings.Join(missing, "; "))
	case gone && status.Broken != "":
		return diagnosis.Warnf("bring it back, or leave an empty one in its place if the site is to set nothing", "%s; the last valid values stay", status.Broken)
	case used == 0 && len(own.Values) == 0:
		return diagnosis.Finding{}
	}
	return diagnosis.Okf("%d keys are used, and all have a value; the site itself sets %d", used, len(own.Values))
}
