package releasecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/forge"
)

// auto is the value of --comment that stands for the change request of the CI system's run.
const auto = "auto"

// commenting is the change request that gets the plan as a comment.
type commenting struct {
	text string        // the value of --comment
	run  forge.Run     // its change request; Number is 0 if there is none
	opts forge.Options // tokens
}

func (c *commenting) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.text, "comment", "", "write the plan, as Markdown, to one comment of the change request at this `URL`, or of this CI run's with auto")
	cli.NotEmpty(cmd, "comment")
}

// open finds the change request, before the plan takes its time.
func (c *commenting) open() (err error) {
	switch c.text {
	case "":
		return nil
	case auto:
		run, ok := forge.RunOf(os.Getenv)
		if !ok {
			return cli.Fail(cli.Usage, errors.New("--comment auto: no run of GitHub Actions, GitLab CI, Azure Pipelines, Gitea or Forgejo Actions is known here"), "give the URL of the change request")
		}
		c.run = run
	default:
		if c.run, err = forge.RequestOf(c.text); err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--comment: %w", err), "a browser shows it, such as https://github.com/OWNER/REPOSITORY/pull/12")
		}
	}
	c.opts = forge.Options{Kind: c.run.Kind, Tokens: forge.TokensOf(os.Getenv)}
	return nil
}

// post writes the plan to the change request. Its error has the exit code of a failure, also where the forge refuses the
// token: nothing of the plan is denied.
func (c *commenting) post(cmd *cobra.Command, d *diff.Difference) error {
	if c.text == "" {
		return nil
	}
	if c.run.Number == 0 {
		cmd.PrintErrln("note: this run is for no change request, so the plan is posted nowhere")
		return nil
	}
	err := c.write(cmd.Context(), d)
	if err == nil {
		cmd.PrintErrf("the plan is posted to %s %d of %s\n", requestWord(c.run.Kind), c.run.Number, c.run.URL)
		return nil
	}
	hint := "run the command again: a comment is written once, however often it is tried"
	switch {
	case errors.Is(err, forge.ErrUnauthorized), errors.Is(err, forge.ErrForbidden), errors.Is(err, forge.ErrNotFound):
		hint = fmt.Sprintf("a token that may comment is read from %s", strings.Join(forge.Variables(c.run.Kind), ", "))
	case errors.Is(err, forge.ErrConflict):
		hint = "is the change request open?"
	}
	return cli.Fail(cli.Failed, fmt.Errorf("the plan was not posted to %s %d of %s: %w", requestWord(c.run.Kind), c.run.Number, c.run.URL, err), hint)
}

func (c *commenting) write(ctx context.Context, d *diff.Difference) error {
	repository, err := forge.New(c.run.URL, c.opts)
	if err != nil {
		return err
	}
	marker := forge.Marker("plan", markerWord(cmp.Or(d.Platform, publisher.DefaultPlatform)), markerWord(d.Environment))
	_, err = repository.Comment(ctx, c.run.Number, marker, string(view.Markdown(d)))
	return err
}

// markerWord is a name without what may not stand in a marker, and still different for each name.
func markerWord(name string) string {
	return strings.NewReplacer("%", "%25", "-", "%2D", "\n", "%0A", " ", "%20", ">", "%3E").Replace(name)
}

// requestWord is the forge's own word for a change request.
func requestWord(k forge.Kind) string {
	if k == forge.GitLab {
		return "merge request"
	}
	return "pull request"
}
