// Command terminal writes a recording of a terminal as an SVG: the commands of a script, each with what it really prints.
//
//	go run -C tools ./terminal "$PWD/bin" >docs/media/terminal.svg
//
// The argument is the folder with the programs. Nothing but text and shapes is in the picture; a browser lets one command after the other
// appear, and whatever cannot move shows all at once.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
)

//go:embed recording.sh
var recording string

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: terminal FOLDER-WITH-PROGRAMS >FILE.svg")
		os.Exit(2)
	}
	said, err := record(recording, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(1)
	}
	os.Stdout.Write(draw(said))
}

// entry is a command, and what it printed.
type entry struct {
	command string
	output  []string
}

// record runs a script in an empty folder. Lines up to "# shown" prepare; each later one is a command of the recording.
func record(script, programs string) ([]entry, error) {
	dir, err := os.MkdirTemp("", "terminal-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	setup, shown, _ := strings.Cut(script, "# shown\n")
	commands := strings.Split(strings.TrimSpace(shown), "\n")
	const end = "end of command"
	var all strings.Builder
	fmt.Fprintf(&all, "{ :\n%s} >&2\n", setup)
	for _, c := range commands {
		fmt.Fprintf(&all, "{ %s\n} 2>&1\necho '%s'\n", c, end)
	}
	cmd := exec.Command("sh", "-eu")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(all.String())
	cmd.Env = []string{"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s%s", err, stderr.Bytes(), out)
	}
	var entries []entry
	for i, text := range strings.Split(string(out), end+"\n")[:len(commands)] {
		e := entry{command: commands[i]}
		if text = strings.TrimRight(text, "\n"); text != "" {
			e.output = strings.Split(text, "\n")
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Sizes in pixels, and times in seconds.
const (
	columns, lineHeight, charWidth, edge = 104, 19, 8, 18
	perCommand                           = 2.5
)

// draw returns the picture of entries.
func draw(entries []entry) []byte {
	var body bytes.Buffer
	y, at := edge+30, 0.5
	line := func(color, text string) {
		if runes := []rune(text); len(runes) > columns {
			text = string(runes[:columns-1]) + "…"
		}
		fmt.Fprintf(&body, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", edge, y, color, html.EscapeString(text))
		y += lineHeight
	}
	for _, e := range entries {
		// Hidden until its time: the values of the picture itself show everything.
		fmt.Fprintf(&body, `<g><animate attributeName="opacity" values="0" dur="%.1fs" begin="0s"/>`+"\n", at)
		line("#7ee787", "$ "+e.command)
		for _, text := range e.output {
			line("#d0d7de", text)
		}
		fmt.Fprintln(&body, "</g>")
		y += lineHeight / 2
		at += perCommand
	}
	width, height := 2*edge+columns*charWidth, y+edge/2
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="A terminal: wherry plans, publishes and applies a change">`+"\n", width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	for i, color := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&out, `<circle cx="%d" cy="%d" r="6" fill="%s"/>`+"\n", edge+6+20*i, edge, color)
	}
	fmt.Fprintf(&out, `<g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13.2">`+"\n%s</g>\n</svg>\n", body.Bytes())
	return out.Bytes()
}
