package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

func TestAnArgoCDThatIsSilentIsNamed(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	looked := func(ago time.Duration) unstructured.Unstructured {
		at := now.Add(-ago).Format(time.RFC3339)
		return unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"reconciledAt": at}}}
	}
	for _, c := range []struct {
		applications []unstructured.Unstructured
		silence      time.Duration
		result       diagnosis.Result
		message      string
	}{
		{nil, time.Minute, diagnosis.OK, "it has no Application yet"},
		{[]unstructured.Unstructured{looked(time.Hour), looked(time.Second)}, time.Minute, diagnosis.OK, "is at work in namespace argocd"},
		{[]unstructured.Unstructured{looked(time.Hour), {Object: map[string]any{}}}, time.Minute, diagnosis.Failed, "has looked at none of the 2 Applications in namespace argocd for 1m0s"},
		{[]unstructured.Unstructured{looked(time.Hour)}, 0, diagnosis.OK, "is at work"},
	} {
		e := &examination{Subject: Subject{Now: func() time.Time { return now }}}
		got := judgeArgo(e, "argocd", c.applications, c.silence)
		require.Equal(t, c.result, got.Result, c.message)
		require.Contains(t, got.Message, c.message)
		require.Equal(t, c.result == diagnosis.Failed, got.Remedy != "")
	}
}
