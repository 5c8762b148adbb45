package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Several marks the value of a flag that may be given several times. Lists and maps of pflag need no mark.
type Several interface{ Several() }

// checkRepeats has cmd and its subcommands refuse a second, different value of a flag that takes one: pflag would keep the last
// one in silence.
func checkRepeats(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if !takesSeveral(f.Value) {
				f.Value = &once{Value: f.Value}
			}
		})
	}
	for _, sub := range cmd.Commands() {
		checkRepeats(sub)
	}
}

func takesSeveral(v pflag.Value) bool {
	switch v := v.(type) {
	case notEmpty:
		return takesSeveral(v.Value)
	case pflag.SliceValue, Several, *once:
		return true
	}
	return v.Type() == "stringToString" || v.Type() == "count"
}

// once is the value of a flag that takes one.
type once struct {
	pflag.Value
	given bool
	text  string
}

func (v *once) Set(s string) error {
	before := v.String()
	if err := v.Value.Set(s); err != nil {
		return err
	}
	if v.given && s != v.text && (before == "" || v.String() != before) {
		return &repeatedError{v.text, s}
	}
	v.given, v.text = true, s
	return nil
}

// repeatedError is the error of a flag that takes one value and is given two.
type repeatedError struct{ first, second string }

func (e *repeatedError) Error() string {
	if strings.Contains(e.first+e.second, "://") { // it may hold credentials
		return "given twice, with different values"
	}
	return fmt.Sprintf("given twice, as %q and as %q", e.first, e.second)
}

// repeated returns the error of a flag that is given twice, and nil for another error.
func repeated(cmd *cobra.Command, invalid *pflag.InvalidValueError) error {
	var twice *repeatedError
	if !errors.As(invalid, &twice) {
		return nil
	}
	return Fail(Usage, fmt.Errorf("--%s is %w", invalid.GetFlag().Name, twice), "it takes one value; "+HelpHint(cmd))
}
