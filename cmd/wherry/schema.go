package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/scheduler/kindschema"
)

// schemaFolder is where --modeline writes schemas without -o. It begins with a dot, so that no command reads it as a part
// of the platform.
const schemaFolder = ".schemas"

// maxModelineBytes bounds a file that gets a modeline.
const maxModelineBytes = 8 << 20

func newSchemaCommand() *cobra.Command {
	var dir string
	var modeline bool
	cmd := &cobra.Command{
		Use:   "schema [KIND] [-o DIR] [--modeline FILE…]",
		Short: "Write the JSON Schemas of all kinds",
		Long: `Print the JSON Schema of KIND: an editor with it completes names, shows descriptions and marks mistakes. Without
KIND, list the kinds. With -o, write the schemas of all kinds to DIR, and all.json, which fits every file of a platform.

Editors that use yaml-language-server, such as VS Code with the YAML extension, find the schema of a file by a
comment in its first line, which --modeline adds to each FILE:

  # yaml-language-server: $schema=../.schemas/all.json

For a whole folder, write this to .vscode/settings.json instead:

  {"yaml.schemas": {".schemas/all.json": ["dev/**/*.yaml", "main/**/*.yaml"]}}`,
		Example: `  wherry schema ClusterType
  wherry schema -o .schemas
  wherry schema --modeline dev/*.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case modeline:
				return cobra.MinimumNArgs(1)(cmd, args)
			case dir != "":
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch {
			case modeline:
				return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
			case len(args) > 0 || dir != "":
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return kindschema.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case modeline:
				if dir == "" {
					dir = schemaFolder
				}
				return addModelines(cmd, dir, args)
			case dir != "":
				return writeSchemas(cmd, dir)
			case len(args) == 0:
				return listSchemas(cmd)
			}
			return printSchema(cmd, args[0])
		},
	}
	cmd.Flags().StringVarP(&dir, "output", "o", "", "write the schemas of all kinds to `DIR`")
	cmd.Flags().BoolVar(&modeline, "modeline", false, "write the schemas to "+schemaFolder+", or to DIR, and add a modeline to each FILE")
	cli.NotEmpty(cmd, "output")
	return cmd
}

func listSchemas(cmd *cobra.Command) error {
	err := cli.Print(cmd.OutOrStdout(), "table", nil, func(w io.Writer) {
		fmt.Fprintln(w, "KIND\tFILE")
		for _, s := range kindschema.All() {
			cli.Row(w, s.Name, s.File)
		}
	})
	cmd.PrintErrln(`"wherry schema KIND" prints one, "wherry schema -o DIR" writes all`)
	return err
}

func printSchema(cmd *cobra.Command, name string) error {
	schema, ok := kindschema.Find(name)
	if !ok {
		hint := `"wherry schema" lists them`
		if near := kindschema.Near(name); near != "" {
			hint = fmt.Sprintf("did you mean %s? Else %s", near, hint)
		}
		return cli.Fail(cli.Usage, fmt.Errorf("there is no schema of a kind %q", name), hint)
	}
	_, err := cmd.OutOrStdout().Write(schema.Text)
	return err
}

func writeSchemas(cmd *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all := kindschema.All()
	for _, s := range all {
		if err := diskfile.ReplaceBy(filepath.Join(dir, s.File), 0o644, func(w io.Writer) error {
			_, err := w.Write(s.Text)
			return err
		}); err != nil {
			return err
		}
	}
	cmd.PrintErrf("wrote %s to %s\n", show.Count(len(all), "schema"), dir)
	return nil
}

// addModelines reads all files before it writes the first one.
func addModelines(cmd *cobra.Command, dir string, paths []string) error {
	changed := map[string][]byte{}
	for _, path := range paths {
		if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
			return cli.Fail(cli.Usage, fmt.Errorf("%s is not a YAML file", path), "give files that end in .yaml or .yml")
		}
		data, err := diskfile.Read(path, maxModelineBytes)
		if err != nil {
			return cli.Fail(cli.Usage, err, "")
		}
		schema, err := relative(path, filepath.Join(dir, kindschema.Combined+".json"))
		if err != nil {
			return cli.Fail(cli.Usage, err, "")
		}
		if with := kindschema.WithModeline(data, schema); string(with) != string(data) {
			changed[path] = with
		}
	}
	if err := writeSchemas(cmd, dir); err != nil {
		return err
	}
	for _, path := range paths {
		data, ok := changed[path]
		if !ok {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		real, err := filepath.EvalSymlinks(path) // the link stays
		if err != nil {
			return err
		}
		if err := diskfile.Replace(real, 0o644, data); err != nil {
			return err
		}
		if err := os.Chmod(real, info.Mode().Perm()); err != nil {
			return err
		}
		delete(changed, path)
		fmt.Fprintln(cmd.OutOrStdout(), path)
	}
	return nil
}

// relative returns the path of a schema as seen from a file, with slashes.
func relative(file, schema string) (string, error) {
	from, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(schema)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(from, to)
	return filepath.ToSlash(rel), err
}
