// Package airgap carries bundles to sites without a network, and their reports back, as OCI layouts in
// one uncompressed tar that ordinary tools read as well.
//
// Begin with Export and Open for bundles, and with WriteReports, ReadReports, WriteAck and ReadAck for
// the way back. The files written depend on nothing but what they carry. What is read comes from
// outside: sizes and counts are bounded, and nothing read here is trusted. Bundles still have to pass
// bundle.Verify, reports and acknowledgements bundle.OpenEnvelope.
package airgap
