package forgetest

import (
	"fmt"
	"net/http"
	"slices"
)

// gitlab is what of GitLab's REST API is needed: "Merge requests", "Notes", "Commits".
func (s *Server) gitlab(mux *http.ServeMux) {
	s.serve(mux, "/api/v4", []route{
		{pattern: "GET /projects/{id}/merge_requests", query: "state scope source_branch target_branch order_by sort per_page page", do: func(c *call) answer {
			q := c.URL.Query()
			found := s.list(func(change *Change) bool {
				state := q.Get("state")
				return (q.Get("source_branch") == "" || q.Get("source_branch") == change.Source) && (state == "all" || state == gitlabState(change))
			})
			all := []any{}
			for _, change := range found {
				all = append(all, s.mergeRequest(change))
			}
			return answer{http.StatusOK, c.page(all, "per_page")}
		}},
		{pattern: "GET /projects/{id}/repository/commits/{sha}/merge_requests", query: "page per_page", do: func(c *call) answer {
			all := []any{}
			for _, change := range s.ofCommit(c.PathValue("sha")) {
				all = append(all, s.mergeRequest(change))
			}
			return answer{http.StatusOK, c.page(all, "per_page")}
		}},
		{pattern: "POST /projects/{id}/merge_requests", writes: true, body: "source_branch! target_branch! title! description labels remove_source_branch", do: func(c *call) answer {
			source, target := c.text("source_branch"), c.text("target_branch")
			if open := s.open(source, target); open != nil {
				return answer{http.StatusConflict, map[string]any{"message": []string{
					fmt.Sprintf("Another open merge request already exists for this source branch: !%d", open.Number),
				}}}
			}
			if head, ok := s.branch(source); ok { // GitLab takes a request without a difference
				if base, _ := s.branch(target); base == head {
					return s.refuse(http.StatusUnprocessableEntity, "no difference")
				}
			}
			change, problem := s.add(source, target, c.text("title"), c.text("description"))
			if problem != "" {
				return answer{http.StatusUnprocessableEntity, map[string]any{"message": map[string]any{"base": []string{problem}}}}
			}
			return answer{http.StatusCreated, s.mergeRequest(change)}
		}},
		{pattern: "GET /projects/{id}/merge_requests/{merge_request_iid}", do: func(c *call) answer {
			return answer{http.StatusOK, s.mergeRequest(c.change)}
		}},
		{pattern: "PUT /projects/{id}/merge_requests/{merge_request_iid}", writes: true, body: "title description add_labels state_event target_branch", do: func(c *call) answer {
			c.edit("description", "state_event", "close")
			if name := c.text("add_labels"); name != "" {
				s.addLabel(c.change, name)
			}
			return answer{http.StatusOK, s.mergeRequest(c.change)}
		}},
		{pattern: "GET /projects/{id}/merge_requests/{merge_request_iid}/notes", query: "sort order_by per_page page", do: func(c *call) answer {
			all := []any{map[string]any{"id": 0, "body": "changed the title", "system": true}}
			for _, comment := range c.change.Comments {
				all = append(all, map[string]any{"id": comment.ID, "body": comment.Body, "system": false, "author": account(comment.Author)})
			}
			return answer{http.StatusOK, c.page(all, "per_page")}
		}},
		{pattern: "GET /user", do: s.user},
		{pattern: "POST /projects/{id}/merge_requests/{merge_request_iid}/notes", writes: true, body: "body! internal", do: s.addIssueComment},
		{pattern: "PUT /projects/{id}/merge_requests/{merge_request_iid}/notes/{note_id}", writes: true, body: "body!", do: s.editIssueComment("note_id")},
		{pattern: "GET /projects/{id}/repository/commits/{sha}/statuses", query: "ref stage name all per_page page", do: func(c *call) answer {
			all, id := []any{}, len(s.statuses[c.PathValue("sha")])
			for i, m := range s.statuses[c.PathValue("sha")] {
				all = append(all, map[string]any{"id": id - i, "name": m.Context, "status": m.State, "description": m.Description, "target_url": m.URL})
			}
			return answer{http.StatusOK, all}
		}},
		{pattern: "POST /projects/{id}/statuses/{sha}", writes: true, body: "state! ref name context target_url description coverage pipeline_id", do: s.gitlabStatus},
	})
}

func gitlabState(c *Change) string {
	if c.State == "open" {
		return "opened"
	}
	return c.State
}

func (s *Server) mergeRequest(c *Change) map[string]any {
	head, _ := s.branch(c.Source)
	from := 7
	if c.Fork {
		from = 8
	}
	return map[string]any{
		"id": 1000 + c.Number, "iid": c.Number, "web_url": fmt.Sprintf("%s/-/merge_requests/%d", s.URL, c.Number), "title": c.Title,
		"description": c.Body, "state": gitlabState(c), "source_branch": c.Source, "target_branch": c.Target, "sha": head,
		"source_project_id": from, "target_project_id": 7, "labels": c.Labels,
	}
}

// gitlabStatus refuses a status that a commit has already, as GitLab's state machine does.
func (s *Server) gitlabStatus(c *call) answer {
	commit := c.PathValue("sha")
	m := Status{c.text("name"), c.text("state"), c.text("description"), c.text("target_url")}
	switch {
	case !slices.Contains([]string{"pending", "running", "success", "failed", "canceled", "skipped"}, m.State):
		return answer{http.StatusBadRequest, map[string]any{"error": "state does not have a valid value"}}
	case slices.ContainsFunc(s.statuses[commit], func(old Status) bool { return old == m }):
		return s.refuse(http.StatusBadRequest, "Cannot transition status via :enqueue from :"+m.State)
	}
	s.mark(commit, m)
	return answer{http.StatusCreated, map[string]any{"id": 1, "name": m.Context, "status": m.State}}
}
