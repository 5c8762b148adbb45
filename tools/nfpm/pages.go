package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// describe writes the manual pages of a program's commands to the folder man of dir, and its completions to the folder completion.
func describe(program, dir string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	for _, folder := range []string{filepath.Join("man", name), "completion"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		script, err := say(program, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "completion", name+"."+shell), script, 0o644); err != nil {
			return err
		}
	}
	listed, err := say(program, "version", "--commands")
	if err != nil {
		return err
	}
	var all command
	if err := json.Unmarshal(listed, &all); err != nil {
		return err
	}
	return manual(all, filepath.Join(dir, "man", name), "")
}

// command is a command of a program as "version --commands" prints it.
type command struct {
	Path, Short, Help string
	Commands          []command
}

// page is the name of the manual page of a command.
func (c command) page() string { return strings.ReplaceAll(c.Path, " ", "-") }

// manual writes the page of a command, and those of its subcommands. Parent is the page of what it belongs to.
func manual(c command, dir, parent string) error {
	var page bytes.Buffer
	compressed := gzip.NewWriter(&page) // without a name or a time
	if _, err := compressed.Write(roff(c, parent)); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, c.page()+".1.gz"), page.Bytes(), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands {
		if err := manual(sub, dir, c.page()); err != nil {
			return err
		}
	}
	return nil
}

func say(program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "COLUMNS=100")
	cmd.Dir = os.TempDir() // no settings of a platform count
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return out, nil
}

// sections are those of a help text, as manual pages call them.
var sections = map[string]string{"Examples:": "EXAMPLES", "Flags:": "OPTIONS", "Global Flags:": "GLOBAL OPTIONS", "Rarely used flags:": "RARELY USED OPTIONS"}

// roff is the manual page of a command, made of its help text.
func roff(c command, parent string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, ".TH %s 1\n.SH NAME\n%s \\- %s\n", strings.ToUpper(c.page()), escape(c.page()), escape(c.Short))
	help, after, _ := strings.Cut(c.Help, "\nUsage:\n")
	usage, after, _ := strings.Cut(after, "\n\n")
	fmt.Fprint(&out, ".SH SYNOPSIS\n.nf\n")
	for line := range strings.Lines(usage) {
		fmt.Fprintln(&out, escape(strings.TrimSpace(line)))
	}
	fmt.Fprint(&out, ".fi\n.SH DESCRIPTION\n")
	filled := true
	for line := range strings.Lines(help + "\n" + after) {
		line = strings.TrimRight(line, "\n")
		if title, known := sections[line]; known {
			fmt.Fprintf(&out, "%s.SH %s\n", ending(&filled, false), title)
			fmt.Fprint(&out, ".nf\n")
			continue
		}
		verbatim := !filled || strings.HasPrefix(line, "  ")
		switch {
		case line == "" && filled:
			fmt.Fprintln(&out, ".PP")
		case verbatim && filled:
			fmt.Fprintf(&out, ".nf\n%s\n.fi\n", escape(line))
		default:
			fmt.Fprintln(&out, escape(line))
		}
	}
	fmt.Fprint(&out, ending(&filled, true))
	var also []string
	if parent != "" {
		also = append(also, parent)
	}
	for _, sub := range c.Commands {
		also = append(also, sub.page())
	}
	if len(also) > 0 {
		fmt.Fprintln(&out, ".SH SEE ALSO")
		for i, page := range also {
			separator := ","
			if i == len(also)-1 {
				separator = ""
			}
			fmt.Fprintf(&out, ".BR %s (1)%s\n", escape(page), separator)
		}
	}
	return out.Bytes()
}

// ending ends a section that is not filled, and notes how the next one is.
func ending(filled *bool, next bool) string {
	before := *filled
	*filled = next
	if before {
		return ""
	}
	return ".fi\n"
}

// escape writes a line so that roff shows it as it is.
func escape(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
