package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/show"
)

// HelpHint names the help of cmd.
func HelpHint(cmd *cobra.Command) string { return fmt.Sprintf("see %q", cmd.CommandPath()+" --help") }

// usageHint shows how cmd is used.
func usageHint(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.UseLine(), " [flags]") + "; " + HelpHint(cmd)
}

// checkArguments has commands that refuse their arguments say which they take. Those that only group others refuse
// a name that they do not know, where cobra would print their help and succeed.
func checkArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		checkArguments(sub)
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return wrongArguments(cmd, args, err)
			}
			return nil
		}
	}
}

// checkHelp makes the command help refuse unknown commands: cobra would print the help of the parent command and
// succeed.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Args = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && cmd.HasSubCommands() && cmd.Args != nil {
				err = cmd.Args(cmd, rest)
			}
			if err != nil && cmd == root {
				return unknownTopic(root, args[0], err)
			}
			return err
		}
	}
}

// unknownTopic returns the error of help for a name that is neither a command nor a topic of root. It is err if root has no topics.
func unknownTopic(root *cobra.Command, name string, err error) error {
	var topics []string
	for _, cmd := range root.Commands() {
		if !cmd.Runnable() && !cmd.HasSubCommands() { // which cobra calls a topic only if it is not hidden
			topics = append(topics, cmd.Name())
		}
	}
	if len(topics) == 0 {
		return err
	}
	root.SuggestionsMinimumDistance = maxDistance
	suggestions := root.SuggestionsFor(name)
	if near := show.Nearest(name, topics); near != "" {
		suggestions = append(suggestions, near)
	}
	hint := fmt.Sprintf("%q lists the topics, and %q the commands", root.Name()+" help topics", root.Name()+" --help")
	if len(suggestions) > 0 && name != "" {
		hint = fmt.Sprintf("did you mean %s? Else %s", strings.Join(suggestions, " or "), hint)
	}
	return Fail(Usage, fmt.Errorf("unknown command or topic %q", name), hint)
}

// maxDistance is how many letters a mistyped name of a command may be away from the right one.
const maxDistance = 2

func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	if len(args) > 0 && cmd.HasSubCommands() {
		hint := HelpHint(cmd)
		cmd.SuggestionsMinimumDistance = maxDistance
		if similar := cmd.SuggestionsFor(args[0]); args[0] != "" && len(similar) > 0 { // all begin with nothing
			hint = fmt.Sprintf("did you mean %s? Else %s", strings.Join(similar, " or "), hint)
		}
		return Fail(Usage, err, hint)
	}
	if wrong, ok := wrongUsage(err); ok {
		err = wrong
	} else if strings.HasPrefix(err.Error(), "unknown command") { // cobra takes it for one
		err = fmt.Errorf("unexpected argument %q", args[0])
	}
	return Fail(Usage, err, usageHint(cmd))
}

// cobraErrors maps cobra's errors about arguments and flags, which have no type, to our texts.
var cobraErrors = []struct {
	pattern *lazyregexp.Regexp
	text    func(found []string) string
}{
	{lazyregexp.New(`^accepts (\d+) arg\(s\), received (\d+)$`), func(m []string) string { return expected("", m[1], m[2]) }},
	{lazyregexp.New(`^accepts at most (\d+) arg\(s\), received (\d+)$`), func(m []string) string { return expected("at most ", m[1], m[2]) }},
	{lazyregexp.New(`^requires at least (\d+) arg\(s\), only received (\d+)$`), func(m []string) string { return expected("at least ", m[1], m[2]) }},
	{lazyregexp.New(`^accepts between (\d+) and (\d+) arg\(s\), received (\d+)$`), func(m []string) string { return expected(m[1]+" to ", m[2], m[3]) }},
	{lazyregexp.New(`^required flag\(s\) "(.*)" not set$`), func(m []string) string { return "missing " + flagNames(strings.Split(m[1], `", "`), "and") }},
	{lazyregexp.New(`^at least one of the flags in the group \[(.*)\] is required$`), func(m []string) string { return "missing " + flagNames(strings.Fields(m[1]), "or") }},
	{lazyregexp.New(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`), func(m []string) string {
		return flagNames(strings.Fields(m[1]), "and") + " cannot be given together"
	}},
	{lazyregexp.New(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`), func(m []string) string {
		return "missing " + flagNames(strings.Fields(m[2]), "and") + ": " + flagNames(strings.Fields(m[1]), "and") + " go together"
	}},
}

// wrongUsage is err in our words if it is a complaint of cobra's.
func wrongUsage(err error) (error, bool) {
	for _, c := range cobraErrors {
		if found := c.pattern.FindStringSubmatch(err.Error()); found != nil {
			return errors.New(c.text(found)), true
		}
	}
	return err, false
}

// expected returns the error text for a wrong number of arguments: "expected 1 argument, got none".
func expected(bound, want, got string) string {
	n, _ := strconv.Atoi(want)
	if got == "0" {
		got = "none"
	}
	return fmt.Sprintf("expected %s%s, got %s", bound, show.Count(n, "argument"), got)
}

// flagNames lists flags as people do: "--a, --b and --c".
func flagNames(names []string, conjunction string) string {
	for i, n := range names {
		names[i] = "--" + n
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " " + conjunction + " " + names[last]
}

// wrongFlag is the error of a flag that cannot be read, in our words.
func wrongFlag(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		without *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		err = fmt.Errorf("unknown flag -%c", unknown.GetSpecifiedName()[0])
	case errors.As(err, &unknown):
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		err = fmt.Errorf("unknown flag --%s", unknown.GetSpecifiedName())
		if near := show.Nearest(unknown.GetSpecifiedName(), known); near != "" {
			return Fail(Usage, err, fmt.Sprintf("did you mean --%s? Else %s", near, HelpHint(cmd)))
		}
	case errors.As(err, &without):
		err = fmt.Errorf("--%s needs a value", without.GetFlag().Name)
	case errors.As(err, &invalid):
		if err := repeated(cmd, invalid); err != nil {
			return err
		}
		f, value := invalid.GetFlag(), strconv.Quote(invalid.GetValue())
		why := valueError(f, invalid.Unwrap())
		if strings.HasPrefix(why.Error(), value) { // the error quotes the value already
			value = ""
		}
		err = fmt.Errorf("%s: %w", strings.TrimSpace("--"+f.Name+" "+value), why)
	}
	return Fail(Usage, err, usageHint(cmd))
}

// valueError is err without the words of package strconv.
func valueError(f *pflag.Flag, err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	if f.Value.Type() == "bool" {
		return errors.New("it must be true or false")
	}
	return fmt.Errorf("it must be a number: %w", number.Err)
}

// NotEmpty has cmd refuse an empty value of these flags of its own, such as a script gives whose variable is not set:
// else it would count as not given, and what the flag asks for would be left out in silence.
func NotEmpty(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		f.Value = notEmpty{f.Value}
		if f.DefValue == "[]" { // help would show it, as it does not know that the value is a list
			f.DefValue = ""
		}
	}
}

type notEmpty struct{ pflag.Value }

func (v notEmpty) Set(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return v.Value.Set(s)
}
