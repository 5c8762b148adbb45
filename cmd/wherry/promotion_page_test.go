package main

import (
	"context"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

const promotionPage = "../../docs/promotion.md"

// TestThePageOnPromotionHasEveryField compares its tables with the fields that are read.
func TestThePageOnPromotionHasEveryField(t *testing.T) {
	page, err := os.ReadFile(promotionPage)
	require.NoError(t, err)
	_, policy, found := strings.Cut(string(page), "\n## The policy\n")
	require.True(t, found)
	policy, _, _ = strings.Cut(policy, "\n## ")
	rows := func(title string) (fields []string) {
		_, section, found := strings.Cut(policy, "\n### "+title+"\n")
		require.True(t, found, title)
		section, _, _ = strings.Cut(section, "\n### ")
		for line := range strings.Lines(section) {
			if rest, ok := strings.CutPrefix(line, "| `"); ok {
				name, _, _ := strings.Cut(rest, "`")
				fields = append(fields, name)
			}
		}
		return fields
	}
	fields := func(typ reflect.Type, prefix string) (all []string) {
		for i := range typ.NumField() {
			if name := typ.Field(i).Tag.Get("yaml"); name != "" {
				all = append(all, prefix+name)
			}
		}
		return all
	}
	spec, _ := reflect.TypeFor[kinds.PromotionPolicy]().FieldByName("Spec")
	order := append(fields(spec.Type, ""), fields(reflect.TypeFor[kinds.PromotedEnvironment](), "environments[].")...)
	order = append(order[:3], order[4:]...) // without environments itself
	require.ElementsMatch(t, order, rows("Order and rings"))
	require.ElementsMatch(t, fields(reflect.TypeFor[kinds.PromotionGate](), ""), rows("The rules of a gate"))
}

// TestThePageOnPromotionShowsWhatIsRead reads the policy that the page begins with, and compares what explain prints.
func TestThePageOnPromotionShowsWhatIsRead(t *testing.T) {
	page, err := os.ReadFile(promotionPage)
	require.NoError(t, err)
	_, example, found := strings.Cut(string(page), "```yaml\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	m := scheduler.NewModel("prod")
	require.NoError(t, m.Load(context.Background(), scheduler.Source{FS: fstest.MapFS{"p.yaml": {Data: []byte(example)}}}))
	require.Empty(t, m.Findings())
	p, err := m.Promotion()
	require.NoError(t, err)
	require.Equal(t, "stage", p.Below())
	require.Equal(t, []string{"dev", "stage"}, p.Gate.SoakIn)

	archive, err := txtar.ParseFile("testdata/script/promotion_policy.txtar")
	require.NoError(t, err)
	for _, f := range archive.Files {
		if shown, _, _ := strings.Cut(string(f.Data), "\nA release goes"); f.Name == "prod.txt" {
			require.Contains(t, string(page), strings.TrimSpace(shown))
			return
		}
	}
	t.Fatal("the script has no prod.txt")
}

// Lint refuses gates by what agents do.
func TestAGateThatWaitsForReportsKnowsHowOftenTheyCome(t *testing.T) {
	require.Equal(t, agent.DefaultHeartbeat, promotion.ReportInterval)
}
