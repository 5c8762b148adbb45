package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// hostile are templates that take too much, each with its expected error.
var hostile = map[string]struct{ template, says string }{
	"a loop in a loop":                {`{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}`, errTooManySteps.Error()},
	"a loop over a number":            {`{{ range 1000000000000 }}{{ $x := . }}{{ end }}`, errTooManySteps.Error()},
	"a loop that calls":               {`{{ range until 100000 }}{{ $x := repeat 9000 "a" }}{{ end }}`, errTooManySteps.Error()},
	"a loop that makes loops":         {`{{ range until 100000 }}{{ $x := until 9000 }}{{ end }}`, errTooManySteps.Error()},
	"a template that calls itself":    {`{{ define "d" }}{{ template "d" }}{{ end }}{{ template "d" }}`, "maximum template depth"},
	"one that does so twice":          {`{{ define "d" }}{{ template "d" . }}{{ template "d" . }}{{ end }}{{ template "d" }}`, "maximum template depth"},
	"a text that is repeated":         {`{{ repeat 1000000000 "a" }}`, ErrTooLong.Error()},
	"a deep indent":                   {`{{ indent 1000000000 "a" }}`, ErrTooLong.Error()},
	"a wide format":                   {`{{ printf (repeat 200 "%[1]900000d") 1 }}`, ErrTooLong.Error()},
	"a width from elsewhere":          {`{{ printf (repeat 200 "%[1]*[1]d") 900000 }}`, ErrTooLong.Error()},
	"a text that doubles":             {`{{ $x := "aaaaaaaa" }}{{ range until 40 }}{{ $x = cat $x $x }}{{ end }}`, ErrTooLong.Error()},
	"quotes that double":              {`{{ $x := "\"\"\"\"" }}{{ range until 40 }}{{ $x = quote $x }}{{ end }}`, ErrTooLong.Error()},
	"escapes that grow":               {`{{ $x := "<<<<" }}{{ range until 40 }}{{ $x = js $x }}{{ end }}`, ErrTooLong.Error()},
	"a list that doubles":             {`{{ $x := list 1 }}{{ range until 40 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}`, errTooMany.Error()},
	"a list that holds itself often":  {`{{ $x := list 1 }}{{ range until 99999 }}{{ $x = append $x $x }}{{ end }}`, errTooMany.Error()},
	"a map of itself":                 {`{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ $d }}`, errTooDeep.Error()},
	"a map of a list of itself":       {`{{ $d := dict }}{{ $l := list $d }}{{ $_ := set $d "a" $l }}{{ toYaml $d }}`, errTooDeep.Error()},
	"maps in maps":                    {`{{ $x := dict }}{{ range until 10000 }}{{ $x = dict "a" $x }}{{ end }}{{ $x }}`, errTooDeep.Error()},
	"JSON in JSON":                    {`{{ fromJson (printf "%s%s" (repeat 5000 "[") (repeat 5000 "]")) }}`, errTooDeep.Error()},
	"a list that grows afterwards":    {`{{ $a := dict }}{{ $l := list $a }}{{ range until 8 }}{{ $l = concat $l $l }}{{ end }}{{ $m := list $l }}{{ range until 8 }}{{ $m = concat $m $m }}{{ end }}{{ $_ := set $a "x" (repeat 1000000 "y") }}{{ $m }}`, ErrTooLong.Error()},
	"a separator of a megabyte":       {`{{ join (repeat 1000000 "a") (until 100000) | len }}`, ErrTooLong.Error()},
	"a replacement of a megabyte":     {`{{ regexReplaceAllLiteral "" (repeat 1000000 "a") (repeat 1000000 "b") | len }}`, ErrTooLong.Error()},
	"a replacement by itself":         {`{{ regexReplaceAll ".*" (repeat 100000 "a") (repeat 100000 "$0") | len }}`, ErrTooLong.Error()},
	"an expression that is a program": {`{{ regexMatch (repeat 300 "(.{0,1000}y)") (repeat 1000000 "x") }}`, errTooSlow.Error()},
	"wrapping with a megabyte":        {`{{ wrapWith 1 (repeat 1000000 "b") (repeat 500000 "a ") | len }}`, ErrTooLong.Error()},
	"comparing all with all":          {`{{ uniq (until 100000) | len }}`, errTooSlow.Error()},
	"a cutset of a megabyte":          {`{{ trimAll (repeat 300000 "é") (repeat 300000 "é") }}`, errTooSlow.Error()},
	"all the numbers there are":       {`{{ untilStep -9223372036854775807 9223372036854775807 1 | len }}`, "more than 100000 items"},
	"all of them as a text":           {`{{ seq -9223372036854775807 1 9223372036854775807 }}`, "more than 100000 items"},
	"a text in a million pieces":      {`{{ split "" (repeat 1000000 "a") | len }}`, "more than 100000 items"},
	"numbers that overflow":           {`{{ untilStep 0 9223372036854775807 4611686018427387904 }}`, ""},
	"a template of eight megabytes":   {strings.Repeat("{{if 1}}", 400_000) + strings.Repeat("{{end}}", 400_000), "the template is longer than 1048576 bytes"},
	"ten thousand levels":             {strings.Repeat("{{with 1}}", 10_000) + strings.Repeat("{{end}}", 10_000), ""},
	"as many levels as there can be":  {strings.Repeat("{{if 1}}", 60_000) + strings.Repeat("{{end}}", 60_000), ""},
	"a million parentheses":           {"{{" + strings.Repeat("(", 500_000) + "1" + strings.Repeat(")", 500_000) + "}}", "max expression depth exceeded"},
}

// TestHostileTemplatesEndWithAnError runs each in a process of its own, with a bound on its memory: what Go
// cannot recover from must not happen.
func TestHostileTemplatesEndWithAnError(t *testing.T) {
	if name := os.Getenv("WHERRY_HOSTILE"); name != "" {
		c, ok := hostile[name]
		require.True(t, ok)
		err := evaluateText(c.template)
		if c.says == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, c.says)
		var input *finding.Error
		require.True(t, errors.As(err, &input), "%v", err)
		return
	}
	for name := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := alone(t, "WHERRY_HOSTILE="+name).CombinedOutput()
			require.NoError(t, err, "%.2000s", out)
		})
	}
}

// alone runs the test that t is part of in a process of its own, with a bound on its memory where the
// system knows one; the race detector takes more addresses than that.
func alone(t *testing.T, variable string) *exec.Cmd {
	script := "ulimit -v 3000000 2>/dev/null; "
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		script = ""
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command("sh", "-c", script+`exec "$0" -test.run "^$1\$"`, os.Args[0], test)
	cmd.Env = append(os.Environ(), variable, "GOMEMLIMIT=1GiB")
	return cmd
}

func evaluateText(s string) error {
	l := &Library{functions: functions()}
	d := Data{ConfigData: map[string]any{}}
	_, err := NewEvaluator(l).evaluate(context.Background(), l.text("hostile", s, finding.Position{File: "a.yaml", Line: 1}), &Input{Data: &d, Config: configOf(map[string]any{})})
	return err
}

func TestBoundsLeaveOrdinaryTemplatesAlone(t *testing.T) {
	for template, want := range map[string]string{
		`{{ range $i := until 5000 }}{{ printf "%d" $i | trunc 0 | quote | trimAll "\"" }}{{ end }}`: "",
		`{{ join "," (until 3) }}`:                                       "0,1,2",
		`{{ untilStep 0 10 3 }}{{ untilStep 3 0 -1 }}{{ until -2 }}`:     "[0 3 6 9][3 2 1][0 -1]",
		`{{ printf "%-8s|%05.1f" "a" 2.25 }}`:                            fmt.Sprintf("%-8s|%05.1f", "a", 2.25),
		`{{ regexReplaceAll "(a+)b" (repeat 1000 "aab") "${1}" | len }}`: "2000",
		`{{ $d := dict "a" 1 }}{{ $_ := set $d "b" "x" }}{{ $d.c }}|{{ .ConfigData.no }}|{{ .Labels.no }}|{{ $d }}|{{ $d.a }}`: "<no value>|<no value>|<no value>|map[a:1 b:x]|1",
		`{{ list 1 2 2 | uniq | toJson }}{{ split "," "a,b" }}`:                                                                `[1,2]map[_0:a _1:b]`,
		`{{ html "<" }}{{ js "'" }}{{ wrapWith 3 "\n" "aaa bbb" }}`:                                                            "&lt;\\'aaa\nbbb",
		`{{ merge (dict "a" 1) (dict "b" (dict "c" 2)) | toYaml }}`:                                                            "a: 1\nb:\n    c: 2",
		`{{ regexFindAll "[a-z]+" (repeat 20000 "abc ") -1 | len }}`:                                                           "20000",
	} {
		l := &Library{functions: functions()}
		d := Data{ConfigData: map[string]any{}}
		got, err := NewEvaluator(l).evaluate(context.Background(), l.text("t", template, finding.Position{}), &Input{Data: &d, Config: configOf(map[string]any{})})
		require.NoError(t, err, template)
		require.Equal(t, want, string(got), template)
	}
}

// Steps that are few can each take long: of a template that repeats much, the time is looked at.
func TestPatienceEnds(t *testing.T) {
	o := output{ctx: t.Context(), since: time.Now().Add(-maxTime)}
	for range timedSteps - 1 {
		require.NoError(t, o.step(0))
	}
	require.ErrorIs(t, o.step(0), errTooMuchTime)

	o = output{ctx: t.Context()}
	for range timedSteps {
		require.NoError(t, o.step(0))
	}
	require.NotZero(t, o.since)
}
