package flags

import (
	"fmt"
	"net/mail"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/outgit"
)

// Forge holds the flags for commits, and for the forge of the repository that they are pushed to.
type Forge struct {
	Kind      forge.Kind // empty where the host says it
	Tokens    forge.Tokens
	Author    outgit.Identity // empty for wherry
	Committer outgit.Identity

	kind, api, author string
}

// ForgeFlags are the names of the flags that AddTo adds.
var ForgeFlags = []string{"forge", "forge-api", "author"}

// AddTo adds --forge, --forge-api and --author.
func (g *Forge) AddTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.kind, "forge", "", "the `KIND` of forge: github, gitlab, gitea, forgejo or azure; needed for a host of your own")
	f.StringVar(&g.api, "forge-api", "", "the `URL` of the forge's API, if it is not where the forge's documentation says")
	f.StringVar(&g.author, "author", "", "the commit's author, `\"NAME <EMAIL>\"` (default GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL, else wherry)")
	cli.NotEmpty(cmd, ForgeFlags...)
	_ = cmd.RegisterFlagCompletionFunc("forge", cobra.FixedCompletions([]string{"github", "gitlab", "gitea", "forgejo", "azure"}, cobra.ShellCompDirectiveNoFileComp))
}

// Read reads the flags and the environment.
func (g *Forge) Read() (err error) {
	if g.kind != "" {
		if g.Kind, err = forge.ParseKind(g.kind); err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--forge: %w", err), "")
		}
	}
	g.Tokens = forge.TokensOf(os.Getenv)
	g.Author = outgit.Identity{Name: os.Getenv("GIT_AUTHOR_NAME"), Email: os.Getenv("GIT_AUTHOR_EMAIL")}
	g.Committer = outgit.Identity{Name: os.Getenv("GIT_COMMITTER_NAME"), Email: os.Getenv("GIT_COMMITTER_EMAIL")}
	if g.author != "" {
		who, err := mail.ParseAddress(g.author)
		if err != nil || who.Name == "" {
			return cli.Usagef("--author must be \"NAME <EMAIL>\"")
		}
		g.Author = outgit.Identity{Name: who.Name, Email: who.Address}
	}
	return nil
}

// New returns the repository at a URL of git. Its error is that of [forge.New].
func (g *Forge) New(at string) (*forge.Repository, error) {
	return forge.New(at, forge.Options{Kind: g.Kind, API: g.api, Tokens: g.Tokens})
}

// Failure gives an error of git or of a forge its exit code and a hint. At is the URL of the repository, and denied the hint for a
// branch that takes no push.
func (g *Forge) Failure(err error, at, denied string, first ...cli.Kind) error {
	return failure.Git(err, g.tokenHint(at), denied, first...)
}

// tokenHint names the variables for a token, or git's own ways.
func (g *Forge) tokenHint(at string) string {
	p, err := forge.PlaceOf(at, g.Kind)
	if err != nil {
		return "give git a login for this repository, by a credential helper or an ssh key"
	}
	names := slices.DeleteFunc(forge.Variables(p.Kind), func(name string) bool { return name == "GH_TOKEN" })
	return "set " + strings.Join(names, " or ") + " to a token that may write to the repository"
}
