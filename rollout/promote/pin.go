package promote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Purpose is the word for the change requests of promotions, whose branches are promote/ENVIRONMENT.
const Purpose = "promote"

// pin gives the environment another base commit. It reports whether the environment has it now; a change request still has to be
// merged.
func (v *visit) pin(ctx context.Context, commit string, verdict gate.Verdict) (pinned bool, err error) {
	at := v.target.Place()
	if at.Dir != "" {
		return true, v.pinFolder(at.Dir, commit)
	}
	access := v.Access(gitrepo.Mirrors(v.Source.Mirrors).Of(at.URL))
	options := v.git()
	options.User, options.Password = access.User, access.Password
	if at.Branch == "" {
		return false, fmt.Errorf("%s: %w", gitrepo.Redact(at.URL), ErrNoBranch)
	}
	target := outgit.Target{URL: access.URL, Branch: at.Branch, Folder: at.Folder}
	edit := outgit.Edit{
		Environment: v.result.Environment, Purpose: Purpose, Content: commit, Promoted: true,
		Title: fmt.Sprintf("Promote %s to %s", short(commit), v.result.Environment), Message: v.message(commit), BaseCommit: commit, Text: v.text(commit, verdict),
		Files: func(ctx context.Context, b outgit.Branch) (map[string][]byte, error) { return v.edit(ctx, b, commit) },
	}
	if !v.policy.ChangeRequest && !v.options.ChangeRequest {
		_, err := outgit.PushEdit(ctx, target, edit, options)
		return err == nil, err
	}
	if access.Forge == nil {
		return false, fmt.Errorf("%s: a change request is asked for: %w", gitrepo.Redact(at.URL), access.ForgeErr)
	}
	outcome, err := outgit.ProposeEdit(ctx, access.Forge, target, edit, options)
	if err != nil {
		return false, err
	}
	return v.proposed(ctx, commit, outcome.Proposal)
}

// ErrNoBranch means that the environment was read from a commit that is named, so there is no branch to change.
var ErrNoBranch = errors.New("no branch is named")

// proposed tells what came of a change request.
func (v *visit) proposed(ctx context.Context, commit string, p outgit.Proposal) (pinned bool, err error) {
	request := p.Request
	v.result.Request = &Request{Number: request.Number, URL: request.URL, Action: string(p.Action)}
	switch p.Action {
	case outgit.None, outgit.Withdrawn: // merged meanwhile
		v.result.Request = nil
		return true, nil
	case outgit.Declined:
		v.hold(fmt.Sprintf("change request %d for %s was closed", request.Number, short(commit)), "promote another commit, or propose it again: wherry promote -e "+v.result.Environment+" --again")
		return false, v.setStatus(ctx, commit, forge.Failure, v.result.Reason, request.URL)
	}
	v.result.State, v.result.Reason = Proposed, fmt.Sprintf("change request %d is open: %s", request.Number, request.URL)
	v.result.Hint = "merge it, and run the command again"
	return false, v.setStatus(ctx, commit, forge.Pending, fmt.Sprintf("change request %d is open", request.Number), request.URL)
}

// comment tells the change request that pinned a commit, and was merged, what the commit waits for, whoever made it. That it cannot is a
// warning.
func (v *visit) comment(ctx context.Context, commit, why string) error {
	at := v.target.Place()
	if at.Dir != "" {
		return nil
	}
	access := v.Access(gitrepo.Mirrors(v.Source.Mirrors).Of(at.URL))
	if access.Forge == nil {
		return nil
	}
	if err := v.at("comment"); err != nil {
		return err
	}
	number, err := v.requestOf(ctx, access, commit)
	if err == nil && number != 0 {
		text := fmt.Sprintf("%s goes on with the base commit that it has, until the gate lets %s in. It waits: %s\n", show.MarkdownCode(v.result.Environment), short(commit), show.Markdown(oneLine(why)))
		_, err = access.Forge.Comment(ctx, number, forge.Marker("waits", v.result.Environment, commit), text)
	}
	if err != nil && ctx.Err() == nil {
		v.warn("the change request of " + short(commit) + " got no comment: " + err.Error())
	}
	return ctx.Err()
}

// requestOf returns the number of the change request that pinned a commit, and was merged: one of wherry's, or the one with which the pin
// came; zero if there is none.
func (v *visit) requestOf(ctx context.Context, access Access, commit string) (int, error) {
	known := v.result.Environment + " " + commit
	if v.Statuses != nil {
		v.Statuses.mu.Lock()
		number, is := v.Statuses.pins[known]
		v.Statuses.mu.Unlock()
		if is {
			return number, nil
		}
	}
	all, err := access.Forge.Find(ctx, Purpose+"/"+v.result.Environment)
	if err != nil {
		return 0, err
	}
	number := 0
	i := slices.IndexFunc(all, func(r forge.ChangeRequest) bool {
		return r.State == forge.Merged && strings.HasPrefix(r.Body, forge.Marker(Purpose, v.result.Environment, commit))
	})
	if i >= 0 {
		number = all[i].Number
	} else if number, err = v.requestOfPin(ctx, access, commit); err != nil {
		return 0, err
	}
	if v.Statuses != nil {
		v.Statuses.mu.Lock()
		defer v.Statuses.mu.Unlock()
		if v.Statuses.pins == nil {
			v.Statuses.pins = map[string]int{}
		}
		v.Statuses.pins[known] = number
	}
	return number, nil
}

// requestOfPin asks the forge about the commit of the environment's branch that pinned a base commit.
func (v *visit) requestOfPin(ctx context.Context, access Access, commit string) (int, error) {
	at := v.target.Place()
	if at.Branch == "" {
		return 0, nil
	}
	remote, err := outgit.RemoteOf(access.URL, access.User, access.Password)
	if err != nil {
		return 0, err
	}
	git, err := outgit.InitGit(ctx, remote, cmp.Or(v.options.Git.Timeout, gitTime))
	if err != nil {
		return 0, err
	}
	defer func() { _ = git.Close() }() // temporary files only
	const head = "refs/read/environment"
	if _, err := git.Run(ctx, nil, "fetch", "--quiet", "--filter=blob:none", "--no-tags", "--no-write-fetch-head", "origin", "+refs/heads/"+at.Branch+":"+head); err != nil {
		return 0, fmt.Errorf("read the history of environment %s: %w", v.result.Environment, err)
	}
	// The newest commit after which the text has the pin once more: git fetches what it compares.
	set, err := git.Run(ctx, nil, "log", "--max-count=1", "--format=%H", "-S"+commit, head, "--", cmp.Or(at.Folder, "."))
	if err != nil || len(set) == 0 {
		return 0, err
	}
	all, err := access.Forge.OfCommit(ctx, strings.TrimSpace(string(set)))
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(r forge.ChangeRequest) bool { return r.State == forge.Merged && r.Target == at.Branch })
	if i < 0 {
		return 0, nil
	}
	return all[i].Number, nil
}

// edit returns the file with the BaseRepo object, with another commit.
func (v *visit) edit(ctx context.Context, b outgit.Branch, commit string) (map[string][]byte, error) {
	if b.Commit != v.target.EnvironmentCommit {
		return nil, errMoved
	}
	name, err := v.fileOf(b.Names())
	if err != nil {
		return nil, err
	}
	old, err := b.ReadFile(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := Pin(old, v.base.Commit, commit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return map[string][]byte{name: data}, nil
}

// fileOf returns the file of the environment that has its BaseRepo called main.
func (v *visit) fileOf(names []string) (string, error) {
	at, best := "/"+filepath.ToSlash(v.base.Position.File), ""
	for _, name := range names {
		if strings.HasSuffix(at, "/"+name) && len(name) > len(best) {
			best = name
		}
	}
	if best == "" {
		return "", fmt.Errorf("%s: BaseRepo %s is not in the environment's own folder: %w", v.base.Position, scheduler.MainBase, fs.ErrNotExist)
	}
	return best, nil
}

// pinFolder changes the file in a folder that belongs to no remote repository.
func (v *visit) pinFolder(dir, commit string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var names []string
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != "." && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	name, err := v.fileOf(names)
	if err != nil {
		return err
	}
	old, err := root.ReadFile(name)
	if err != nil {
		return err
	}
	data, err := Pin(old, v.base.Commit, commit)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if bytes.Equal(old, data) {
		return nil
	}
	info, err := root.Stat(name)
	if err != nil {
		return err
	}
	temp := name + ".wherry-new" // beside it, so that the change is one rename
	err = root.WriteFile(temp, data, info.Mode().Perm())
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(temp))
	}
	v.result.Warnings = append(v.result.Warnings, filepath.Join(dir, filepath.FromSlash(name))+" was changed, and is not committed")
	return nil
}

// Pin returns the text of a YAML file in which the BaseRepo called main has the commit. Nothing else of the text changes. It fails with an
// error unless the object has the commit old, which is empty for none.
func Pin(data []byte, old, commit string) ([]byte, error) {
	f, err := yamltext.Parse(data)
	if err != nil {
		return nil, err
	}
	document, path, object := findBase(f)
	if object == nil {
		return nil, ErrNoBase
	}
	scalar := yamltext.Resolve(yamltext.Lookup(object, "spec", "commit"))
	switch has := yamltext.Text(scalar); has {
	case commit:
		return data, nil
	case old:
	default:
		return nil, fmt.Errorf("it pins %q and not %q: %w", has, old, errMoved)
	}
	path = append(path, yamltext.Step{Key: "spec"}, yamltext.Step{Key: "commit"})
	plain := scalar == nil || scalar.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
	return f.Set(document, path, commit, plain && isText(commit))
}

// isText reports whether a commit is a text in YAML as it is. All digits, or digits around an e, are a number.
func isText(commit string) bool {
	var n yaml.Node
	return yaml.Unmarshal([]byte(commit), &n) == nil && len(n.Content) == 1 && n.Content[0].Kind == yaml.ScalarNode && n.Content[0].ShortTag() == "!!str"
}

// findBase returns the BaseRepo called main: a document, or an item of a List.
func findBase(f *yamltext.File) (document int, path yamltext.Path, object *yaml.Node) {
	for i, n := range f.Documents {
		if isBase(n) {
			return i, nil, n
		}
		if yamltext.Text(n, "kind") != "List" {
			continue
		}
		items := yamltext.Items(n, "items")
		if at := slices.IndexFunc(items, func(n *yaml.Node) bool { return isBase(yamltext.Resolve(n)) }); at >= 0 {
			return i, yamltext.Path{{Key: "items"}, {Key: strconv.Itoa(at), Item: true}}, yamltext.Resolve(items[at])
		}
	}
	return 0, nil, nil
}

func isBase(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.MappingNode && yamltext.Text(n, "kind") == "BaseRepo" &&
		yamltext.Text(n, "apiVersion") == kinds.KalypsoAPI && yamltext.Text(n, "metadata", "name") == scheduler.MainBase
}
