package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const ciExamples = "../../examples/ci"

// The structures below have the keys that the documentation of each CI system names, as far as the examples use them: any other
// key is an error. make lint has actionlint check the workflows of GitHub besides.

type gitHubWorkflow struct {
	Name        string                    `json:"name"`
	On          map[string]any            `json:"true"` // which YAML 1.1 makes of "on"
	Permissions map[string]string         `json:"permissions"`
	Env         map[string]string         `json:"env"`
	Jobs        map[string]map[string]any `json:"jobs"`
}

type gitLabRule struct {
	If string `json:"if"`
}

type gitLabJob struct {
	Stage       string       `json:"stage"`
	Image       any          `json:"image"`
	Services    []string     `json:"services"`
	Rules       []gitLabRule `json:"rules"`
	Timeout     string       `json:"timeout"`
	Environment struct {
		Name string `json:"name"`
	} `json:"environment"`
	Variables    map[string]string `json:"variables"`
	BeforeScript []string          `json:"before_script"`
	Script       []string          `json:"script"`
}

type azureFilter struct {
	Include []string `json:"include"`
}

type azureVariable struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

type azurePipeline struct {
	Trigger struct {
		Branches azureFilter `json:"branches"`
		Tags     azureFilter `json:"tags"`
	} `json:"trigger"`
	PR        any `json:"pr"` // none, or branches
	Schedules []struct {
		Cron        string      `json:"cron"`
		DisplayName string      `json:"displayName"`
		Branches    azureFilter `json:"branches"`
		Always      bool        `json:"always"`
	} `json:"schedules"`
	Variables []azureVariable `json:"variables"`
	Pool      struct {
		VMImage string `json:"vmImage"`
	} `json:"pool"`
	Jobs []struct {
		Job              string          `json:"job"`
		DependsOn        string          `json:"dependsOn"`
		Condition        string          `json:"condition"`
		TimeoutInMinutes int             `json:"timeoutInMinutes"`
		Variables        []azureVariable `json:"variables"`
		Steps            []struct {
			Checkout           string            `json:"checkout"`
			PersistCredentials bool              `json:"persistCredentials"`
			Script             string            `json:"script"`
			DisplayName        string            `json:"displayName"`
			Env                map[string]string `json:"env"`
		} `json:"steps"`
	} `json:"jobs"`
}

// strictly reads JSON or YAML and refuses keys that into does not have.
func strictly(t *testing.T, data []byte, into any) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict(data, into))
}

func gitHubScripts(t *testing.T, data []byte) (scripts []string) {
	var w gitHubWorkflow
	strictly(t, data, &w)
	require.NotEmpty(t, w.On)
	require.NotNil(t, w.Permissions, "a job gets the permissions that it names, and no others")
	for _, job := range w.Jobs {
		for _, step := range job["steps"].([]any) {
			if run, ok := step.(map[string]any)["run"].(string); ok {
				scripts = append(scripts, run)
				require.NotContains(t, run, "${{", "what is pasted into a script is code")
			}
		}
	}
	return scripts
}

func gitLabScripts(t *testing.T, data []byte) (scripts []string) {
	var whole map[string]json.RawMessage
	strictly(t, data, &whole)
	var stages []string
	strictly(t, whole["stages"], &stages)
	used := map[string]bool{}
	for name, part := range whole {
		switch name {
		case "stages":
		case "default":
			strictly(t, part, &struct {
				Image any `json:"image"`
			}{})
		case "variables":
			strictly(t, part, &map[string]string{})
		case "workflow":
			strictly(t, part, &struct {
				Rules []gitLabRule `json:"rules"`
			}{})
		default:
			var job gitLabJob
			strictly(t, part, &job)
			require.Contains(t, stages, job.Stage, name)
			require.NotEmpty(t, job.Script, name)
			require.Regexp(t, `^(\d+ (minutes|hours))?$`, job.Timeout)
			for _, rule := range job.Rules {
				require.Regexp(t, `^\$CI_[A-Z_]+ (==|=~) \S+$`, rule.If)
			}
			used[job.Stage] = true
			scripts = append(scripts, strings.Join(append(job.BeforeScript, job.Script...), "\n"))
		}
	}
	require.Len(t, used, len(stages), "each stage has a job")
	return scripts
}

func azureScripts(t *testing.T, data []byte) (scripts []string) {
	var p azurePipeline
	strictly(t, data, &p)
	require.NotEmpty(t, p.Pool.VMImage)
	var jobs []string
	for _, s := range p.Schedules {
		require.Len(t, strings.Fields(s.Cron), 5)
		require.NotEmpty(t, s.Branches.Include, "else nothing runs")
	}
	for _, job := range p.Jobs {
		require.Regexp(t, `^[a-z]+$`, job.Job)
		if job.DependsOn != "" {
			require.Contains(t, jobs, job.DependsOn)
		}
		jobs = append(jobs, job.Job)
		for _, v := range append(job.Variables, p.Variables...) {
			require.True(t, (v.Group == "") != (v.Name == ""), "a variable has a name, or is a group")
		}
		for _, step := range job.Steps {
			require.True(t, (step.Script == "") != (step.Checkout == ""), "a step does one thing")
			if step.Script != "" {
				scripts = append(scripts, step.Script)
				require.NotContains(t, step.Script, "$(", "what is pasted into a script is code")
			}
		}
	}
	return scripts
}

func TestTheExamplesOfContinuousIntegration(t *testing.T) {
	systems := map[string]func(*testing.T, []byte) []string{"github": gitHubScripts, "gitlab": gitLabScripts, "azure": azureScripts}
	readme, err := os.ReadFile(filepath.Join(ciExamples, "README.md"))
	require.NoError(t, err)
	for system, scriptsOf := range systems {
		for _, file := range []string{"platform.yml", "application.yml"} {
			t.Run(system+"/"+file, func(t *testing.T) {
				data, err := os.ReadFile(filepath.Join(ciExamples, system, file))
				require.NoError(t, err)
				var commands []string
				for _, script := range scriptsOf(t, data) {
					check := exec.Command("sh", "-n")
					check.Stdin = strings.NewReader(script)
					out, err := check.CombinedOutput()
					require.NoError(t, err, "%s\n%s", out, script)
					for _, args := range wherryCommands(t, script) {
						commands = append(commands, takesArguments(t, args))
					}
				}
				slices.Sort(commands)
				want := []string{"lint", "login", "plan", "promote", "promote"}
				if file == "application.yml" {
					want = []string{"rollout workload"}
					require.NotContains(t, string(data), "--cluster", "a team names no cluster")
				}
				require.Equal(t, want, commands)
				for _, secret := range regexp.MustCompile(`(?:secrets\.|: \$\(|: \$)([A-Z_]+_(?:PASSWORD|KEY|TOKEN))\b`).FindAllStringSubmatch(string(data), -1) {
					require.Contains(t, string(readme), "`"+secret[1]+"`")
				}
			})
		}
	}
}

// takesArguments parses the arguments of wherry as the program does, and returns the name of the command.
func takesArguments(t *testing.T, args []string) string {
	t.Helper()
	cmd, rest, err := newRootCommand().Find(args)
	require.NoError(t, err, "%q", args)
	require.True(t, cmd.Runnable(), "%q", args)
	require.NoError(t, cmd.ParseFlags(rest), "%q", args)
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%q", args)
	require.NoError(t, cmd.ValidateRequiredFlags(), "%q", args)
	return strings.TrimPrefix(cmd.CommandPath(), "wherry ")
}

// wherryCommands returns the arguments of each call of wherry in a script without substitutions.
func wherryCommands(t *testing.T, script string) (all [][]string) {
	t.Helper()
	var words []string
	end := func() {
		if len(words) > 0 && words[0] == "wherry" {
			all = append(all, words[1:])
		}
		words = nil
	}
	token := regexp.MustCompile(`^(?:#[^\n]*|(\|\||&&|[|;\n])|[ \t]+|((?:"[^"]*"|'[^']*'|[^\s"'|;&#]|&)+))`)
	for rest := script; rest != ""; {
		m := token.FindStringSubmatch(rest)
		require.NotNil(t, m, "%q", rest)
		switch {
		case m[1] != "":
			end()
		case m[2] != "":
			words = append(words, strings.NewReplacer(`"`, "", "'", "").Replace(m[2]))
		}
		rest = rest[len(m[0]):]
	}
	end()
	return all
}

func TestCommandsAreFoundInScripts(t *testing.T) {
	got := wherryCommands(t, "a && wherry login x # wherry no\nprintf '%s' \"$A | wherry no\" | wherry sign --key 'a b' || test $? -eq 5; wherry plan -e dev")
	require.Equal(t, [][]string{{"login", "x"}, {"sign", "--key", "a b"}, {"plan", "-e", "dev"}}, got, fmt.Sprint(got))
}
