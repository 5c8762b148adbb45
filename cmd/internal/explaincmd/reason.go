package explaincmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// reason is the JSON of a reason: a place in the documentation for each meaning that it has.
type reason struct {
	Reason string  `json:"reason"`
	Places []place `json:"places"`
}

type place struct {
	Topic   string  `json:"topic"` // of "wherry help"
	Section string  `json:"section"`
	Texts   []texts `json:"texts"`
}

type texts struct {
	Title string `json:"title,omitempty"`
	Text  string `json:"text"`
}

// printReason prints the rows of the documentation about a reason.
func (x *question) printReason(cmd *cobra.Command, name string) error {
	var commands []string
	for _, c := range cmd.Commands() {
		commands = append(commands, c.Name())
	}
	name, rows, err := cli.FindReason(name, `"wherry help operating" and "wherry help engines" list the reasons, "wherry help findings" the codes`, commands...)
	if unknown := (*cli.UnknownReasonError)(nil); errors.As(err, &unknown) {
		return cli.Fail(cli.Usage, fmt.Errorf("there is no command, code or reason %q", unknown.Name), unknown.Hint)
	}
	if err != nil {
		return err
	}
	answer := reason{Reason: name}
	for _, r := range rows {
		p := place{Topic: r.Topic, Section: r.Section}
		for _, c := range r.Cells {
			p.Texts = append(p.Texts, texts{Title: c[0], Text: c[1]})
		}
		answer.Places = append(answer.Places, p)
	}
	return cli.Print(cmd.OutOrStdout(), x.format, answer, func(w io.Writer) { cli.WriteReason(w, name, rows) })
}
