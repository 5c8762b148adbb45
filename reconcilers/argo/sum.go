package argo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// severity orders states: an assignment stands as the worst of its objects.
var severity = [...]bundle.State{bundle.Failed, bundle.Drifted, bundle.Pending, bundle.Progressing, bundle.Suspended}

// sum makes a result of the verdicts. Its reason is that of the first object in the worst state. Without an
// Application the content is what runs.
func sum(verdicts []verdict, content string) reconcilers.Result {
	res := reconcilers.Result{State: bundle.Compliant}
	for _, state := range severity {
		i := slices.IndexFunc(verdicts, func(v verdict) bool { return v.state == state })
		if i < 0 {
			continue
		}
		var messages []string
		for _, v := range verdicts {
			if v.state == state {
				messages = append(messages, v.message)
			}
		}
		res.State, res.Reason, res.Message = state, verdicts[i].reason, reconcilers.Clip(strings.Join(messages, "; "))
		break
	}
	var revisions []string
	applications := false
	for _, v := range verdicts {
		applications = applications || v.application
		res.Floating = res.Floating || v.floating
		if v.revision != "" && !slices.Contains(revisions, v.revision) {
			revisions = append(revisions, v.revision)
		}
	}
	slices.Sort(revisions)
	if res.Revision = list(revisions); !applications {
		res.Revision = content
	}
	return res
}

// list joins the first few of items.
func list(items []string) string {
	const most = 5
	if len(items) > most {
		items = append(slices.Clone(items[:most]), fmt.Sprintf("and %d more", len(items)-most))
	}
	return strings.Join(items, ", ")
}
