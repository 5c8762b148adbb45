package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// fakeAgent signs what an agent would, without running one:
//
//	fakeagent init NAME                     writes NAME.pub and NAME.json, as "status -o json" prints it
//	fakeagent export NAME FILE STATE SEQ…   writes reports for the way by media
//	fakeagent send NAME URL STATE SEQ…      posts reports; URL is a file that holds it
//	fakeagent acked NAME HUB.pub FILE N     verifies that FILE acknowledges N reports
//
// STATE@FILE reports the release whose digest is in FILE.
func fakeAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fakeagent init|export|send|acked NAME …")
	}
	a := scriptAgent{ts, args[1]}
	switch args[0] {
	case "init":
		a.init()
	case "export":
		f, err := os.Create(ts.MkAbs(args[2]))
		ts.Check(err)
		ts.Check(airgap.WriteReports(f, a.reports(args[3], args[4:])))
		ts.Check(f.Close())
	case "send":
		a.send(strings.TrimSpace(ts.ReadFile(args[2])), a.reports(args[3], args[4:]))
	case "acked":
		a.acked(args[2], args[3], args[4])
	}
}

type scriptAgent struct {
	*testscript.TestScript
	name string
}

// key depends on the name alone, so that an agent is the same in each command.
func (a scriptAgent) key() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, a.name)
	return ed25519.NewKeyFromSeed(seed)
}

func (a scriptAgent) init() {
	pem, err := bundle.MarshalPublicKey(a.key().Public())
	a.Check(err)
	a.Check(os.WriteFile(a.MkAbs(a.name+".pub"), pem, 0o644))
	status, err := json.Marshal(map[string]any{
		"cluster":  map[string]any{"uid": "uid-" + a.name, "name": a.name, "type": "drone", "environment": "dev", "labels": map[string]string{"region": "eu"}},
		"platform": "shop", "state": "pending", "reportKey": string(pem),
	})
	a.Check(err)
	a.Check(os.WriteFile(a.MkAbs(a.name+".json"), status, 0o644))
}

func (a scriptAgent) reports(state string, seqs []string) (envelopes [][]byte) {
	state, file, ok := strings.Cut(state, "@")
	running := digest.Digest("sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	if ok {
		running = digest.Digest(strings.TrimSpace(a.ReadFile(file)))
		a.Check(running.Validate())
	}
	for _, s := range seqs {
		seq, err := strconv.ParseInt(s, 10, 64)
		a.Check(err)
		body, err := json.Marshal(bundle.Report{
			Schema:  bundle.ReportSchema,
			Cluster: bundle.ReportCluster{UID: "uid-" + a.name, Name: a.name, Platform: "shop", Type: "drone", Environment: "dev"},
			Agent:   bundle.ReportAgent{Version: "v0.1.0", Incarnation: 1, Seq: seq}, Kind: bundle.Snapshot, OccurredAt: time.Now(),
			State: bundle.State(state), Reason: "\x1b[31mHostile\x07",
			Observed: &bundle.ReportRelease{Digest: running, Sequence: 1},
			Items: []bundle.Item{{
				Assignment: "web-main", Workload: "web", Target: "main", Adapter: "directory",
				State: bundle.State(state), Since: time.Now(), Version: "1.4.0",
			}},
		})
		a.Check(err)
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, a.key())
		a.Check(err)
		envelopes = append(envelopes, envelope)
	}
	return envelopes
}

func (a scriptAgent) send(url string, envelopes [][]byte) {
	raw := make([]json.RawMessage, 0, len(envelopes))
	for _, e := range envelopes {
		raw = append(raw, e)
	}
	body, err := json.Marshal(map[string]any{"reports": raw})
	a.Check(err)
	answer, err := http.Post(url+"/v1/clusters/uid-"+a.name+"/reports", "application/json", bytes.NewReader(body))
	a.Check(err)
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	a.Check(err)
	if answer.StatusCode != http.StatusOK {
		a.Fatalf("hub answered %s: %s", answer.Status, said)
	}
}

func (a scriptAgent) acked(hubKey, file, want string) {
	keys, err := bundle.ParsePublicKeys([]byte(a.ReadFile(hubKey)))
	a.Check(err)
	envelopes, err := airgap.ReadAck(a.MkAbs(file))
	a.Check(err)
	n := 0
	for _, e := range envelopes {
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, e, keys...)
		a.Check(err)
		ack, err := bundle.ParseAck(body)
		a.Check(err)
		if ack.Cluster == "uid-"+a.name {
			n += len(ack.Reports)
		}
	}
	if strconv.Itoa(n) != want {
		a.Fatalf("%s acknowledges %d reports of %s, want %s", file, n, a.name, want)
	}
}
