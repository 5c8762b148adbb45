package authorcmd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/author"
)

// editing holds the flags of edit.
type editing struct {
	place
	set, unset []string
	values     []string // of a cluster
}

// Edit returns the command wherry edit.
func Edit() *cobra.Command {
	var e editing
	cmd := &cobra.Command{
		Use:   "edit KIND NAME [--set PATH=VALUE]...",
		Short: "Change an object of a platform",
		Long: `Change an object of a platform: in the editor that $VISUAL or $EDITOR names, else vi; or without an editor by --set and
--unset, which keep comments, order and all other bytes.

After the editor, the platform is read as it would be. If it has a mistake that it did not have before, the editor opens
again with the mistake at the top; closing it without a change gives up, and the text is kept in a file. The object's file
is written only if nobody else changed it meanwhile.

PATH is as in spec.reconciler, metadata.labels["example.com/region"] or spec.deploymentTargets[live].labels.edge: an item of
a list is given by its place, counted from 0, or by its name. VALUE is a text, or whatever else the field takes, such as a
number or [a, b]. --value gives a cluster a site value; --unset 'spec.values["KEY"]' removes one.`,
		Example: `  wherry edit cluster-type edge -e dev
  wherry edit cluster-type edge -e dev --set spec.reconciler=argocd --set metadata.labels.region=north
  wherry edit platform fleet --set 'spec.rings=[canary, stable]'
  wherry edit cluster plant-7 --value dns=plant-7.example.com`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeObject(),
		RunE:              func(cmd *cobra.Command, args []string) error { return e.run(cmd, args[0], args[1]) },
	}
	e.addTo(cmd)
	e.addEnvironment(cmd, "the object in the folder of this environment, `NAME`")
	cmd.Flags().StringArrayVar(&e.set, "set", nil, "give the field at a path a value, `PATH=VALUE`; may be repeated")
	cmd.Flags().StringArrayVar(&e.unset, "unset", nil, "remove the field at this `PATH`; may be repeated")
	cmd.Flags().StringArrayVar(&e.values, "value", nil, "give a cluster a site value, `KEY=VALUE`; may be repeated")
	cli.NotEmpty(cmd, "set", "unset", "value")
	return cmd
}

func (e *editing) run(cmd *cobra.Command, word, name string) error {
	kind, err := kindOf(word)
	if err != nil {
		return err
	}
	settings, err := e.settings()
	if err != nil {
		return err
	}
	if len(e.values) > 0 && kind != "Cluster" {
		return cli.Usagef("--value is for a cluster: a %s has no site values", author.Word(kind))
	}
	p, err := e.open(cmd)
	if err != nil {
		return err
	}
	found, err := p.Find(kind, name, e.environment, false)
	if err != nil {
		return err
	}
	if len(settings) == 0 {
		return e.inEditor(cmd, p, found[0])
	}
	plan, err := p.Set(cmd.Context(), found[0], settings)
	if err != nil {
		return err
	}
	return e.apply(cmd, plan)
}

func (e *editing) settings() ([]author.Setting, error) {
	var all []author.Setting
	for _, s := range e.set {
		one, err := author.ParseSetting(s)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	for _, s := range e.unset {
		path, err := yamltext.ParsePath(s)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--unset: %w", err), "")
		}
		all = append(all, author.Setting{Path: path, Unset: true})
	}
	for _, s := range e.values {
		key, value, found := strings.Cut(s, "=")
		if !found || key == "" {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--value %q: expected KEY=VALUE", s), "such as --value dns=plant-7.example.com")
		}
		all = append(all, author.Setting{Path: yamltext.Path{{Key: "spec"}, {Key: "values"}, {Key: key}}, Value: value})
	}
	return all, nil
}

// remark begins the lines at the top that say why the editor opened again.
const remark = "# wherry: "

// inEditor has the person edit the object until the platform can be read with it.
func (e *editing) inEditor(cmd *cobra.Command, p *author.Platform, o *author.Object) error {
	before, err := p.Text(o)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "wherry-edit-")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, o.Name+".yaml")
	shown, last := before, before
	for {
		if err := os.WriteFile(file, shown, 0o600); err != nil {
			return err
		}
		if err := openEditor(cmd, file); err != nil {
			return errors.Join(cli.Fail(cli.Failed, err, "set VISUAL or EDITOR, or use --set"), os.RemoveAll(dir))
		}
		after, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		after = withoutRemarks(after)
		if bytes.Equal(after, before) {
			cmd.PrintErrln("nothing changes")
			return os.RemoveAll(dir)
		}
		plan, mistake := p.Replace(cmd.Context(), o, after)
		if mistake == nil {
			if mistake = e.apply(cmd, plan); mistake == nil {
				return os.RemoveAll(dir)
			}
			return keep(mistake, file, after)
		}
		if bytes.Equal(after, last) || !errors.As(mistake, new(*author.Error)) {
			return keep(mistake, file, after)
		}
		last = after
		shown = append([]byte(remark+strings.ReplaceAll(mistake.Error(), "\n", "\n"+remark)+"\n"), after...)
	}
}

// keep leaves the person's text where it can be found, and says so.
func keep(err error, file string, text []byte) error {
	if failed := os.WriteFile(file, text, 0o600); failed != nil {
		return errors.Join(err, failed)
	}
	hint := "your text is in " + file
	if e := (*cli.Error)(nil); errors.As(failure.Of(err), &e) {
		return cli.Fail(e.Code, e.Err, hint)
	}
	return cli.Fail(cli.Failed, err, hint)
}

func withoutRemarks(text []byte) []byte {
	for bytes.HasPrefix(text, []byte(remark)) {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

// openEditor runs the person's editor, which may be a command with arguments.
func openEditor(cmd *cobra.Command, file string) error {
	name := editor()
	run := exec.CommandContext(cmd.Context(), "sh", "-c", name+` "$@"`, name, file)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return fmt.Errorf("editor %s: %w", name, err)
	}
	return nil
}
