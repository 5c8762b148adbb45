package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// release publishes a release of the past:
//
//	release DIR ENVIRONMENT TYPE NUMBER AGE VALIDITY KEY TAG
//
// It was issued AGE ago with the sequence 1000 + NUMBER, or what follows in NUMBER@SEQUENCE, is valid for VALIDITY
// after that, and has one assignment. TAG is the moving tag that names it. Its signer's public key is written to KEY.
func release(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 8 {
		ts.Fatalf("usage: release DIR ENVIRONMENT TYPE NUMBER AGE VALIDITY KEY TAG")
	}
	first, second, _ := strings.Cut(args[3], "@")
	number, err := strconv.ParseInt(first, 10, 64)
	ts.Check(err)
	sequence := 1000 + number
	if second != "" {
		sequence, err = strconv.ParseInt(second, 10, 64)
		ts.Check(err)
	}
	age, err := time.ParseDuration(args[4])
	ts.Check(err)
	validity, err := time.ParseDuration(args[5])
	ts.Check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	public, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[6]), public, 0o600))

	stream := bundle.Stream{Platform: "default", Environment: args[1], ClusterType: args[2]}
	d := agenttest.New(stream, sequence, time.Now().Add(-age), map[string]string{"web-main/f": args[3]}, key)
	d.Release.Number, d.Release.ExpiresAt, d.Tag = number, d.Release.IssuedAt.Add(validity), args[7]
	repo, err := oci.Location{Dir: ts.MkAbs(args[0])}.Repository(stream.Repository(), oci.Options{})
	ts.Check(err)
	desc, err := d.Publish(context.Background(), repo)
	ts.Check(err)
	ts.Check(repo.Tag(context.Background(), desc, d.Release.Tag()))
}
