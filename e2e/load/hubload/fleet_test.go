package hubload

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

func TestSignedReportsAreThoseOfAnAgent(t *testing.T) {
	f := Fleet{Seed: "plant", Items: 20, Begin: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	c := f.Cluster(17)
	require.NoError(t, c.Check())
	require.Equal(t, c.Body(3), f.Cluster(17).Body(3), "another process makes the same")
	var signed []Signed
	for seq := int64(1); seq <= 50; seq++ {
		signed = append(signed, c.Sign(seq))
	}
	var request hubapi.Reports
	require.NoError(t, json.Unmarshal(c.Request(signed), &request))
	require.Len(t, request.Reports, 50)
	var before bundle.Report
	for i, envelope := range request.Reports {
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, c.Key)
		require.NoError(t, err)
		require.Equal(t, c.ID(int64(i+1)), bundle.ReportID(body))
		r, err := bundle.ParseReport(body)
		require.NoError(t, err)
		changed := 0
		for k := range before.Items {
			if before.Items[k] != r.Items[k] {
				changed++
				require.Equal(t, r.OccurredAt, r.Items[k].Since)
			}
		}
		require.True(t, i == 0 || changed == 1, "report %d changes %d assignments", i+1, changed)
		before = r
	}
}
