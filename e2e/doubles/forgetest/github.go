package forgetest

import (
	"fmt"
	"net/http"
	"strconv"
)

// github is what of GitHub Enterprise Server's REST API is needed: "Pulls", "Issues: comments and labels", "Commit statuses".
func (s *Server) github(mux *http.ServeMux) {
	s.serve(mux, "/api", []route{{pattern: "POST /graphql", body: "query!", do: func(*call) answer {
		return answer{http.StatusOK, map[string]any{"data": map[string]any{"viewer": map[string]any{"databaseId": Robot}}}}
	}}})
	s.serve(mux, "/api/v3", []route{
		{pattern: "GET /repos/{owner}/{repo}/pulls", query: "state head base sort direction per_page page", do: func(c *call) answer {
			q := c.URL.Query()
			found := s.list(func(change *Change) bool {
				user := Owner
				if change.Fork {
					user = "somebody"
				}
				return (q.Get("head") == "" || q.Get("head") == user+":"+change.Source) &&
					(q.Get("state") == "all" || (change.State == "open") == (q.Get("state") != "closed"))
			})
			return answer{http.StatusOK, c.page(s.pulls(found), "per_page")}
		}},
		{pattern: "POST /repos/{owner}/{repo}/pulls", writes: true, body: "title! body head! base!", do: s.openPull(http.StatusUnprocessableEntity)},
		{pattern: "GET /repos/{owner}/{repo}/pulls/{pull_number}", do: s.getPull},
		{pattern: "PATCH /repos/{owner}/{repo}/pulls/{pull_number}", writes: true, body: "title body state base", do: s.editPull(http.StatusOK)},
		{pattern: "GET /repos/{owner}/{repo}/commits/{commit_sha}/pulls", query: "per_page page", do: func(c *call) answer {
			return answer{http.StatusOK, c.page(s.pulls(s.ofCommit(c.PathValue("commit_sha"))), "per_page")}
		}},
		{pattern: "POST /repos/{owner}/{repo}/issues/{issue_number}/labels", writes: true, body: "labels!", do: func(c *call) answer {
			for _, name := range c.in["labels"].([]any) {
				s.addLabel(c.change, name.(string))
			}
			return answer{http.StatusOK, []any{}}
		}},
		{pattern: "GET /user", do: func(c *call) answer {
			if s.app {
				return s.refuse(http.StatusForbidden, "Resource not accessible by integration")
			}
			return s.user(c)
		}},
		{pattern: "GET /repos/{owner}/{repo}/issues/{issue_number}/comments", query: "per_page page since", do: s.issueComments},
		{pattern: "POST /repos/{owner}/{repo}/issues/{issue_number}/comments", writes: true, body: "body!", do: s.addIssueComment},
		{pattern: "PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}", writes: true, body: "body!", do: s.editIssueComment("comment_id")},
		{pattern: "GET /repos/{owner}/{repo}/commits/{ref}/statuses", query: "per_page page", do: func(c *call) answer {
			return answer{http.StatusOK, s.statusList(c.PathValue("ref"), "state")}
		}},
		{pattern: "POST /repos/{owner}/{repo}/statuses/{sha}", writes: true, body: "state! target_url description context", do: func(c *call) answer {
			return s.addStatus(c, "sha", "error", "failure", "pending", "success")
		}},
	})
}

func (c *call) page(all []any, size string) []any {
	number, _ := strconv.Atoi(c.URL.Query().Get("page"))
	count, _ := strconv.Atoi(c.URL.Query().Get(size))
	return append([]any{}, page(all, count, number)...)
}

func (s *Server) pulls(changes []*Change) []any {
	all := []any{}
	for _, c := range changes {
		all = append(all, s.pull(c))
	}
	return all
}

// pull is a pull request as GitHub and Gitea write it.
func (s *Server) pull(c *Change) map[string]any {
	head, _ := s.branch(c.Source)
	full := Owner + "/" + Repository
	from := full
	if c.Fork {
		from = "somebody/" + Repository
	}
	state := c.State
	pull := map[string]any{
		"number": c.Number, "html_url": fmt.Sprintf("%s/pulls/%d", s.URL, c.Number), "title": c.Title, "body": c.Body,
		"head": map[string]any{"ref": c.Source, "sha": head, "repo": map[string]any{"full_name": from}},
		"base": map[string]any{"ref": c.Target, "repo": map[string]any{"full_name": full}}, "merged_at": nil,
	}
	if c.Body == "" {
		pull["body"] = nil
	}
	if c.State == "merged" {
		state, pull["merged_at"] = "closed", "2026-01-02T03:04:05Z"
		if s.kind == "gitea" {
			pull["merged"] = true
		}
	}
	pull["state"] = state
	return pull
}

// openPull opens a pull request, and answers with conflict where there is one.
func (s *Server) openPull(conflict int) func(c *call) answer {
	return func(c *call) answer {
		source, target := c.text("head"), c.text("base")
		if s.open(source, target) != nil {
			a := s.refuse(conflict, "Validation Failed")
			a.body.(map[string]any)["errors"] = []any{map[string]any{
				"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for " + Owner + ":" + source + ".",
			}}
			return a
		}
		change, problem := s.add(source, target, c.text("title"), c.text("body"))
		if problem != "" {
			return s.refuse(http.StatusUnprocessableEntity, "Validation Failed: "+problem)
		}
		return answer{http.StatusCreated, s.pull(change)}
	}
}

func (s *Server) getPull(c *call) answer { return answer{http.StatusOK, s.pull(c.change)} }

func (s *Server) editPull(status int) func(c *call) answer {
	return func(c *call) answer {
		c.edit("body", "state", "closed")
		return answer{status, s.pull(c.change)}
	}
}

// edit changes the fields of the change request that a call gives. Its state changes by the value closed of a field.
func (c *call) edit(body, state, closed string) {
	if _, ok := c.in["title"]; ok {
		c.change.Title = c.text("title")
	}
	if _, ok := c.in[body]; ok {
		c.change.Body = c.text(body)
	}
	if c.text(state) == closed {
		c.change.State = "closed"
	}
}

func account(id int) map[string]any {
	return map[string]any{"id": id, "login": fmt.Sprint("user-", id)}
}

// user answers with the account of a token.
func (s *Server) user(*call) answer { return answer{http.StatusOK, account(Robot)} }

func (s *Server) issueComments(c *call) answer {
	all := []any{}
	for _, comment := range c.change.Comments {
		all = append(all, map[string]any{"id": comment.ID, "body": comment.Body, "user": account(comment.Author)})
	}
	if s.kind == "gitea" {
		return answer{http.StatusOK, all}
	}
	return answer{http.StatusOK, c.page(all, "per_page")}
}

func (s *Server) addIssueComment(c *call) answer {
	comment := s.comment(c.change, c.text("body"))
	return answer{http.StatusCreated, map[string]any{"id": comment.ID, "body": comment.Body}}
}

func (s *Server) editIssueComment(name string) func(c *call) answer {
	return func(c *call) answer {
		comment := s.editComment(c.PathValue(name), c.text("body"))
		return answer{http.StatusOK, map[string]any{"id": comment.ID, "body": comment.Body}}
	}
}

// statusList is the statuses of a commit, with their state in a field of that name.
func (s *Server) statusList(commit, state string) []any {
	all := []any{}
	for _, m := range s.statuses[commit] {
		all = append(all, map[string]any{"context": m.Context, state: m.State, "description": m.Description, "target_url": m.URL})
	}
	return all
}

// addStatus sets a status whose state is one of those that are known.
func (s *Server) addStatus(c *call, commit string, known ...string) answer {
	m := Status{c.text("context"), c.text("state"), c.text("description"), c.text("target_url")}
	for _, state := range known {
		if m.State == state && len(m.Description) <= 140*4 {
			s.mark(c.PathValue(commit), m)
			return answer{http.StatusCreated, map[string]any{"state": m.State, "context": m.Context}}
		}
	}
	return s.refuse(http.StatusUnprocessableEntity, "Validation Failed: state")
}
