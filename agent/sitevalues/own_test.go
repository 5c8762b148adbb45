package sitevalues

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	shared "github.com/wherry-dev/wherry/bundle/sitevalues"
)

func text(s string) shared.Value { return shared.Value{Any: s, Text: s} }

func TestAShellReadsTheFileOfVariables(t *testing.T) {
	odd := "a 'b' \"c\" $(echo d) `echo e` $HOME \\ \nf"
	data := environment(shared.Values{"dns": text("plant-7.example.com"), "gateway.address": text(odd), "empty": text("")})
	require.True(t, strings.HasPrefix(string(data), "DNS=plant-7.example.com\nEMPTY=\nGATEWAY_ADDRESS=\""))
	cmd := exec.Command("sh", "-c", string(data)+`printf %s "$GATEWAY_ADDRESS"`)
	got, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, odd, string(got))
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, err string }{
		{"a list", "- a\n", "line 1: it must be a mapping"},
		{"a nested value", "a: 1\ndns: {a: b}\n", "line 2: dns: it must be a single value"},
		{"a second document", "dns: a\n---\ndns: b\n", "line 2: there must be one YAML document"},
		{"a key twice", "dns: a\nport: 1\ndns: b\n", "line 3: dns is also on line 1"},
		{"no value", "dns:\n", "line 1: dns: it has no value"},
		{"an alias", "a: &x b\nc: *x\n", "line 2: c: it must be a single value"},
		{"no YAML", "a: \"b\n", "it is not valid YAML"},
		{"a tag", "a: !secret b\n", "line 1: a: it has a tag"},
		{"a merge", "<<: {a: b}\n", "line 1: a key must be a single word"},
		{"a large number", "a: 99999999999999999999\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*Mistake))
			require.ErrorContains(t, err, c.err)
		})
	}
	own, err := Parse([]byte("# c\ndns: a\nport: 8443\nratio: 2.5\non: true\nday: 2026-11-23\nempty: \"\"\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"dns": "a", "port": int64(8443), "ratio": 2.5, "on": true, "day": "2026-11-23", "empty": ""}, own.Values)
	require.Equal(t, 3, own.Lines["port"])
	for _, empty := range []string{"", "# nothing\n", "---\n", "null\n"} {
		own, err := Parse([]byte(empty))
		require.NoError(t, err)
		require.Empty(t, own.Values)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("dns: a\nport: 1\n")
	f.Add("a: [\n")
	f.Add("a: &b c\nd: *b\n")
	f.Fuzz(func(t *testing.T, text string) {
		own, err := Parse([]byte(text))
		if err != nil {
			require.ErrorAs(t, err, new(*Mistake))
			return
		}
		for _, v := range own.Values {
			switch v.(type) {
			case string, int64, float64, bool:
			default:
				t.Fatalf("%T", v)
			}
		}
	})
}
