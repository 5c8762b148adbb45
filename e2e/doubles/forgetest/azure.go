package forgetest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const refs = "refs/heads/"

// azure is what of the Git part of Azure DevOps' REST API, version 7.1, is needed, for the organization org.
func (s *Server) azure(mux *http.ServeMux) {
	const repository = " /{project}/_apis/git/repositories/{repositoryId}"
	const own = "api-version!"
	s.serve(mux, "/org", []route{
		{pattern: "GET /_apis/connectionData", query: own, do: func(*call) answer {
			return answer{http.StatusOK, map[string]any{"authenticatedUser": map[string]any{"id": fmt.Sprint("account-", Robot)}}}
		}},
		{pattern: "GET" + repository + "/pullrequests", query: own + " searchCriteria.sourceRefName searchCriteria.targetRefName searchCriteria.status $top $skip", do: func(c *call) answer {
			q := c.URL.Query()
			found := s.list(func(change *Change) bool {
				ref, status := q.Get("searchCriteria.sourceRefName"), q.Get("searchCriteria.status")
				return (ref == "" || ref == refs+change.Source) && (status == "all" || (change.State == "open") == (status == "" || status == "active"))
			})
			all := []any{}
			for _, change := range found {
				pull := s.azurePull(change)
				pull["description"] = string([]rune(change.Body)[:min(400, utf8.RuneCountInString(change.Body))]) // as documented
				all = append(all, pull)
			}
			top, _ := strconv.Atoi(q.Get("$top"))
			skip, _ := strconv.Atoi(q.Get("$skip"))
			all = all[min(skip, len(all)):]
			return answer{http.StatusOK, values(all[:min(top, len(all))])}
		}},
		{pattern: "POST" + repository + "/pullrequests", writes: true, query: own, body: "sourceRefName! targetRefName! title! description labels reviewers", do: func(c *call) answer {
			source, cutSource := strings.CutPrefix(c.text("sourceRefName"), refs)
			target, cutTarget := strings.CutPrefix(c.text("targetRefName"), refs)
			switch {
			case !cutSource || !cutTarget:
				return s.refuse(http.StatusBadRequest, "TF401398: a ref name is wanted")
			case s.open(source, target) != nil:
				return s.refuse(http.StatusConflict, "TF401179: An active pull request for the source and target branch already exists.")
			}
			change, problem := s.add(source, target, c.text("title"), c.text("description"))
			if problem != "" {
				return s.refuse(http.StatusBadRequest, "TF401398: "+problem)
			}
			return answer{http.StatusCreated, s.azurePull(change)}
		}},
		{pattern: "GET" + repository + "/pullrequests/{pullRequestId}", query: own, do: func(c *call) answer {
			return answer{http.StatusOK, s.azurePull(c.change)}
		}},
		{pattern: "PATCH" + repository + "/pullrequests/{pullRequestId}", writes: true, query: own, body: "title description status", do: func(c *call) answer {
			switch {
			case c.change.State != "open":
				return s.refuse(http.StatusConflict, "TF401181: The pull request cannot be edited due to its state.")
			case utf8.RuneCountInString(c.text("description")) > 4000:
				return s.refuse(http.StatusBadRequest, "Invalid argument: description has at most 4000 characters")
			}
			c.edit("description", "status", "abandoned")
			return answer{http.StatusOK, s.azurePull(c.change)}
		}},
		{pattern: "POST" + repository + "/pullRequests/{pullRequestId}/labels", writes: true, query: own, body: "name!", do: func(c *call) answer {
			s.addLabel(c.change, c.text("name"))
			return answer{http.StatusOK, map[string]any{"name": c.text("name"), "active": true}}
		}},
		{pattern: "GET" + repository + "/pullRequests/{pullRequestId}/threads", query: own, do: func(c *call) answer {
			all := []any{thread(0, "system", "Ann joined as a reviewer", 0)}
			for _, comment := range c.change.Comments {
				all = append(all, thread(comment.ID, "text", comment.Body, comment.Author))
			}
			return answer{http.StatusOK, values(all)}
		}},
		{pattern: "POST" + repository + "/pullRequests/{pullRequestId}/threads", writes: true, query: own, body: "comments! status!", do: func(c *call) answer {
			comments, _ := c.in["comments"].([]any)
			first, _ := comments[0].(map[string]any)
			text, _ := first["content"].(string)
			comment := s.comment(c.change, text)
			return answer{http.StatusOK, thread(comment.ID, "text", comment.Body, comment.Author)}
		}},
		{pattern: "PATCH" + repository + "/pullRequests/{pullRequestId}/threads/{threadId}/comments/{commentId}", writes: true, query: own, body: "content!", do: func(c *call) answer {
			comment := s.editComment(c.PathValue("threadId"), c.text("content"))
			return answer{http.StatusOK, map[string]any{"id": 1, "content": comment.Body}}
		}},
		{pattern: "GET" + repository + "/commits/{commitId}/statuses", query: own + " latestOnly top skip", do: func(c *call) answer {
			all, seen := []any{}, []string{}
			for _, m := range s.statuses[c.PathValue("commitId")] {
				if slices.Contains(seen, m.Context) {
					continue
				}
				seen = append(seen, m.Context)
				genre, name, _ := strings.Cut(m.Context, "/")
				all = append(all, map[string]any{
					"state": m.State, "description": m.Description, "targetUrl": m.URL, "context": map[string]any{"genre": genre, "name": name},
				})
			}
			return answer{http.StatusOK, values(all)}
		}},
		{pattern: "POST" + repository + "/commits/{commitId}/statuses", writes: true, query: own, body: "state! description targetUrl context!", do: func(c *call) answer {
			named, _ := c.in["context"].(map[string]any)
			if !slices.Contains([]string{"notSet", "pending", "succeeded", "failed", "error", "notApplicable"}, c.text("state")) {
				return s.refuse(http.StatusBadRequest, "Invalid argument: state")
			}
			s.mark(c.PathValue("commitId"), Status{fmt.Sprintf("%s/%s", named["genre"], named["name"]), c.text("state"), c.text("description"), c.text("targetUrl")})
			return answer{http.StatusCreated, map[string]any{"state": c.text("state")}}
		}},
	})
}

func values(all []any) map[string]any { return map[string]any{"value": all, "count": len(all)} }

func thread(id int, kind, text string, author int) map[string]any {
	return map[string]any{"id": id, "status": "closed", "comments": []any{
		map[string]any{"id": 1, "parentCommentId": 0, "content": text, "commentType": kind, "author": map[string]any{"id": fmt.Sprint("account-", author)}},
	}}
}

func (s *Server) azurePull(c *Change) map[string]any {
	head, _ := s.branch(c.Source)
	pull := map[string]any{
		"pullRequestId": c.Number, "title": c.Title, "description": c.Body, "sourceRefName": refs + c.Source, "targetRefName": refs + c.Target,
		"status":                map[string]string{"open": "active", "closed": "abandoned", "merged": "completed"}[c.State],
		"lastMergeSourceCommit": map[string]any{"commitId": head},
	}
	if c.Fork {
		pull["forkSource"] = map[string]any{"name": refs + c.Source}
	}
	return pull
}
