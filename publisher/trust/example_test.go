package trust_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// Version 1 of a trust document is written, signed by its root key, and continued by version 2.
func ExampleNew() {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	key, err := keys.New(private)
	if err != nil {
		log.Fatal(err)
	}
	anna, err := bundle.NewTrustKey("anna", key.Public())
	if err != nil {
		log.Fatal(err)
	}
	role := bundle.Role{Threshold: 1, Keys: []bundle.TrustKey{anna}}
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	draft, err := trust.New("edge", role, role, trust.DefaultValidity, now)
	if err != nil {
		log.Fatal(err)
	}
	signed, err := trust.Sign(draft, nil, []*keys.Key{key})
	if err != nil {
		log.Fatal(err)
	}
	status, err := trust.StatusOf(signed, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("version", status.Version, "complete:", status.Complete)

	next, err := trust.Edit(signed, now.Add(time.Hour), trust.RaiseEpoch)
	if err != nil {
		log.Fatal(err)
	}
	status, err = trust.StatusOf(next, signed)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("version", status.Version, "epoch", status.Epoch, "complete:", status.Complete)
	// Output:
	// version 1 complete: true
	// version 2 epoch 2 complete: false
}
