package main

import (
	"context"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/sigstoretest"
)

// keyless signs a bundle by a certificate of a Sigstore that is there for this, and writes what to trust of it:
//
//	keyless REF SUBJECT ISSUER FILE
func keyless(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: keyless REF SUBJECT ISSUER FILE")
	}
	ref, err := oci.ParseReference(args[0])
	ts.Check(err)
	if ref.Location.Dir != "" {
		ref.Location.Dir = ts.MkAbs(ref.Location.Dir)
	}
	repo, desc, err := ref.Resolve(context.Background(), oci.Options{})
	ts.Check(err)
	sigstore, err := sigstoretest.New(time.Now().Add(-time.Hour))
	ts.Check(err)
	ts.Check(sigstore.Sign(context.Background(), repo, desc.Digest, sigstoretest.Signing{Subject: args[1], Issuer: args[2], At: time.Now()}))
	root, err := sigstore.TrustedRoot()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), root, 0o600))
}
