package hub_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// A hub takes a report of a registered cluster, acknowledges it, and shows what the cluster runs.
func Example() {
	dir, err := os.MkdirTemp("", "hub")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := hub.Open(dir, hub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(h.Handler())
	defer server.Close()

	public, private, err := ed25519.GenerateKey(nil) // the agent's
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := h.AddCluster(ctx, store.Cluster{Identity: store.Identity{UID: "uid-7", Name: "plant-7", Type: "drone", Environment: "dev"}, Key: public}); err != nil {
		log.Fatal(err)
	}

	envelope, err := report("uid-7", private)
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := post(server.URL, "uid-7", envelope)
	if err != nil {
		log.Fatal(err)
	}
	// Only the acknowledgement permits the agent to delete its report, and only the hub's key signs one.
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, receipt.Ack, h.PublicKey())
	if err != nil {
		log.Fatal(err)
	}
	ack, err := bundle.ParseAck(body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.Accepted, "accepted,", len(ack.Reports), "acknowledged")

	answers, err := h.Answers(ctx, store.AccessScope{})
	if err != nil {
		log.Fatal(err)
	}
	list, err := answers.Deployments(ctx, fleet.Query{State: []bundle.State{bundle.Compliant}})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range list.Deployments {
		fmt.Println(d.Cluster, d.Workload, d.State)
	}
	// Output:
	// 1 accepted, 1 acknowledged
	// plant-7 till compliant
}

// report returns an agent's first report in an envelope.
func report(uid string, key ed25519.PrivateKey) ([]byte, error) {
	body, err := json.Marshal(bundle.Report{
		Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster{UID: uid}, Agent: bundle.ReportAgent{Incarnation: 1, Seq: 1},
		Kind: bundle.Snapshot, OccurredAt: time.Now(), State: bundle.Compliant,
		Items: []bundle.Item{{Assignment: "till-main", Workload: "till", Target: "main", State: bundle.Compliant}},
	})
	if err != nil {
		return nil, err
	}
	return bundle.SealEnvelope(bundle.PayloadTypeReport, body, key)
}

// post sends one envelope, as an agent does.
func post(url, uid string, envelope []byte) (receipt hubapi.Receipt, err error) {
	address, err := hubapi.ReportsURL(url, uid)
	if err != nil {
		return receipt, err
	}
	request, err := json.Marshal(hubapi.Reports{Reports: []json.RawMessage{envelope}})
	if err != nil {
		return receipt, err
	}
	answer, err := http.Post(address, hubapi.ContentType, bytes.NewReader(request))
	if err != nil {
		return receipt, err
	}
	defer answer.Body.Close()
	err = json.NewDecoder(answer.Body).Decode(&receipt)
	return receipt, err
}

// Reports that came by media are imported, and their acknowledgements exported.
func ExampleHub_Import() {
	dir, err := os.MkdirTemp("", "hub")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := hub.Open(dir, hub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := h.AddCluster(ctx, store.Cluster{Identity: store.Identity{UID: "uid-7", Name: "plant-7", Type: "drone", Environment: "dev"}, Key: public}); err != nil {
		log.Fatal(err)
	}
	envelope, err := report("uid-7", private)
	if err != nil {
		log.Fatal(err)
	}
	result, err := h.Import(ctx, [][]byte{envelope, []byte("not a report")}, store.ViaMedia)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Accepted, "accepted, refused:", result.Rejected[0].Reason)
	acks, err := h.Acks(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(acks.Reports, "to acknowledge in", len(acks.Envelopes), "envelope")
	// Output:
	// 1 accepted, refused: BadReport
	// 1 to acknowledge in 1 envelope
}
