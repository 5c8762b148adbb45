package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// LedgerFile is how people call the ledger of an environment's record, which is its only file.
const LedgerFile = "ledger"

// Ledger returns the ledger of the record of an environment that ref names, as JSON for people. The error is as that of OpenReleased.
func Ledger(ctx context.Context, ref oci.Reference, environment string, signers published.Signers, opts oci.Options) ([]byte, error) {
	at, err := published.Open(ref.Location, opts, signers)
	if err != nil {
		return nil, err
	}
	e, err := at.Environment(environment)
	if err != nil {
		return nil, err
	}
	_, desc, err := ref.Resolve(ctx, opts)
	if err != nil {
		return nil, err
	}
	v, _, err := e.ReadAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	l, err := e.Ledger(ctx, v)
	if err == nil && l == nil {
		err = fmt.Errorf("record %s of environment %s has no ledger: %w", v.Record.Tag(), environment, errdef.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(l)
	return out.Bytes(), err
}
