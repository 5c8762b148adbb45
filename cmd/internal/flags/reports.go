package flags

import (
	"encoding/json"
	"fmt"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
)

// ReadReports returns the reports in a file of "wherry-agent reports export". Keys are those of clusters by their uids, in PEM; with
// nil, nothing is verified, else a report that no key verifies is an error. The error wraps airgap.ErrFormat if the
// file is of another kind, and bundle.ErrUntrusted if the cluster of a report has no key.
func ReadReports(path string, keys map[string]string) ([]bundle.Report, error) {
	envelopes, err := airgap.ReadReports(path)
	if err != nil {
		return nil, err
	}
	var reports []bundle.Report
	for i, envelope := range envelopes {
		report, err := openReport(envelope, keys)
		if err != nil {
			return nil, fmt.Errorf("report %d of %s: %w", i+1, path, err)
		}
		reports = append(reports, report)
	}
	return reports, nil
}

func openReport(envelope []byte, keys map[string]string) (bundle.Report, error) {
	var e struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		return bundle.Report{}, fmt.Errorf("envelope: %w", err)
	}
	if e.PayloadType != bundle.PayloadTypeReport {
		return bundle.Report{}, fmt.Errorf("envelope holds %q, want %q", e.PayloadType, bundle.PayloadTypeReport)
	}
	claimed, err := bundle.ParseReport(e.Payload)
	if err != nil || keys == nil {
		return claimed, err
	}
	text := keys[claimed.Cluster.UID]
	if text == "" {
		return bundle.Report{}, fmt.Errorf("cluster %q (%s) has no known key: %w", claimed.Cluster.Name, claimed.Cluster.UID, bundle.ErrUntrusted)
	}
	key, err := hub.ParseReportKey([]byte(text))
	if err != nil {
		return bundle.Report{}, err
	}
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, key)
	if err != nil {
		return bundle.Report{}, fmt.Errorf("cluster %q: %w", claimed.Cluster.Name, err)
	}
	return bundle.ParseReport(body)
}
